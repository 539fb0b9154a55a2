// The few kernels that a device must have itself; torch's own fallback computes the others. With
// kernels that are late its streams are theirs: an operator of torch first runs what the current
// stream still holds, and memory is free behind the work of its stream, as in torch's allocator for
// CUDA.
#include "fake_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/queue.h"
#include "tests/support/cuda_on_cpu/sealed.h"

namespace testing_torch {
namespace {

thread_local int uncounted = 0;
std::atomic<int64_t> copies = 0;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

constexpr c10::DeviceIndex kDevices = 2;
thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_streams[kDevices] = {};

// Null: kernels run at once, or are not loaded yet.
const cuda_on_cpu::Queue *queue() {
  static std::atomic<const cuda_on_cpu::Queue *> found = nullptr;
  const cuda_on_cpu::Queue *known = found.load();
  if (known == nullptr) found.store(known = cuda_on_cpu::shared_queue());
  return known;
}

void *handle_of(c10::StreamId id) {
  return reinterpret_cast<void *>(id);
}
void *current_stream() {
  return handle_of(current_streams[current_device]);
}
// What the device's current stream holds has run.
void settle(c10::Device d) {
  if (queue() != nullptr)
    queue()->finish(handle_of(current_streams[std::max(d.index(), c10::DeviceIndex{0})]));
}

class Allocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void *data = cuda_on_cpu::is_sealed() ? cuda_on_cpu::sealed_allocate(bytes)
                                          : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (queue() != nullptr && queue()->is_lazy() && bytes > 0)
      std::memset(cuda_on_cpu::open_address(data), kGarbage, bytes);
    auto *block = new Block{data, bytes, current_stream(), {}};
    return {block->data, block, free, c10::Device(kType, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *to, const void *from, size_t bytes) const override {
    settle({kType, current_device});
    std::memcpy(cuda_on_cpu::open_address(to), cuda_on_cpu::open_address(from), bytes);
  }

 private:
  struct Block {
    void *data;
    size_t bytes;
    void *stream;                // that was current; the memory is its own
    std::vector<void *> others;  // that use it, too
  };
  static constexpr int kGarbage = 0xAB;

 public:
  // The memory is free behind the work that this stream then has, too.
  static void record(const c10::DataPtr &data, void *stream) {
    auto *block = static_cast<Block *>(data.get_context());
    if (block != nullptr && stream != block->stream) block->others.push_back(stream);
  }

 private:
  static void free(void *context) {
    if (queue() == nullptr) return free_now(context);
    const auto *block = static_cast<Block *>(context);
    for (void *other : block->others) {
      cuda_on_cpu::Mark *mark = queue()->mark(other);
      queue()->wait(block->stream, mark);
      queue()->forget(mark);
    }
    queue()->append(block->stream, free_now, context);
  }
  static void free_now(void *context) {
    const std::unique_ptr<Block> block(static_cast<Block *>(context));
    if (cuda_on_cpu::is_sealed()) return cuda_on_cpu::sealed_free(block->data, block->bytes);
    std::free(block->data);
  }
};

Allocator &allocator() {
  static Allocator one;
  return one;
}

// The handle of a stream is its number, so that of the default one is the kernels' default, null.
struct Guard : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device getDevice() const override { return {kType, current_device}; }
  c10::Device exchangeDevice(c10::Device d) const override {
    return {kType, std::exchange(current_device, d.index())};
  }
  void setDevice(c10::Device d) const override { current_device = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current_device = d.index(); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return cuda_on_cpu::is_sealed() ? 1 : kDevices;
  }
  c10::Stream getStream(c10::Device d) const noexcept override {
    return stream(d, current_streams[d.index()]);
  }
  c10::Stream getNewStream(c10::Device d, int) const override {
    if (queue() != nullptr)
      return stream(d, reinterpret_cast<c10::StreamId>(queue()->new_stream()));
    static std::atomic<c10::StreamId> last = 0;
    return stream(d, ++last);
  }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override {
    return stream(s.device(), std::exchange(current_streams[s.device_index()], s.id()));
  }
  void *getStreamNativeHandle(const c10::Stream s) const override {
    if (!has_handles) return NoOpDeviceGuardImpl::getStreamNativeHandle(s);
    return handle_of(s.id());
  }
  void record(void **event, const c10::Stream &s, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    TORCH_CHECK(queue() != nullptr, "this device has no events");
    destroyEvent(*event, 0);
    *event = queue()->mark(handle_of(s.id()));
  }
  void block(void *event, const c10::Stream &s) const override {
    if (event != nullptr) queue()->wait(handle_of(s.id()), static_cast<cuda_on_cpu::Mark *>(event));
  }
  bool queryEvent(void *event) const override {
    return event == nullptr || queue()->is_done(static_cast<cuda_on_cpu::Mark *>(event));
  }
  void synchronizeEvent(void *event) const override {
    if (event != nullptr) queue()->finish_mark(static_cast<cuda_on_cpu::Mark *>(event));
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) queue()->forget(static_cast<cuda_on_cpu::Mark *>(event));
  }
  void synchronizeStream(const c10::Stream &s) const override {
    if (queue() != nullptr) queue()->finish(handle_of(s.id()));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    if (queue() != nullptr) queue()->finish_all();
  }
  void recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &s) const override {
    Allocator::record(data, handle_of(s.id()));
  }
  static inline std::atomic<bool> has_handles = true;

 private:
  static c10::Stream stream(c10::Device d, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, d, id);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::Allocator *getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool isPinnedPtr(const void *) const override { return true; }  // copies are synchronous
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();  // operators run on the CPU
  }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex index) const override {
    static const at::Generator own[kDevices] = {getNewGenerator(0), getNewGenerator(1)};
    return own[std::max<c10::DeviceIndex>(index, 0)];
  }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    const c10::DeviceGuard there(storage.device());
    c10::DataPtr data = allocator().allocate(bytes);
    allocator().copy_data(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr(std::move(data));
    storage.set_nbytes(bytes);
  }
};

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard there(device);
  return at::detail::empty_generic(size, &allocator(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard there(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                           type.value_or(at::kFloat));
}

// The tensor's memory as a tensor of the CPU.
at::Tensor as_cpu(const at::Tensor &t) {
  if (t.is_cpu()) return t;
  settle(t.device());
  auto *data = static_cast<char *>(cuda_on_cpu::open_address(t.storage().mutable_data())) +
               static_cast<size_t>(t.storage_offset()) * t.element_size();
  return at::from_blob(data, t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool) {
  if (to.is_cpu() && uncounted == 0) ++copies;
  as_cpu(to).copy_(as_cpu(from));
  return to;
}

const at::Tensor &resize(const at::Tensor &t, at::IntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  if (t.sizes() == size) return t;
  const c10::DeviceGuard there(t.device());
  const at::Tensor larger =
      at::detail::empty_generic(size, &allocator(), kKeys, t.scalar_type(), {});
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(larger.storage());
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor &t) {
  return as_cpu(t).item();
}

at::Tensor &set_storage(at::Tensor &t, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return t;
}

at::Tensor &set_whole_storage(at::Tensor &t, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / t.element_size());
  return set_storage(t, std::move(source), 0, {count}, {1});
}

void on_copies(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const Uncounted scope;
  at::native::cpu_fallback(op, stack);
}

void register_kernels() {
  static torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                __FILE__, __LINE__);
  kernels.impl("empty.memory_format", &empty);
  kernels.impl("empty_strided", &empty_strided);
  kernels.impl("resize_", &resize);
  kernels.impl("_copy_from", &copy_from);
  kernels.impl("_copy_from_and_resize", &copy_from_and_resize);
  kernels.impl("_local_scalar_dense", &local_scalar);
  kernels.impl("set_.source_Storage_storage_offset", &set_storage);
  kernels.impl("set_.source_Storage", &set_whole_storage);
  kernels.impl("as_strided", &at::native::as_strided_tensorimpl);
  kernels.impl("view",
               static_cast<at::Tensor (*)(const at::Tensor &, at::IntArrayRef)>(&at::native::view));
  kernels.impl("_reshape_alias", &at::native::_reshape_alias);
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                               __LINE__);
  others.fallback(torch::CppFunction::makeFromBoxedFunction<&on_copies>());
  register_autocast();
}

}  // namespace

Uncounted::Uncounted() {
  ++uncounted;
}

Uncounted::~Uncounted() {
  --uncounted;
}

void be_lazy(uint64_t seed) {
  TORCH_CHECK(queue() != nullptr, "expected kernels with a queue, found none that are loaded");
  queue()->be_lazy(seed);
}

bool is_idle() {
  return queue() == nullptr || queue()->is_idle();
}

int64_t copies_to_cpu() {
  return copies;
}

at::Device fake_device(const char *name) {
  static const bool known = [name] {
    c10::register_privateuse1_backend(name);
    c10::SetAllocator(kType, &allocator());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    register_kernels();
    return true;
  }();
  return {kType, static_cast<c10::DeviceIndex>(known ? 0 : -1)};
}

}  // namespace testing_torch

// For Python, which loads this as a library.
extern "C" __attribute__((visibility("default"))) void octavo_fake_device(const char *name) {
  testing_torch::fake_device(name);
}

// 0: kernels run at once. Otherwise late, in an order of this seed. Once they are loaded.
extern "C" __attribute__((visibility("default"))) void octavo_fake_lazy(uint64_t seed) {
  testing_torch::be_lazy(seed);
}

extern "C" __attribute__((visibility("default"))) bool octavo_fake_idle() {
  return testing_torch::is_idle();
}

// Whether its guard gives native handles of streams, as not every device's does.
extern "C" __attribute__((visibility("default"))) void octavo_fake_handles(bool has_handles) {
  testing_torch::Guard::has_handles = has_handles;
}

// Slots in host memory or in that of the run's device.
#include <cstring>

#include "sdk/src/base/dtype.h"
#include "sdk/src/store/store.h"

namespace octavo {

void FreeSlot::operator()(void *p) const {
  if (is_hosts) return;
  if (device == nullptr || device->uses_host_memory())
    ::operator delete (p, std::align_val_t{kSlotAlignment});
  else
    device->memory()->release(device->ctx(), p);
}

void fill_initial(const octavo_slot &s, void *memory) {
  std::memset(memory, 0, slot_bytes(s));
  const size_t count = static_cast<size_t>(s.rows) * static_cast<size_t>(s.cols);
  if (s.initial != 0 && s.dtype == OCTAVO_F32)
    std::fill_n(static_cast<float *>(memory), count, static_cast<float>(s.initial));
  if (s.initial != 0 && s.dtype == OCTAVO_I32)
    std::fill_n(static_cast<int32_t *>(memory), count, static_cast<int32_t>(s.initial));
}

}  // namespace octavo

void octavo_store::expect_done(octavo_status status, const octavo_slot &s, const char *what) const {
  if (status == OCTAVO_OK) return;
  octavo::fail_store(status, describe(s), ": expected the device to ", what, " ",
                     octavo::slot_bytes(s), " bytes, found status ", status,
                     "; see the diagnostic before this one");
}

bool octavo_store::is_on_host() const {
  return device_ == nullptr || device_->uses_host_memory();
}

octavo::SlotMemory octavo_store::allocate(const octavo_slot &s) const {
  const uint64_t bytes = octavo::slot_bytes(s);
  void *memory = nullptr;
  if (is_on_host())
    memory = ::operator new (bytes, std::align_val_t{octavo::kSlotAlignment});
  else
    expect_done(device_->memory()->allocate(device_->ctx(), bytes, &memory), s, "allocate");
  octavo::SlotMemory owned(memory, octavo::FreeSlot{device_});
  put_initial(s, memory);
  return owned;
}

octavo::SlotMemory octavo_store::given_memory(const octavo_slot &s, void *memory) const {
  if (memory == nullptr && (s.flags & OCTAVO_SLOT_CHECKPOINT) != 0)
    octavo::fail_store(OCTAVO_INVALID, "a store over the host's memory, ", describe(s),
                       ": expected an address of a slot that checkpoints have, found null; pass "
                       "its memory");
  return octavo::SlotMemory(memory, octavo::FreeSlot{device_, true});
}

void octavo_store::take_more(std::vector<unsigned char> bytes) {
  loaded_more_ = std::move(bytes);
  *more_ = {reinterpret_cast<const char *>(loaded_more_.data()), loaded_more_.size()};
}

void octavo_store::put(const octavo_slot &s, void *memory, const void *from) const {
  const uint64_t bytes = octavo::slot_bytes(s);
  if (is_on_host())
    std::memcpy(memory, from, bytes);
  else
    expect_done(device_->memory()->copy(device_->ctx(), memory, from, bytes), s, "copy");
}

void octavo_store::put_initial(const octavo_slot &s, void *memory) const {
  if (is_on_host()) return octavo::fill_initial(s, memory);
  std::vector<unsigned char> bytes(octavo::slot_bytes(s));
  octavo::fill_initial(s, bytes.data());
  put(s, memory, bytes.data());
}

const void *octavo_store::read(uint32_t slot, std::vector<unsigned char> &copy) const {
  if (is_on_host()) return memory_[slot].get();
  const octavo_slot &s = run_.slots()[slot];
  copy.resize(octavo::slot_bytes(s));
  expect_done(
      device_->memory()->copy(device_->ctx(), copy.data(), memory_[slot].get(), copy.size()), s,
      "copy");
  return copy.data();
}

void octavo_store::write(uint32_t slot, const void *from) {
  put(run_.slots()[slot], memory_[slot].get(), from);
}

void octavo_store::write_initial(uint32_t slot) {
  put_initial(run_.slots()[slot], memory_[slot].get());
}

void octavo_store::zero(uint32_t slot) {
  const octavo_slot &s = run_.slots()[slot];
  if (is_on_host()) {
    std::memset(memory_[slot].get(), 0, octavo::slot_bytes(s));
    return;
  }
  auto call = octavo::make<octavo_copy>(OCTAVO_KIND_COPY);
  call.out = memory_[slot].get();
  call.bytes = octavo::slot_bytes(s);
  expect_done(device_->kernels().copy(device_->ctx(), &call), s, "clear");
}

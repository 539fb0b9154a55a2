// cuMemHostRegister of the driver that the kernels have loaded, by its documented signatures.
#include "page_lock.h"

#include <dlfcn.h>

#include <type_traits>

#include "report.h"

namespace octavo::conformance {
namespace {

// Looked up once, when the kernels of a device are open. All of them, or `wait` is null.
struct Driver {
  int (*get)(int *device, int ordinal) = nullptr;
  int (*retain)(void **context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(void *context) = nullptr;
  int (*pop)(void **context) = nullptr;
  int (*add)(void *begin, size_t bytes, unsigned flags) = nullptr;
  int (*remove)(void *begin) = nullptr;
  int (*wait)() = nullptr;

  Driver() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) return;
    bool has_all = true;
    const auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      has_all = has_all && function != nullptr;
    };
    find(get, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(add, "cuMemHostRegister_v2");
    find(remove, "cuMemHostUnregister");
    find(wait, "cuCtxSynchronize");
    dlclose(library);  // whoever loaded it keeps it
    if (!has_all) wait = nullptr;
  }
};

const Driver &driver() {
  static const Driver found;
  return found;
}

bool has_driver(octavo_device device) {
  return device.type == OCTAVO_DEVICE_CUDA && driver().wait != nullptr;
}

// The primary context of a device, which the CUDA runtime uses, current in this thread.
class Primary {
 public:
  explicit Primary(int index) {
    void *context = nullptr;
    is_current_ = driver().get(&device_, index) == 0 && driver().retain(&context, device_) == 0;
    if (is_current_) driver().push(context);
  }
  ~Primary() {
    if (!is_current_) return;
    void *context = nullptr;
    driver().pop(&context);
    driver().release(device_);
  }
  Primary(const Primary &) = delete;
  Primary &operator=(const Primary &) = delete;

 private:
  int device_ = 0;
  bool is_current_ = false;
};

}  // namespace

void PageLock::lock(void *begin, uint64_t bytes) {
  if (!has_driver(device_)) return;
  constexpr unsigned kForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE
  const Primary primary(device_.index);
  const int error = driver().add(begin, bytes, kForAllContexts);
  if (error != 0)
    throw Failure(text("the driver does not lock ", bytes,
                       " bytes of this program's memory, which the ",
                       "device is to read: cuMemHostRegister answered error ", error));
  locked_.push_back(begin);
}

void PageLock::clear() {
  if (locked_.empty()) return;
  const Primary primary(device_.index);
  for (void *const begin : locked_) driver().remove(begin);
  locked_.clear();
}

int wait_for(octavo_device device) {
  if (!has_driver(device)) return 0;
  const Primary primary(device.index);
  return driver().wait();
}

}  // namespace octavo::conformance

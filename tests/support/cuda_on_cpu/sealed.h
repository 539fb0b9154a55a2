// Memory of a device that only a device may touch: with CUDA_ON_CPU_SEALED=1 in the environment the
// pages that cudaMalloc gives can be read and written inside of kernels and products alone, and
// copies reach them by other addresses.
// So a host that reads its device's memory dies at once, and a kernel that is given memory of the
// host answers cudaErrorIllegalAddress, as both do on a machine with a GPU.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

bool is_sealed();
// Sealed memory, zero at first; null when there is no more of it.
void *sealed_allocate(size_t bytes);
// Whatever reads it later finds zeros. Its addresses come again after 8 others of their size were
// freed, since each address costs memory for its page table.
void sealed_free(void *data, size_t bytes);
bool is_sealed_address(const void *data);
// The same bytes where they are always open; `data` itself if it is not sealed. For copies, which
// then need not open the pages of all.
void *open_address(void *data);
inline const void *open_address(const void *data) {
  return open_address(const_cast<void *>(data));
}
// Whether the bytes of a kernel's argument hold the address of a page that is not the device's.
bool points_to_host(const void *argument, size_t bytes);

// While one of these lives, in whatever thread, the pages are open. Also for the fake cuBLASLt, a
// library of its own.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess &) = delete;
  DeviceAccess &operator=(const DeviceAccess &) = delete;
};

}  // namespace cuda_on_cpu

/* octavo/memory.h: interface "octavo.memory/1", memory allocation for one kind of device.
 *
 * Kernel plugins offer it in addition to "octavo.kernels/1" for every device but OCTAVO_DEVICE_CPU,
 * whose memory is the process's and where a call is executed when it returns. liboctavo uses it for
 * its store, and a host without a tensor library may use it for activations (octavo_run_interface).
 * Hosts with a tensor library use their own allocator and can ignore this.
 */
#ifndef OCTAVO_MEMORY_H
#define OCTAVO_MEMORY_H

#include "octavo/abi.h"

#define OCTAVO_MEMORY_ID "octavo.memory/1"

/* Required: every function. `ctx` is the context returned by octavo_kernels.open_device. */
typedef struct octavo_memory {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_MEMORY */
  /* Allocates `bytes` bytes of uninitialized device memory, aligned to 256. *out is null if `bytes`
   * is 0. Free it with release. Returns OCTAVO_NO_RESOURCE if there is not enough memory. */
  octavo_status (*allocate)(void *ctx, uint64_t bytes,
                            void **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Frees memory from allocate, of any ctx of the device, or null. No queued work may use it. */
  void (*release)(void *ctx, void *data) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Copies between device and host memory, in either direction, or within one of them. The ranges
   * must not overlap, and may be null where `bytes` is 0. The copy starts after all work queued on
   * any stream of the device and is complete on return. */
  octavo_status (*copy)(void *ctx, void *to, const void *from,
                        uint64_t bytes) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Waits for all work queued on any stream of the device. Returns OCTAVO_FAILED_DEVICE if any of
   * it failed. */
  octavo_status (*synchronize)(void *ctx) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_memory;

#endif

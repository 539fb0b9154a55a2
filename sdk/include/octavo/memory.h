/* octavo/memory.h: interface "octavo.memory/1", memory of one kind of device.
 *
 * Offered by plugins of kernels whose device has memory of its own, beside "octavo.kernels/1".
 * liboctavo uses it for its store; a host without a tensor library may use it for its activations
 * (octavo_memory_of). Hosts with a tensor library allocate by that and need nothing of this.
 */
#ifndef OCTAVO_MEMORY_H
#define OCTAVO_MEMORY_H

#include "octavo/abi.h"

#define OCTAVO_MEMORY_ID "octavo.memory/1"

/* ctx is what octavo_kernels.open_device gave. */
typedef struct octavo_memory {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_MEMORY */
  /* *out: `bytes` bytes of the device, aligned to 256, uninitialised; null for 0 bytes.
   * OCTAVO_RESOURCE: there is not enough. */
  octavo_status (*allocate)(void *ctx, uint64_t bytes,
                            void **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* `data` may be null. Work that uses it must have ended. */
  void (*release)(void *ctx, void *data) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Between memory of the device and of the host, either way, or within one of them; they do not
   * overlap. Begins after all work that was queued on the device, on any stream, and has ended when
   * it returns. */
  octavo_status (*copy)(void *ctx, void *to, const void *from,
                        uint64_t bytes) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Waits for all work that was queued on the device, on any stream. OCTAVO_DEVICE: some of it
   * failed. */
  octavo_status (*synchronize)(void *ctx) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_memory;

#endif

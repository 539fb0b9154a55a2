// The memory that the runtime gave: whose it is, and what is left of it when it has been freed.
//
// Fresh memory and freed memory hold bytes that are NaN as f32, bf16, f16 and FP8, so that what was
// never written, or is read too late, shows in a result. Freed memory is kept a while: what is
// written to it then ends the process, with the address.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

constexpr unsigned char kPoison = 0xFF;

enum class Place {
  kPageable,  // of the host; what the runtime did not give
  kPinned,
  kDevice
};

// Null: there is no more.
void *take_memory(size_t bytes, Place place, int device);
// False: nothing of that kind begins there.
bool owns_memory(const void *data, Place place);
void give_memory(void *data);
void poison_memory(void *data);

Place place_of(const void *data);
// Memory of another device than the current one, which kernels cannot reach. CUDA copies such
// memory by way of the host; here no call spans devices, so copies are refused, too.
bool is_foreign(const void *data);
// Whether the bytes of a kernel's argument hold the address of foreign memory.
bool points_to_foreign(const void *argument, size_t bytes);
// Looks at all freed memory, and gives it back.
void check_freed();

}  // namespace cuda_on_cpu

// Loads and stores at addresses that are no multiple of what their type demands: device code is
// compiled with -fsanitize=alignment, which calls the function below. A kernel ends with
// cudaErrorMisalignedAddress, as on a device.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// What the compilers pass, of which only the beginning is of interest.
struct Place {
  const char *file;
  uint32_t line;
  uint32_t column;
};
struct Type {
  uint16_t kind;
  uint16_t info;
  char name[1];
};
struct Mismatch {
  Place place;
  const Type *type;
  uint8_t alignment_bits;
  uint8_t use;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_type_mismatch_v1(
    const Mismatch *found, uintptr_t address);

extern "C" void __ubsan_handle_type_mismatch_v1(const Mismatch *found, uintptr_t address) {
  std::fprintf(stderr,
               "%s:%u: expected the address of %s to be a multiple of %u, found 0x%llx; check what "
               "decides that this access is aligned\n",
               found->place.file, found->place.line, found->type->name, 1u << found->alignment_bits,
               static_cast<unsigned long long>(address));
  cuda_on_cpu::fail_in_kernel(cudaErrorMisalignedAddress);
}

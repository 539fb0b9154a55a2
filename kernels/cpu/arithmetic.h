/* kernels/cpu/arithmetic.h: the rules of fp32 arithmetic while a kernel runs.
 *
 * A host may round upwards, flush subnormals (torch.set_flush_denormal, -ffast-math start-up code)
 * or trap on exceptions. Kernels compute the same bits under any of that, and leave the host's
 * settings and exception flags as they found them.
 */
#pragma once

#include <cstdint>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace octavo {

/* Round to nearest, subnormals kept, nothing traps; for the calling thread and this scope. */
class DefaultArithmetic {
 public:
#ifdef __SSE2__
  DefaultArithmetic() : kept_(_mm_getcsr()) {
    if ((kept_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
    keep_order();
  }
  ~DefaultArithmetic() {
    keep_order();
    if (_mm_getcsr() != kept_) _mm_setcsr(kept_);
  }

 private:
  static constexpr uint32_t kDefault = 0x1F80; /* all exceptions masked */
  static constexpr uint32_t kFlags = 0x3F;     /* what has happened so far */
  /* Keeps the compiler from moving loads and stores, and so what is between them, across. */
  static void keep_order() {
    asm volatile("" ::: "memory");
  }

  uint32_t kept_;
#elif defined(__aarch64__)
  DefaultArithmetic() : kept_(__builtin_aarch64_get_fpcr()) {
    if (kept_ != 0) __builtin_aarch64_set_fpcr(0);
  }
  ~DefaultArithmetic() {
    if (kept_ != 0) __builtin_aarch64_set_fpcr(kept_);
  }

 private:
  uint32_t kept_;
#endif
 public:
  DefaultArithmetic(const DefaultArithmetic &) = delete;
  DefaultArithmetic &operator=(const DefaultArithmetic &) = delete;
};

}  // namespace octavo

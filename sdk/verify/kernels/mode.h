// A floating-point mode that a host may have: rounding upwards, without subnormals.
#pragma once

#include <cstdint>

namespace octavo::conformance::kernels {

// Of the calling thread, for this scope. On other CPUs than x86-64 and aarch64 it changes nothing.
class OtherMode {
 public:
  OtherMode() : before_(current()) { set(kOther); }
  ~OtherMode() { set(before_); }
  OtherMode(const OtherMode &) = delete;
  OtherMode &operator=(const OtherMode &) = delete;

  // Whether a call left it as it was, but for the flags of what has happened.
  bool is_kept() const { return (current() & ~kFlags) == kOther; }

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kOther = 0x1F80 | 0x4000 | 0x8040, kFlags = 0x3F;
  static uint64_t current() {
    return __builtin_ia32_stmxcsr();
  }
  static void set(uint64_t mode) {
    asm volatile("" ::: "memory");
    __builtin_ia32_ldmxcsr(static_cast<uint32_t>(mode));
    asm volatile("" ::: "memory");
  }
#elif defined(__aarch64__)
  static constexpr uint64_t kOther = uint64_t{1} << 24 | uint64_t{1} << 22, kFlags = 0;
  static uint64_t current() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(uint64_t mode) {
    asm volatile("msr fpcr, %0" ::"r"(mode) : "memory");
  }
#else
  static constexpr uint64_t kOther = 0, kFlags = 0;
  static uint64_t current() {
    return 0;
  }
  static void set(uint64_t) {}
#endif

  const uint64_t before_;
};

}  // namespace octavo::conformance::kernels

// Kernels in between: they forward to the real ones, but for what a derived class puts into table_.
//
// One object of a class at a time, since tables have no context to spare.
#pragma once

#include <algorithm>
#include <cstring>

#include "conformance.h"
#include "octavo/kernels.h"

namespace octavo::conformance {

template <typename Watch>
class KernelsBetween {
 public:
  explicit KernelsBetween(const Context &context) : outer_(context), target_(context.target) {
    std::memcpy(&table_, &real(), std::min<size_t>(real().size, sizeof table_));
    target_.desc.kernels = &table_;
    watching_ = static_cast<Watch *>(this);
  }
  ~KernelsBetween() { watching_ = nullptr; }
  KernelsBetween(const KernelsBetween &) = delete;
  KernelsBetween &operator=(const KernelsBetween &) = delete;

  // For sessions on these kernels, which must not outlive them.
  Context context() const { return {target_, outer_.seed, outer_.alignment}; }

 protected:
  const octavo_kernels &real() const { return *outer_.target.desc.kernels; }

  static inline Watch *watching_ = nullptr;
  octavo_kernels table_{};

 private:
  Context outer_;
  Target target_;
};

}  // namespace octavo::conformance

// The refusals of one configuration, together.
#pragma once

#include <optional>
#include <string>

#include "sdk/src/base/failure.h"

namespace octavo {

// Collects the failures of several steps. One failure then has the lines of all, and the fix of the
// first.
class Failures {
 public:
  template <typename Step>
  void take(const Step &step) {
    try {
      step();
    } catch (const Failure &failure) {
      if (failure.status() != OCTAVO_INVALID) throw;
      if (!first_) first_ = failure;
      text_ += (text_.empty() ? "" : "\n") + failure.text();
    }
  }
  void refuse() const {
    if (first_) throw Failure(first_->status(), first_->domain(), text_).with_fix(first_->fix());
  }

 private:
  std::optional<Failure> first_;
  std::string text_;
};

}  // namespace octavo

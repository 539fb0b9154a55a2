// A class on octavo/plugin.hpp as the conformance suite examines it: on the CPU kernels of a run.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>

#include "octavo/plugin.hpp"
#include "sdk/verify/conformance.h"
#include "tests/support/environment.h"
#include "tests/support/request.h"

namespace octavo::test {

// The run, which targets must not outlive.
class Opened {
 public:
  Opened() {
    request_.set("fp8.backend", "reference");
    run_ = request_.opened();
    if (run_ == nullptr) throw std::runtime_error(request_.host.error());
  }

  template <typename Tested>
  conformance::Target target() const {
    conformance::Target t;
    t.backend = plugin::Tables<Tested>::backend();
    t.optimizer = plugin::Tables<Tested>::optimizer();
    t.gradients = plugin::Tables<Tested>::gradients();
    t.desc = *octavo_run_session_desc(run_.get());
    return t;
  }

 private:
  Environment environment_;
  Request request_;
  RunPtr run_;
};

// One check of the suite passes as a whole, or does not apply.
template <typename Tested>
void expect_passes(const conformance::Check &check) {
  const Opened opened;
  const conformance::Result result = conformance::run_check(check, opened.target<Tested>(), 1);
  if (result.outcome == conformance::Outcome::kSkip) GTEST_SKIP() << result.detail;
  EXPECT_EQ(result.outcome, conformance::Outcome::kPass) << result.detail;
  EXPECT_EQ(result.detail, "") << "a part of the check was left out";
}

}  // namespace octavo::test

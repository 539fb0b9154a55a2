// Reasons that only unusual kernels provoke: the backends' own answers to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/kernels.h"
#include "tests/support/abilities.h"
#include "tests/support/environment.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class Reasons : public testing::Test {
 protected:
  // The answer of the backend `reference` to the CPU's kernels with changed caps.
  template <typename Change>
  octavo_verdict ask(Change change, const std::vector<uint32_t> &lacking = {}) {
    request_.set("fp8.backend", "reference");
    EXPECT_EQ(request_.open(run_), OCTAVO_OK) << request_.host.error();
    octavo_session_desc desc = *octavo_run_session_desc(run_.get());
    octavo_kernels_caps caps = *desc.caps;
    change(caps);
    desc.caps = &caps;
    const LackingKernels kernels(*desc.kernels);
    LackingKernels::dtypes() = lacking;
    desc.kernels = &kernels.table;
    octavo_verdict said{};
    octavo_verdict_sink sink{};
    sink.size = sizeof(sink);
    sink.kind = OCTAVO_KIND_VERDICT_SINK;
    sink.ctx = &said;
    sink.verdict = [](void *ctx, const octavo_verdict *v) {
      *static_cast<octavo_verdict *>(ctx) = *v;
    };
    EXPECT_EQ(octavo_run_backend(run_.get())->check_session(&desc, &sink), OCTAVO_OK);
    return said;
  }

  Environment environment_;
  Request request_;
  RunPtr run_;
};

TEST_F(Reasons, formats_that_the_kernels_lack) {
  const octavo_verdict v = ask([](octavo_kernels_caps &) {}, {OCTAVO_E5M2});
  EXPECT_EQ(v.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_DTYPE});
}

TEST_F(Reasons, kernels_that_need_aligned_shapes) {
  const octavo_verdict v = ask([](octavo_kernels_caps &caps) { caps.alignment = 16; });
  EXPECT_EQ(v.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_SHAPE});
}

}  // namespace
}  // namespace octavo::test

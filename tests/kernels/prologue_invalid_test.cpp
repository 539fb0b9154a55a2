/* prologue and prologue_quantize refuse malformed calls with a status and a text, and leave all
 * outputs as they were.
 */
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/prologue_case.h"

namespace octavo::test {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kCols = 40;

/* A legal call of both verbs, and one fault in it. */
struct Calls {
  PrologueCase t;
  Matrix out{OCTAVO_F32, kRows, kCols};
  Matrix codes{OCTAVO_E4M3FN, kRows, kCols};
  float scale_inv = kUnwritten;
  float amax = 0.0f;
  octavo_scale out_scale_inv = per_tensor(&scale_inv);
  octavo_tensor shape = {nullptr, kRows, kCols, kCols, OCTAVO_BF16, 0};
  std::vector<float> workspace = std::vector<float>(kRows * kCols);
  octavo_quantize q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  octavo_prologue_call plain = t.call(out.tensor());
  octavo_prologue_call fused = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);

  explicit Calls(uint32_t op) : t(op, kRows, kCols) {
    q.in = &shape;
    q.out = codes.tensor();
    q.out_scale_inv = &out_scale_inv;
    q.amax = &amax;
    q.rule = OCTAVO_RULE_QUOTIENT;
    q.format_max = kMaxE4m3;
    fused.prologue = &t.p;
    fused.quantize = &q;
    fused.workspace = workspace.data();
  }

  void expect_untouched() const {
    for (const uint8_t byte : out.data()) ASSERT_EQ(byte, Matrix::kFiller);
    for (const uint8_t byte : codes.data()) ASSERT_EQ(byte, Matrix::kFiller);
    for (const float value : t.mean) ASSERT_EQ(value, kUnwritten);
    for (const float value : t.rstd) ASSERT_EQ(value, kUnwritten);
    ASSERT_EQ(scale_inv, kUnwritten);
    ASSERT_EQ(amax, 0.0f);
  }
};

struct Fault {
  uint32_t op;
  std::function<void(Calls &)> plant;
  octavo_status status;
  const char *said; /* part of the text */
};

const octavo_tensor kWrongShape = {nullptr, 2, kCols, kCols, OCTAVO_F32, 0};

/* Faults of the prologue: both verbs refuse them. */
const Fault kPrologueFaults[] = {
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.p.size = 8; }, OCTAVO_INVALID, "prologue has 8"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.plain.prologue = c.fused.prologue = nullptr; },
     OCTAVO_INVALID, "prologue is null"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.p.op = 0; }, OCTAVO_UNSUPPORTED, "op = 0"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.p.op = 6; }, OCTAVO_UNSUPPORTED, "op = 6"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.p.in = nullptr; }, OCTAVO_INVALID, "prologue.in"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.in.tensor()->dtype = OCTAVO_E4M3FN; },
     OCTAVO_UNSUPPORTED, "prologue.in.dtype"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.in.tensor()->rows = kRows - 1; }, OCTAVO_INVALID,
     "expected [M, K] with [M, K]"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.in.tensor()->cols = kCols - 1; }, OCTAVO_INVALID,
     "expected [M, K] with [M, K]"},
    {OCTAVO_PROLOGUE_SWIGLU, [](Calls &c) { c.t.in.tensor()->cols = kCols; }, OCTAVO_INVALID,
     "expected [M, 2K] with [M, K]"},
    {OCTAVO_PROLOGUE_SWIGLU, [](Calls &c) { c.t.in.tensor()->cols = 2 * kCols - 1; },
     OCTAVO_INVALID, "expected [M, 2K] with [M, K]"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.t.p.eps = -1e-5f; }, OCTAVO_INVALID, "eps = -"},
    {OCTAVO_PROLOGUE_RMS_NORM,
     [](Calls &c) { c.t.p.eps = std::numeric_limits<float>::quiet_NaN(); }, OCTAVO_INVALID,
     "eps = "},
    {OCTAVO_PROLOGUE_RMS_NORM, [](Calls &c) { c.t.p.eps = std::numeric_limits<float>::infinity(); },
     OCTAVO_INVALID, "eps = inf"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.t.p.gamma = nullptr; }, OCTAVO_INVALID,
     "prologue.gamma is null"},
    {OCTAVO_PROLOGUE_RMS_NORM, [](Calls &c) { c.t.gamma.tensor()->cols = kCols - 1; },
     OCTAVO_INVALID, "prologue.gamma has shape"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.t.p.beta = c.t.in.tensor(); }, OCTAVO_INVALID,
     "prologue.beta has shape"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.t.gamma.tensor()->dtype = OCTAVO_E5M2; },
     OCTAVO_UNSUPPORTED, "prologue.gamma.dtype"},
    {OCTAVO_PROLOGUE_RMS_NORM, [](Calls &c) { c.t.p.beta = c.t.beta.tensor(); }, OCTAVO_INVALID,
     "prologue.beta is not null"},
    {OCTAVO_PROLOGUE_RMS_NORM, [](Calls &c) { c.t.p.mean = c.t.mean.data(); }, OCTAVO_INVALID,
     "prologue.mean is not null"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.t.p.gamma = c.t.gamma.tensor(); }, OCTAVO_INVALID,
     "prologue.gamma is not null"},
    {OCTAVO_PROLOGUE_SWIGLU, [](Calls &c) { c.t.p.rstd = c.t.rstd.data(); }, OCTAVO_INVALID,
     "prologue.rstd is not null"},
    {OCTAVO_PROLOGUE_LAYER_NORM,
     [](Calls &c) { c.t.p.mean = reinterpret_cast<float *>(uintptr_t{2}); }, OCTAVO_INVALID,
     "prologue.mean"},
};

const Fault kPlainFaults[] = {
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.plain.size = 16; }, OCTAVO_INVALID, "has 16 bytes"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.plain.out = nullptr; }, OCTAVO_INVALID, "out is null"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.out.tensor()->dtype = OCTAVO_E4M3FN; },
     OCTAVO_UNSUPPORTED, "out.dtype"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.out.tensor()->stride = 1; }, OCTAVO_INVALID,
     "out.stride"},
};

const Fault kFusedFaults[] = {
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.fused.size = 16; }, OCTAVO_INVALID, "has 16 bytes"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.fused.quantize = nullptr; }, OCTAVO_INVALID,
     "quantize is null"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.q.size = 24; }, OCTAVO_INVALID, "quantize has 24"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.q.in = nullptr; }, OCTAVO_INVALID,
     "quantize.in is null"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.shape.dtype = OCTAVO_E5M2; }, OCTAVO_UNSUPPORTED,
     "quantize.in.dtype"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.shape.rows = -1; }, OCTAVO_INVALID, "quantize.in"},
    {OCTAVO_PROLOGUE_GELU, [](Calls &c) { c.q.in = &kWrongShape; }, OCTAVO_INVALID,
     "with quantize.in [2, 40]"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.fused.workspace = nullptr; }, OCTAVO_INVALID,
     "workspace is null"},
    {OCTAVO_PROLOGUE_LAYER_NORM,
     [](Calls &c) { c.fused.workspace = reinterpret_cast<char *>(c.workspace.data()) + 1; },
     OCTAVO_INVALID, "workspace.data"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.q.rule = 99; }, OCTAVO_UNSUPPORTED, "rule = 99"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.q.flags = 2; }, OCTAVO_UNSUPPORTED, "flags"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.codes.tensor()->rows = kRows - 1; },
     OCTAVO_INVALID, "out.rows"},
    {OCTAVO_PROLOGUE_LAYER_NORM, [](Calls &c) { c.out_scale_inv.granularity = 99; },
     OCTAVO_UNSUPPORTED, "granularity"},
};

void expect_refused(Kernels &kernels, const Fault &fault, bool is_fused) {
  Calls c(fault.op);
  fault.plant(c);
  const octavo_status status = is_fused ? kernels.table->prologue_quantize(kernels.ctx(), &c.fused)
                                        : kernels.table->prologue(kernels.ctx(), &c.plain);
  EXPECT_EQ(status, fault.status) << fault.said << ": " << kernels.host().last_text();
  const std::string verb = is_fused ? "prologue_quantize" : "prologue";
  const std::string text = kernels.host().last_text();
  EXPECT_TRUE(text.starts_with(verb + ": ") || text.starts_with("quantize: ")) << text;
  EXPECT_NE(text.find(fault.said), std::string::npos) << fault.said << " in: " << text;
  c.expect_untouched();
}

TEST(PrologueInvalid, the_calls_are_legal_without_a_fault) {
  Kernels kernels;
  for (const uint32_t op : kPrologueOps) {
    Calls c(op);
    EXPECT_EQ(kernels.table->prologue(kernels.ctx(), &c.plain), OCTAVO_OK);
    EXPECT_EQ(kernels.table->prologue_quantize(kernels.ctx(), &c.fused), OCTAVO_OK);
    EXPECT_EQ(kernels.host().last_text(), "");
  }
}

TEST(PrologueInvalid, faults_of_the_prologue) {
  Kernels kernels;
  for (const Fault &fault : kPrologueFaults) {
    expect_refused(kernels, fault, false);
    expect_refused(kernels, fault, true);
  }
}

TEST(PrologueInvalid, faults_of_the_plain_verb) {
  Kernels kernels;
  for (const Fault &fault : kPlainFaults) expect_refused(kernels, fault, false);
  EXPECT_EQ(kernels.table->prologue(kernels.ctx(), nullptr), OCTAVO_INVALID);
}

TEST(PrologueInvalid, faults_of_the_fused_verb) {
  Kernels kernels;
  for (const Fault &fault : kFusedFaults) expect_refused(kernels, fault, true);
  EXPECT_EQ(kernels.table->prologue_quantize(kernels.ctx(), nullptr), OCTAVO_INVALID);
}

TEST(PrologueInvalid, a_norm_of_no_columns) {
  Kernels kernels;
  PrologueCase t(OCTAVO_PROLOGUE_RMS_NORM, 2, 0);
  Matrix out(OCTAVO_F32, 2, 0);
  const octavo_prologue_call c = t.call(out.tensor());
  EXPECT_EQ(kernels.table->prologue(kernels.ctx(), &c), OCTAVO_INVALID);
  EXPECT_EQ(t.rstd[0], kUnwritten);
}

TEST(PrologueInvalid, no_rows_need_no_workspace) {
  Kernels kernels;
  Calls c(OCTAVO_PROLOGUE_GELU);
  c.t.in.tensor()->rows = c.shape.rows = 0;
  c.fused.workspace = nullptr;
  EXPECT_EQ(kernels.table->prologue_quantize(kernels.ctx(), &c.fused), OCTAVO_OK)
      << kernels.host().last_text();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) ASSERT_EQ(c.codes.code(row, col), 0) << "padding";
  }
}

}  // namespace
}  // namespace octavo::test

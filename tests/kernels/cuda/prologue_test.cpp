/* Norms and activations of device code, alone and before a cast, against the CPU's kernels. */
#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

constexpr uint32_t kOps[] = {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_RMS_NORM,
                             OCTAVO_PROLOGUE_GELU, OCTAVO_PROLOGUE_GELU_TANH,
                             OCTAVO_PROLOGUE_SWIGLU};

struct Call {
  Twins::Tensor in, gamma, beta, out, out_t;
  size_t norms, scale_inv, amax, states;
  int64_t rows, cols;
  uint32_t op;

  Call(Twins &twins, uint32_t operation, int64_t r, int64_t c, uint32_t dtype, uint32_t out_dtype)
      : in(twins.tensor(r, operation == OCTAVO_PROLOGUE_SWIGLU ? 2 * c : c, dtype, Values::kSpecial,
                        0)),
        gamma(twins.tensor(1, c, OCTAVO_F32, Values::kNormal)),
        beta(twins.tensor(1, c, OCTAVO_BF16, Values::kNormal)),
        out(twins.tensor(r, c, out_dtype, Values::kNormal)),
        out_t(twins.tensor(c, r, out_dtype, Values::kNormal)),
        norms(twins.floats(std::vector<float>(static_cast<size_t>(2 * r), 9.0f))),
        scale_inv(twins.floats(std::vector<float>(static_cast<size_t>(r * c), 9.0f))),
        amax(twins.floats({0.0f, 0.0f})),
        states(0),
        rows(r),
        cols(c),
        op(operation) {}
};

bool is_norm(uint32_t op) {
  return op <= OCTAVO_PROLOGUE_RMS_NORM;
}

octavo_prologue prologue_of(Twins &twins, const Call &k, int side, const octavo_tensor *in,
                            const octavo_tensor *gamma, const octavo_tensor *beta) {
  octavo_prologue p = {};
  p.size = sizeof(p);
  p.kind = OCTAVO_KIND_PROLOGUE;
  p.op = k.op;
  p.eps = 1e-5f;
  p.in = in;
  if (!is_norm(k.op)) return p;
  p.gamma = gamma;
  p.rstd = twins.floats_at(side, k.norms) + k.rows;
  if (k.op != OCTAVO_PROLOGUE_LAYER_NORM) return p;
  p.beta = beta;
  p.mean = twins.floats_at(side, k.norms);
  return p;
}

TEST(CudaPrologue, alone_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t op : kOps) {
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      for (const int64_t cols : {1, 17, 600}) {
        Twins twins(seed++);
        const Call k(twins, op, 21, cols, dtype, dtype);
        for (int side = 0; side < 2; ++side) {
          const octavo_tensor in = twins.at(side, k.in);
          const octavo_tensor gamma = twins.at(side, k.gamma);
          const octavo_tensor beta = twins.at(side, k.beta);
          octavo_tensor out = twins.at(side, k.out);
          const octavo_prologue p = prologue_of(twins, k, side, &in, &gamma, &beta);
          octavo_prologue_call c = {};
          c.size = sizeof(c);
          c.kind = OCTAVO_KIND_PROLOGUE_CALL;
          c.prologue = &p;
          c.out = &out;
          ASSERT_EQ(cuda::prologue_workspace(nullptr, c), 0u) << "prologue has none";
          ASSERT_EQ(devices.run(side, &octavo_kernels::prologue, c), OCTAVO_OK)
              << devices.last_text();
        }
        twins.expect_equal("op " + std::to_string(op) + " cols " + std::to_string(cols));
      }
    }
  }
}

TEST(CudaPrologue, before_a_cast_as_the_cpu) {
  Devices devices;
  uint64_t seed = 1;
  for (const uint32_t op : kOps) {
    for (const uint32_t granularity :
         {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128, OCTAVO_FLAT_256}) {
      for (const uint32_t rule : {OCTAVO_RULE_GIVEN, OCTAVO_RULE_QUOTIENT}) {
        if (rule == OCTAVO_RULE_GIVEN && granularity != OCTAVO_PER_TENSOR) continue;
        Twins twins(seed++);
        const int64_t rows = 33;
        const int64_t cols = 140;
        const Call k(twins, op, rows, cols, OCTAVO_BF16, OCTAVO_E4M3FN);
        const size_t scale_inv_t =
            twins.floats(std::vector<float>(static_cast<size_t>(rows * cols), 9.0f));
        for (int side = 0; side < 2; ++side) {
          const octavo_tensor in = twins.at(side, k.in);
          const octavo_tensor gamma = twins.at(side, k.gamma);
          const octavo_tensor beta = twins.at(side, k.beta);
          octavo_tensor out = twins.at(side, k.out);
          octavo_tensor out_t = twins.at(side, k.out_t);
          const octavo_tensor shape = {nullptr, rows, cols, cols, OCTAVO_BF16, 0};
          octavo_scale s = {};
          s.granularity = granularity;
          s.dtype = OCTAVO_F32;
          s.stride = granularity == OCTAVO_BLOCK_1X128 ? 2 : 1;
          octavo_scale s_t = s;
          s.data = twins.data(side, k.scale_inv);
          s_t.data = twins.data(side, scale_inv_t);
          const bool is_state = granularity == OCTAVO_FLAT_256;
          octavo_quantize q = {};
          q.size = sizeof(q);
          q.kind = OCTAVO_KIND_QUANTIZE;
          q.in = &shape;
          q.out = &out;
          q.out_t = is_state ? nullptr : &out_t;
          q.out_scale_inv = &s;
          q.out_t_scale_inv = is_state ? nullptr : &s_t;
          q.amax = twins.floats_at(side, k.amax);
          q.nonfinite = q.amax + 1;
          q.format_max = 448.0f;
          q.rule = rule;
          const octavo_prologue p = prologue_of(twins, k, side, &in, &gamma, &beta);
          octavo_prologue_call c = {};
          c.size = sizeof(c);
          c.kind = OCTAVO_KIND_PROLOGUE_CALL;
          c.prologue = &p;
          c.quantize = &q;
          uint64_t cpu_bytes = 0;
          ASSERT_EQ(devices.table().workspace_bytes(devices.cpu(), &c, &cpu_bytes), OCTAVO_OK);
          Workspace workspace(side, cpu_bytes + cuda::prologue_workspace(nullptr, c));
          c.workspace = workspace.data();
          ASSERT_EQ(devices.run(side, &octavo_kernels::prologue_quantize, c), OCTAVO_OK)
              << devices.last_text();
        }
        twins.expect_equal("op " + std::to_string(op) + " granularity " +
                           std::to_string(granularity));
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test

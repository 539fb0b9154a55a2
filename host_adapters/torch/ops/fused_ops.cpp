// A norm or a gate, quantization and a linear layer as one op: octavo.fused/1.
#include "arguments.h"
#include "error.h"
#include "forward_call.h"

namespace octavo::ops {
namespace {

octavo_prologue make_prologue(int64_t op, double eps, const octavo_tensor *in,
                              const octavo_tensor *gamma, const octavo_tensor *beta, float *mean,
                              float *rstd) {
  octavo_prologue p = {};
  p.size = sizeof p;
  p.kind = OCTAVO_KIND_PROLOGUE;
  p.op = static_cast<uint32_t>(op);
  p.eps = static_cast<float>(eps);
  p.in = in;
  p.gamma = gamma;
  p.beta = beta;
  p.mean = mean;
  p.rstd = rstd;
  return p;
}

// (int run, int linear, int flags, int op, float eps, Tensor x, Tensor? gamma, Tensor? beta,
// Tensor? bias, Tensor[] read, Tensor(a!)[] accumulate) -> (Tensor y, Tensor saved, Tensor mean,
// Tensor rstd): y = linear(prologue(x)) with nothing in between written to memory; mean and rstd
// are f32 [M] for norms, else empty.
void fused_forward(StableIValue *values, uint64_t, uint64_t) {
  const char *what = "fused_forward of linear";
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2), op = stack.integer(3);
  const double eps = stack.real(4);
  const View x = stack.tensor(5), gamma = stack.optional_tensor(6), beta = stack.optional_tensor(7),
             bias = stack.optional_tensor(8);
  const Slots slots = {stack.tensors(9), stack.tensors(10), {}};

  const auto e = find(stack.integer(0));
  const auto list = list_of(*e, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear, slots, what);
  const LinearShape &shape = e->shapes[static_cast<size_t>(linear)];
  const octavo_linear_plan &plan = e->plans[static_cast<size_t>(linear)];
  const octavo_extent &extent = e->fused_workspace[static_cast<size_t>(linear)];
  if (extent.row_multiple == 0)
    raise(OCTAVO_UNSUPPORTED, std::string(what) + " " + std::to_string(linear) +
                                  ": the backend does not fuse this layer. The call");
  const int64_t in_cols = op == OCTAVO_PROLOGUE_SWIGLU ? 2 * shape.k : shape.k;
  check_operand(x, in_cols, "x", what, linear);
  const Dense x_dense(x);
  const octavo_tensor in = matrix(x_dense.view(), in_cols);
  const octavo_tensor gm = optional_row(gamma, shape.k, "gamma", what, linear);
  const octavo_tensor bm = optional_row(beta, shape.k, "beta", what, linear);
  const octavo_tensor bias_m = optional_row(bias, shape.n, "bias", what, linear);

  const bool is_layer_norm = op == OCTAVO_PROLOGUE_LAYER_NORM;
  const bool is_norm = is_layer_norm || op == OCTAVO_PROLOGUE_RMS_NORM;
  Owned mean = empty({is_layer_norm ? in.rows : 0}, OCTAVO_F32);
  Owned rstd = empty({is_norm ? in.rows : 0}, OCTAVO_F32);
  const octavo_prologue prologue =
      make_prologue(op, eps, &in, gamma ? &gm : nullptr, beta ? &bm : nullptr,
                    is_layer_norm ? static_cast<float *>(mean.mutable_data()) : nullptr,
                    is_norm ? static_cast<float *>(rstd.mutable_data()) : nullptr);

  Owned y = empty_with_last(x, shape.n);
  octavo_tensor ym = matrix(y, shape.n);
  octavo_tensor xm = in;  // a shape and a dtype, no data
  xm.data = nullptr;
  xm.cols = xm.stride = shape.k;
  Owned saved = make_saved(plan, in.rows, flags);
  Workspace workspace(octavo_extent_bytes(&extent, static_cast<uint64_t>(in.rows)));
  const octavo_forward_call forward = forward_call(
      linear, flags, &xm, &ym, bias ? &bias_m : nullptr, list, saved, workspace.data());
  octavo_fused_forward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_FUSED_FORWARD_CALL;
  call.forward = &forward;
  call.prologue = &prologue;
  check(e->fused->linear_forward(e->session, &call), "linear_forward of octavo.fused/1", "linear",
        linear);
  count(*e, OCTAVO_VERB_FORWARD);
  stack.give(0, std::move(y));
  stack.give(1, std::move(saved));
  stack.give(2, std::move(mean));
  stack.give(3, std::move(rstd));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def(
      "fused_forward(int run, int linear, int flags, int op, float eps, Tensor x, Tensor? gamma, "
      "Tensor? beta, Tensor? bias, Tensor[] read, Tensor(a!)[] accumulate) -> (Tensor y, Tensor "
      "saved, Tensor mean, Tensor rstd)");
}

STABLE_TORCH_LIBRARY_IMPL(octavo, CPU, m) {
  m.impl("fused_forward", fused_forward);
}

}  // namespace octavo::ops

// A norm or a gate, quantization and a linear layer as one op: octavo.fused/1.
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

// (int run, int linear, int flags, int op, float eps, int version, Tensor x, Tensor? gamma, Tensor?
// beta, Tensor? weight, Tensor? bias) -> (Tensor y, Tensor saved, Tensor mean, Tensor rstd):
// y = linear(prologue(x)) with nothing in between written to memory; mean and rstd are f32 [M] for
// norms, else empty.
void fused_forward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2), op = stack.integer(3);
  const double eps = stack.real(4);
  const View x = stack.tensor(6), gamma = stack.optional_tensor(7), beta = stack.optional_tensor(8),
             weight = stack.optional_tensor(9), bias = stack.optional_tensor(10);

  const auto e = find(stack.integer(0));
  ForwardCall f(*e, linear, flags, weight, stack.integer(5));
  const octavo_extent &extent = e->fused_workspace[static_cast<size_t>(linear)];
  if (extent.row_multiple == 0)
    raise(OCTAVO_UNSUPPORTED,
          e->name(OCTAVO_OWNER_LINEAR, linear) + ": the backend does not fuse this layer");
  const int64_t in_cols = op == OCTAVO_PROLOGUE_SWIGLU ? 2 * f.shape.k : f.shape.k;
  check_operand(*e, x, in_cols, "x", linear);
  const Dense x_dense(x);
  const octavo_tensor in = matrix(x_dense.view(), in_cols);
  const octavo_tensor gm = optional_row(*e, gamma, f.shape.k, "gamma", linear);
  const octavo_tensor bm = optional_row(*e, beta, f.shape.k, "beta", linear);
  const octavo_tensor bias_m = optional_row(*e, bias, f.shape.n, "bias", linear);

  const bool is_layer_norm = op == OCTAVO_PROLOGUE_LAYER_NORM;
  const bool is_norm = is_layer_norm || op == OCTAVO_PROLOGUE_RMS_NORM;
  Owned mean = empty(*e, {is_layer_norm ? in.rows : 0}, OCTAVO_F32);
  Owned rstd = empty(*e, {is_norm ? in.rows : 0}, OCTAVO_F32);
  const octavo_prologue prologue =
      make_prologue(op, eps, &in, gamma ? &gm : nullptr, beta ? &bm : nullptr,
                    is_layer_norm ? static_cast<float *>(mean.mutable_data()) : nullptr,
                    is_norm ? static_cast<float *>(rstd.mutable_data()) : nullptr);

  Owned y = empty_with_last(*e, x, f.shape.n);
  octavo_tensor ym = matrix(y, f.shape.n);
  octavo_tensor xm = in;  // a shape and a dtype, no data
  xm.data = nullptr;
  xm.cols = xm.stride = f.shape.k;
  Owned saved = make_saved(*e, f.plan, in.rows, flags);
  Workspace workspace(*e, octavo_extent_bytes(&extent, static_cast<uint64_t>(in.rows)));
  f.take(&xm, &ym, bias ? &bias_m : nullptr, saved, workspace.data());
  octavo_fused_forward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_FUSED_FORWARD_CALL;
  call.forward = &f.call;
  call.prologue = &prologue;
  check(e->fused->linear_forward(e->session, &call), "linear_forward (octavo.fused/1)", *e,
        OCTAVO_OWNER_LINEAR, linear);
  f.ran(*e);
  stack.give(0, std::move(y));
  stack.give(1, std::move(saved));
  stack.give(2, std::move(mean));
  stack.give(3, std::move(rstd));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def(
      "fused_forward(int run, int linear, int flags, int op, float eps, int version, Tensor x, "
      "Tensor? gamma, Tensor? beta, Tensor? weight, Tensor? bias) -> (Tensor y, Tensor saved, "
      "Tensor mean, Tensor rstd)");
}

STABLE_TORCH_LIBRARY_IMPL(octavo, CPU, m) {
  m.impl("fused_forward", fused_forward);
}

}  // namespace octavo::ops

/* prologue and prologue_quantize. */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/prologue.cuh"
#include "kernels/cuda/device/states.cuh"
#include "kernels/cuda/quantize_launch.cuh"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

AnyTensor any_or_none(const octavo_tensor *t) {
  return t == nullptr ? AnyTensor{nullptr, 0, 0, 0, OCTAVO_F32} : any_tensor(*t);
}

uint64_t norm_bytes(int64_t rows) {
  return static_cast<uint64_t>(divide_up(rows, 64) * 64) * sizeof(RowNorm);
}

NormRule rule_of(const octavo_prologue &p) {
  return {p.op == OCTAVO_PROLOGUE_LAYER_NORM, p.eps};
}

dim3 norm_blocks(const octavo_prologue &p) {
  return dim3(static_cast<unsigned>(divide_up(p.in->rows, kNormRows)));
}

/* Mean and rstd of all rows, where the operation has them. */
void launch_norms(Launcher &l, const octavo_prologue &p, RowNorm *norms) {
  if (!is_norm(p.op) || p.in->rows == 0) return;
  l.run(norm_blocks(p), dim3(kThreads), row_norms_kernel, any_tensor(*p.in), rule_of(p),
        NormTargets{norms, p.mean, p.rstd});
}

template <typename Result>
PrologueSource<Result> source_of(const octavo_prologue &p, int64_t rows, int64_t cols,
                                 const RowNorm *norms) {
  return {any_tensor(*p.in), any_or_none(p.gamma), any_or_none(p.beta), norms, p.op, rows, cols};
}

template <typename Result>
void launch_plain(Launcher &l, const octavo_prologue &p, const octavo_tensor &out,
                  const RowNorm *norms) {
  const int64_t count = out.rows * out.cols;
  if (count == 0) return;
  l.run(dim3(blocks_for(l.context(), divide_up(count, kThreads))), dim3(kThreads),
        prologue_kernel<Result>, source_of<Result>(p, out.rows, out.cols, norms), any_tensor(out));
}

/* Without a workspace. */
template <typename Result>
void launch_alone(Launcher &l, const octavo_prologue &p, const octavo_tensor &out) {
  if (!is_norm(p.op)) return launch_plain<Result>(l, p, out, nullptr);
  if (out.rows == 0) return;
  l.run(norm_blocks(p), dim3(kThreads), norm_kernel<Result>,
        source_of<Result>(p, out.rows, out.cols, nullptr), rule_of(p),
        NormTargets{nullptr, p.mean, p.rstd}, any_tensor(out));
}

}  // namespace

/* Before a quantize: the rows' means, then the parts of quantize's first launch, then, for states
 * in blocks, the values. */
uint64_t prologue_workspace(const void *, const octavo_prologue_call &c) {
  if (c.quantize == nullptr) return 0;
  const octavo_tensor &shape = *c.quantize->in;
  uint64_t bytes = norm_bytes(shape.rows) + quantize_workspace();
  if (is_state_scaled(*c.quantize))
    bytes += static_cast<uint64_t>(shape.rows * shape.cols * dtype_bytes(shape.dtype));
  return bytes;
}

octavo_status prologue(void *ctx, const octavo_prologue_call *c) {
  return run_verb<check_prologue>(ctx, "prologue", c, [&](Launcher &l) {
    with_plain(c->out->dtype,
               [&](auto format) { launch_alone<decltype(format)>(l, *c->prologue, *c->out); });
  });
}

octavo_status prologue_quantize(void *ctx, const octavo_prologue_call *c) {
  return run_verb<check_prologue_quantize>(ctx, "prologue_quantize", c, [&](Launcher &l) {
    const octavo_prologue &p = *c->prologue;
    octavo_quantize q = *c->quantize;
    auto *norms = static_cast<RowNorm *>(c->workspace);
    char *rest = static_cast<char *>(c->workspace) + norm_bytes(q.in->rows);
    launch_norms(l, p, norms);
    if (is_state_scaled(q)) {
      const octavo_tensor values = dense_at(*q.in, rest + quantize_workspace());
      with_plain(values.dtype,
                 [&](auto format) { launch_plain<decltype(format)>(l, p, values, norms); });
      q.in = &values;
      if (l.status() == OCTAVO_OK) l.fail(quantize(ctx, &q));
      return;
    }
    q.workspace = rest;
    with_plain(q.in->dtype, [&](auto format) {
      using Result = decltype(format);
      launch_quantize(l, q, source_of<Result>(p, q.in->rows, q.in->cols, norms));
    });
  });
}

}  // namespace octavo::cuda

/* What prologue and prologue_quantize refuse. */
#include "kernels/check/verbs.h"

#include "kernels/check/calls.h"

namespace octavo {
namespace {

/* gamma or beta. */
void check_weights(Check *check, const octavo_tensor *t, const char *name, int64_t cols) {
  check->tensor(t, name, Dtypes::kPlain);
  if (!check->ok() || (t->rows == 1 && t->cols == cols)) return;
  check->fail(OCTAVO_INVALID, "%s has shape [%lld, %lld]; expected [1, %lld]", name,
              static_cast<long long>(t->rows), static_cast<long long>(t->cols),
              static_cast<long long>(cols));
}

/* A field that this op has no use for. */
void check_absent(Check *check, const void *pointer, const char *name, uint32_t op) {
  if (pointer == nullptr) return;
  check->fail(OCTAVO_INVALID,
              "%s is not null; expected null with prologue.op = %u, which has no "
              "such argument",
              name, op);
}

/* Refuses a malformed prologue; `out` is the checked tensor of its result and `out_name` the field
 * that it comes from. */
void check_operation(Check *check, const octavo_prologue *p, const octavo_tensor *out,
                     const char *out_name) {
  if (!check->ok()) return;
  if (p == nullptr || p->size < Minor0<octavo_prologue>::kSize) {
    return check->fail(OCTAVO_INVALID, "prologue %s %u bytes; expected at least %u",
                       p == nullptr ? "is null:" : "has", p == nullptr ? 0u : p->size,
                       Minor0<octavo_prologue>::kSize);
  }
  if (p->op < OCTAVO_PROLOGUE_LAYER_NORM || p->op > OCTAVO_PROLOGUE_SWIGLU) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "prologue.op = %u; expected 1 (layer norm), 2 (rms norm), 3 (gelu), 4 (gelu "
                       "tanh) or 5 (swiglu)",
                       p->op);
  }
  check->tensor(p->in, "prologue.in", Dtypes::kPlain);
  if (!check->ok()) return;
  const int64_t width = p->op == OCTAVO_PROLOGUE_SWIGLU ? 2 : 1;
  if (p->in->rows != out->rows || p->in->cols % width != 0 || p->in->cols / width != out->cols) {
    return check->fail(OCTAVO_INVALID,
                       "prologue.in has shape [%lld, %lld] with %s [%lld, %lld]; expected [M, "
                       "%sK] with [M, K]",
                       static_cast<long long>(p->in->rows), static_cast<long long>(p->in->cols),
                       out_name, static_cast<long long>(out->rows),
                       static_cast<long long>(out->cols), width == 2 ? "2" : "");
  }
  if (p->op != OCTAVO_PROLOGUE_LAYER_NORM) {
    check_absent(check, p->beta, "prologue.beta", p->op);
    check_absent(check, p->mean, "prologue.mean", p->op);
  }
  if (!is_norm(p->op)) {
    check_absent(check, p->gamma, "prologue.gamma", p->op);
    return check_absent(check, p->rstd, "prologue.rstd", p->op);
  }
  check_weights(check, p->gamma, "prologue.gamma", out->cols);
  if (p->beta != nullptr) check_weights(check, p->beta, "prologue.beta", out->cols);
  check->accumulators({{p->mean, "prologue.mean"}, {p->rstd, "prologue.rstd"}});
  if (p->in->cols == 0) {
    check->fail(OCTAVO_INVALID,
                "prologue.in has no columns; expected at least 1, since a norm "
                "divides by their number");
  }
  check->number(is_0_or_above(p->eps), "prologue.eps", p->eps, "a finite number of at least 0");
}

/* The struct of the second half, and its in, which has no data. */
void check_shape(Check *check, const octavo_quantize *q) {
  if (q == nullptr || q->size < Minor0<octavo_quantize>::kSize) {
    return check->fail(OCTAVO_INVALID, "quantize %s %u bytes; expected at least %u",
                       q == nullptr ? "is null:" : "has", q == nullptr ? 0u : q->size,
                       Minor0<octavo_quantize>::kSize);
  }
  check->not_null(q->in, "quantize.in");
  if (!check->ok()) return;
  alignas(float) char anywhere[sizeof(float)];
  const octavo_tensor shape = dense_at(*q->in, anywhere);
  check->tensor(&shape, "quantize.in", Dtypes::kPlain);
  check->reserved(q->in->reserved, "quantize.in");
}

}  // namespace

octavo_status check_prologue(const Caller &caller, const octavo_prologue_call *c) {
  Check check(caller, "prologue");
  if (!check.call(c)) return check.status();
  check.tensor(c->out, "out", Dtypes::kPlain);
  check_operation(&check, c->prologue, c->out, "out");
  return check.status();
}

octavo_status check_prologue_quantize(const Caller &caller, const octavo_prologue_call *c,
                                      const DeviceLimits &limits) {
  Check check(caller, "prologue_quantize");
  if (!check.call(c)) return check.status();
  check_shape(&check, c->quantize);
  if (!check.ok()) return check.status();
  const uint64_t bytes = limits.prologue_workspace(limits.device, *c);
  alignas(float) char anywhere[sizeof(float)];
  /* Values that never reach memory have no address to refuse. */
  const bool is_unused = bytes == 0 && c->workspace == nullptr;
  const octavo_tensor values = dense_at(*c->quantize->in, is_unused ? anywhere : c->workspace);
  check_operation(&check, c->prologue, &values, "quantize.in");
  if (bytes > 0 && c->workspace == nullptr) {
    check.fail(OCTAVO_INVALID,
               "workspace is null; expected the bytes that workspace_bytes states for this call");
  }
  check.tensor(&values, "workspace", Dtypes::kPlain);
  if (!check.ok()) return check.status();
  octavo_quantize q;
  OCTAVO_TAKE(q, c->quantize);
  q.in = &values;
  return check_quantize(caller, &q, limits);
}

octavo_status check_prologue_workspace(const Caller &caller, const octavo_prologue_call *c,
                                       const DeviceLimits &limits, uint64_t *bytes) {
  Check check(caller, "workspace_bytes of prologue");
  if (!check.call(c)) return check.status();
  *bytes = 0;
  if (c->quantize == nullptr) return OCTAVO_OK; /* prologue needs none */
  check_shape(&check, c->quantize);
  if (check.ok()) *bytes = limits.prologue_workspace(limits.device, *c);
  return check.status();
}

}  // namespace octavo

// Memory and calls of a forward behind a prologue.
//
// The kernels' own prologue is called on the wrapped table, past the backend: it is what the
// backend's apply has to equal.
#include "fused.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "fenced_call.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kInBound = 4;
constexpr double kGammaBound = 2;
constexpr double kBetaBound = 1;
constexpr float kEps = 1e-5F;

bool is_norm(uint32_t op) {
  return op == OCTAVO_PROLOGUE_LAYER_NORM || op == OCTAVO_PROLOGUE_RMS_NORM;
}

const char *op_name(uint32_t op) {
  switch (op) {
    case OCTAVO_PROLOGUE_LAYER_NORM: return "layer norm";
    case OCTAVO_PROLOGUE_RMS_NORM: return "rms norm";
    case OCTAVO_PROLOGUE_GELU: return "gelu";
    case OCTAVO_PROLOGUE_GELU_TANH: return "gelu tanh";
    default: return "swiglu";
  }
}

}  // namespace

FusedBatch::FusedBatch(Host &host, uint32_t id, const FusedSpec &spec,
                       const octavo_extent &workspace, uint64_t seed)
    : linear(id),
      host_(host),
      spec_(spec),
      batch_(host.add_batch({id, spec.rows, seed, spec.x_dtype, spec.y_dtype, spec.gap})),
      workspace_bytes_(extent_bytes(workspace, spec.rows)),
      apart_bytes_(extent_bytes(host.session().linears()[id].plan.forward_workspace, spec.rows)) {
  name_ = text(batch_.name, " behind ", op_name(spec.op), " of ", dtype_name(spec.in_dtype));
  const int64_t k = batch_.x.cols();
  const auto matrix = [&](const char *what, int64_t rows, int64_t cols, uint32_t dtype,
                          int64_t gap) {
    return make_matrix(host.arena(), text(what, " of ", name_), rows, cols, dtype, gap);
  };
  const int64_t width = spec.op == OCTAVO_PROLOGUE_SWIGLU ? 2 * k : k;
  in_ = matrix("in", spec.rows, width, spec.in_dtype, spec.gap);
  gamma_ = matrix("gamma", 1, k, spec.in_dtype, 0);
  beta_ = matrix("beta", 1, k, spec.in_dtype, 0);
  mean_ = matrix("mean", spec.rows, 1, OCTAVO_F32, 0);
  rstd_ = matrix("rstd", spec.rows, 1, OCTAVO_F32, 0);
  fill(in_, mix(seed, 11), kInBound);
  fill(gamma_, mix(seed, 12), kGammaBound);
  fill(beta_, mix(seed, 13), kBetaBound);
  if (spec.has_nan) in_.set(spec.rows / 2, 0, std::numeric_limits<double>::quiet_NaN());
  workspace_ = host.arena().allocate(workspace_bytes_, Use::kWorkspace,
                                     text("the workspace of the fused forward of ", name_));
  prologue.size = sizeof prologue;
  prologue.kind = OCTAVO_KIND_PROLOGUE;
  prologue.op = spec.op;
  prologue.in = &in_.tensor;
  if (!is_norm(spec.op)) return;
  prologue.eps = kEps;
  prologue.gamma = &gamma_.tensor;
  if (!spec.complete) return;
  prologue.rstd = reinterpret_cast<float *>(rstd_.tensor.data);
  if (spec.op != OCTAVO_PROLOGUE_LAYER_NORM) return;
  prologue.beta = &beta_.tensor;
  prologue.mean = reinterpret_cast<float *>(mean_.tensor.data);
}

std::vector<void *> FusedBatch::slots() const {
  std::vector<void *> pointers;
  for (const Entry &e :
       host_.entries(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, batch_.spec.linear)) {
    const bool absent = e.access == OCTAVO_ACCESS_NONE ||
                        (e.access == OCTAVO_ACCESS_ACCUMULATE && !spec_.call.record);
    pointers.push_back(absent ? nullptr : e.address);
  }
  if (pointers.empty()) pointers.push_back(nullptr);
  return pointers;
}

octavo_forward_call FusedBatch::call_on(const octavo_tensor &x, void *const *slots,
                                        void *workspace) {
  auto c = octavo::make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  c.stream = kStream;
  c.linear = linear;
  c.flags = spec_.call.evaluates ? uint32_t{OCTAVO_FORWARD_EVALUATION} : 0u;
  c.x = &x;
  c.y = &batch_.y.tensor;
  c.bias = spec_.complete ? &batch_.bias.tensor : nullptr;
  c.slots = slots;
  c.saved = spec_.call.save ? batch_.saved : nullptr;
  c.workspace = workspace;
  return c;
}

octavo_status FusedBatch::forward() {
  const Session &s = host_.session();
  octavo_tensor x = batch_.x.tensor;
  x.data = nullptr;
  x.stride = 1;  // not read
  const auto list = slots();
  const octavo_forward_call forward = call_on(x, list.data(), workspace_);
  auto c = octavo::make<octavo_fused_forward_call>(OCTAVO_KIND_FUSED_FORWARD_CALL);
  c.forward = &forward;
  c.prologue = &prologue;
  const OnStream on;
  return s.context().target.fused->linear_forward(s.handle(), &c);
}

void FusedBatch::prologue_apart() {
  const octavo_session_desc desc = host_.session().kernels().desc();
  auto c = octavo::make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  c.prologue = &prologue;
  c.out = &batch_.x.tensor;
  host_.run(OCTAVO_VERB_FORWARD, text("prologue of the kernels for ", name_),
            [&] { return desc.kernels->prologue(desc.kernels_ctx, &c); });
}

void FusedBatch::forward_apart() {
  const Session &s = host_.session();
  const auto list = slots();
  const octavo_forward_call c = call_on(batch_.x.tensor, list.data(), batch_.forward_workspace);
  host_.run(OCTAVO_VERB_FORWARD, text("linear_forward of ", name_), [&] {
    const OnStream on;
    return s.backend().linear_forward(s.handle(), &c);
  });
}

void FusedBatch::run(const std::string &verb, octavo_status (FusedBatch::*call)(), bool fenced) {
  run_fenced(host_, OCTAVO_VERB_FORWARD, text(verb, " of ", name_), fenced,
             [&] { return (this->*call)(); });
}

FusedBatch::Range FusedBatch::range(const void *memory, uint64_t bytes) const {
  if (memory == nullptr) return {0, 0};
  const uint64_t begin = host_.arena().offset(memory);
  return {begin, begin + bytes};
}

// All that a successful forward overwrites.
std::vector<FusedBatch::Range> FusedBatch::outputs() const {
  std::vector<Range> ranges;
  const Matrix &y = batch_.y;
  const uint64_t width = static_cast<uint64_t>(y.cols()) * element_bytes(y.tensor.dtype);
  for (int64_t row = 0; row < y.rows(); ++row) ranges.push_back(range(y.element(row, 0), width));
  const auto rows = static_cast<uint64_t>(spec_.rows);
  ranges.push_back(range(prologue.mean, rows * sizeof(float)));
  ranges.push_back(range(prologue.rstd, rows * sizeof(float)));
  if (spec_.call.save) {
    const Linear &l = host_.session().linears()[batch_.spec.linear];
    ranges.push_back(range(batch_.saved, extent_bytes(l.plan.saved, spec_.rows)));
  }
  return ranges;
}

void FusedBatch::scribble(uint8_t pattern) {
  std::memset(workspace_, pattern, workspace_bytes_);
  for (const Range &r : outputs()) {
    std::memset(host_.arena().base() + r.begin, pattern, r.end - r.begin);
  }
}

void FusedBatch::expect_same(const Snapshot &expected, const std::string &what,
                             bool outputs_too) const {
  std::vector<Range> ignored = {range(workspace_, workspace_bytes_)};
  if (outputs_too) {
    for (const Range &r : outputs()) ignored.push_back(r);
    for (const Entry &e :
         host_.entries(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, batch_.spec.linear)) {
      if (e.access == OCTAVO_ACCESS_ACCUMULATE) ignored.push_back(range(e.address, e.bytes));
    }
  }
  ignored.push_back({expected.size(), expected.size()});
  std::sort(ignored.begin(), ignored.end(),
            [](const Range &a, const Range &b) { return a.begin < b.begin; });
  const Arena &arena = host_.arena();
  uint64_t at = 0;
  for (const Range &r : ignored) {
    if (r.begin > at && std::memcmp(&expected[at], arena.base() + at, r.begin - at) != 0) {
      while (expected[at] == arena.base()[at]) ++at;
      throw Failure(text(what, " of ", name_, ": ", arena.describe(at), " should be ",
                         unsigned{expected[at]}, " but is ", unsigned{arena.base()[at]}));
    }
    at = std::max(at, r.end);
  }
}

void FusedBatch::forget_apart(const Snapshot &start, Snapshot *s) const {
  const Matrix &x = batch_.x;
  const auto elements =
      x.rows() == 0 ? 0 : static_cast<uint64_t>((x.rows() - 1) * x.tensor.stride + x.cols());
  for (const Range &r : {range(x.tensor.data, elements * element_bytes(x.tensor.dtype)),
                         range(batch_.forward_workspace, apart_bytes_)}) {
    std::copy(start.begin() + static_cast<int64_t>(r.begin),
              start.begin() + static_cast<int64_t>(r.end),
              s->begin() + static_cast<int64_t>(r.begin));
  }
}

}  // namespace octavo::conformance

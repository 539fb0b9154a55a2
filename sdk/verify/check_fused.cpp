// fused: a forward through octavo.fused/1 leaves the bytes of a prologue and then linear_forward.
//
// Whatever the fused forward may not touch is compared, too: the whole arena, apart from the bytes
// of its workspace. What it must overwrite holds other bytes than before the unfused forward. The
// kernels' own prologue is called on the wrapped table, past the backend: it is what the backend's
// apply has to equal.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "all_checks.h"
#include "fenced_call.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

struct FusedSpec {
  uint32_t op = OCTAVO_PROLOGUE_LAYER_NORM;
  int64_t rows = 0;
  uint32_t in_dtype = OCTAVO_F32;
  uint32_t x_dtype = OCTAVO_F32;
  uint32_t y_dtype = OCTAVO_F32;
  int64_t gap = 0;       // elements between the rows of in and y
  bool complete = true;  // false: null for bias, beta, mean and rstd
  bool has_nan = false;
  Call call{};  // record, save, evaluates
};

class FusedBatch {
 public:
  // `workspace` is what octavo_fused.workspace stated for this linear.
  FusedBatch(Host &host, uint32_t linear, const FusedSpec &spec, const octavo_extent &workspace,
             uint64_t seed);
  FusedBatch(const FusedBatch &) = delete;
  FusedBatch &operator=(const FusedBatch &) = delete;

  // The raw verbs of octavo.fused/1. A check may change `prologue` and `linear` before.
  octavo_status forward();
  // The same by the table of kernels and linear_forward; each must succeed.
  void prologue_apart();
  void forward_apart();

  // Runs a verb of above that must succeed. Behind the fence it fails when host code of the backend
  // touches memory.
  void run(const std::string &verb, octavo_status (FusedBatch::*call)(), bool fenced);
  // Fills all that a forward overwrites, and the workspace of the fused one, with a byte.
  void scribble(uint8_t pattern);
  // Fails at the first byte that differs, apart from the workspace of the fused forward and, with
  // `outputs`, all that a refused call leaves undefined.
  void expect_same(const Snapshot &expected, const std::string &what, bool outputs = false) const;
  // In `s`: x and the workspace of linear_forward as they are in `start`.
  void forget_apart(const Snapshot &start, Snapshot *s) const;

  const std::string &name() const { return name_; }
  octavo_prologue prologue{};
  uint32_t linear;

 private:
  struct Range {
    uint64_t begin, end;  // offsets in the arena
  };
  Range range(const void *memory, uint64_t bytes) const;
  std::vector<Range> outputs() const;
  octavo_forward_call call_on(const octavo_tensor &x, void *const *slots, void *workspace);
  std::vector<void *> slots() const;

  Host &host_;
  const FusedSpec spec_;
  Batch &batch_;
  Matrix in_, gamma_, beta_;
  Matrix mean_, rstd_;  // [M, 1]
  uint8_t *workspace_;
  uint64_t workspace_bytes_;
  uint64_t apart_bytes_;  // of linear_forward's own workspace
  std::string name_;
};

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

constexpr uint32_t kOps[] = {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_RMS_NORM,
                             OCTAVO_PROLOGUE_GELU, OCTAVO_PROLOGUE_GELU_TANH,
                             OCTAVO_PROLOGUE_SWIGLU};
constexpr uint32_t kNoOps[] = {0, OCTAVO_PROLOGUE_SWIGLU + 1, 0x80000001};
// More rows than kernels may hold between the prologue and the cast, and no multiple of a block.
constexpr int64_t kManyRows = 900;
constexpr uint32_t kLinearOfManyRows = 1;

std::vector<FusedSpec> specs_of(const Session &s, uint32_t linear) {
  const uint32_t narrow = s.taken(linear, linear % 2 == 0 ? OCTAVO_BF16 : OCTAVO_F16);
  std::vector<FusedSpec> specs;
  for (const uint32_t op : kOps) {
    specs.push_back({.op = op, .rows = 7 + linear, .gap = 3});
    specs.push_back(
        {.op = op, .rows = 16, .in_dtype = narrow, .x_dtype = narrow, .y_dtype = narrow});
  }
  // x in another dtype than what lies before and behind it: the rounding in between counts.
  specs.push_back({.op = OCTAVO_PROLOGUE_GELU, .rows = 33, .x_dtype = narrow});
  specs.push_back({.op = OCTAVO_PROLOGUE_RMS_NORM, .rows = 1, .in_dtype = narrow});
  specs.push_back({.op = OCTAVO_PROLOGUE_LAYER_NORM, .rows = 9, .complete = false});
  specs.push_back({.op = OCTAVO_PROLOGUE_GELU_TANH, .rows = 9, .has_nan = true});
  for (const uint32_t op : {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_SWIGLU}) {
    specs.push_back({.op = op, .rows = 0});
    FusedSpec spec{.op = op, .rows = 10};
    spec.call.record = false;
    specs.push_back(spec);
    spec.call.save = false;
    specs.push_back(spec);
    spec.call.evaluates = true;
    specs.push_back(spec);
  }
  if (linear != kLinearOfManyRows) return specs;
  specs.push_back({.op = OCTAVO_PROLOGUE_SWIGLU, .rows = kManyRows});
  specs.push_back({.op = OCTAVO_PROLOGUE_LAYER_NORM, .rows = kManyRows, .x_dtype = narrow});
  return specs;
}

// Bytes that are in no answer by chance.
constexpr octavo_extent kUntouched = {0x1111, 0x2222, 0x3333};

bool is_untouched(const octavo_extent &e) {
  return e.row_multiple == kUntouched.row_multiple && e.bytes_per_row == kUntouched.bytes_per_row &&
         e.fixed_bytes == kUntouched.fixed_bytes;
}

// What octavo_fused.workspace says of a linear; nothing when it cannot be fused.
std::optional<octavo_extent> workspace_of(Session &s, uint32_t linear) {
  const octavo_fused &fused = *s.context().target.fused;
  const Linear &l = s.linears()[linear];
  const bool needs_x = (l.plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0;
  const octavo_status wanted = needs_x ? OCTAVO_UNSUPPORTED : OCTAVO_OK;
  octavo_extent extent = kUntouched, again = kUntouched;
  s.take_reports();
  const octavo_status status = fused.workspace(s.handle(), linear, &extent);
  const uint32_t reports = s.take_reports();
  expect(reports == 0, "octavo.fused/1 workspace of '", l.name, "' answered ", status_name(status),
         " and sent ", reports, " diagnostics; expected none: it answers a question");
  expect(status == wanted, "octavo.fused/1 workspace of '", l.name, "' answered ",
         status_name(status), "; its plan ", needs_x ? "has" : "does not have",
         " OCTAVO_LINEAR_NEEDS_X, so ", status_name(wanted), " was expected");
  expect(fused.workspace(s.handle(), linear, &again) == wanted &&
             again.row_multiple == extent.row_multiple &&
             again.bytes_per_row == extent.bytes_per_row && again.fixed_bytes == extent.fixed_bytes,
         "octavo.fused/1 workspace of '", l.name, "' gave two answers to one question");
  if (needs_x) {
    expect(is_untouched(extent), "octavo.fused/1 workspace of '", l.name,
           "' wrote an extent, though it answered OCTAVO_UNSUPPORTED");
    return std::nullopt;
  }
  expect_extent(text("octavo.fused/1 workspace of '", l.name, "'"), extent);
  return extent;
}

void check_unknown_linear(Session &s) {
  octavo_extent extent = kUntouched;
  const auto unknown = static_cast<uint32_t>(s.linears().size());
  s.take_reports();
  const octavo_status status = s.context().target.fused->workspace(s.handle(), unknown, &extent);
  s.expect_reported(status, text("octavo.fused/1 workspace of the unknown linear ", unknown));
  expect(status == OCTAVO_INVALID && is_untouched(extent),
         "octavo.fused/1 workspace of the unknown linear ", unknown, " answered ",
         status_name(status), is_untouched(extent) ? "" : " and wrote an extent",
         "; expected OCTAVO_INVALID and no trace");
}

void check_forward(Host &host, FusedBatch &batch) {
  Arena &arena = host.arena();
  const Snapshot start = arena.snapshot();
  batch.scribble(0x5A);
  batch.prologue_apart();
  batch.forward_apart();
  Snapshot expected = arena.snapshot();
  batch.forget_apart(start, &expected);
  for (const uint8_t pattern : {uint8_t{0xA5}, uint8_t{0x00}}) {
    arena.restore(start);
    batch.scribble(pattern);
    batch.run("fused linear_forward", &FusedBatch::forward, pattern == 0);
    batch.expect_same(expected,
                      "fused linear_forward, against prologue of the kernels and linear_forward,");
  }
}

// A call on memory as in start that must be refused with one of two statuses, and may leave no
// trace but in what a failed call leaves undefined.
void check_refused(Host &host, const Snapshot &start, FusedBatch &batch, const std::string &fault,
                   octavo_status wanted, octavo_status or_else) {
  const octavo_status status = batch.forward();
  const std::string what = "fused linear_forward with " + fault;
  expect(status == wanted || status == or_else, what, " of ", batch.name(), " answered ",
         status_name(status), "; expected ", status_name(wanted),
         wanted == or_else ? "" : " or " + status_name(or_else));
  batch.expect_same(start, what, true);
  host.arena().restore(start);
}

void check_refusals_of(Host &host, FusedBatch &batch) {
  const octavo_prologue right = batch.prologue;
  const Snapshot start = host.arena().snapshot();
  const auto refused = [&](const std::string &fault, octavo_status or_else) {
    check_refused(host, start, batch, fault, OCTAVO_INVALID, or_else);
    batch.prologue = right;
  };
  for (const uint32_t op : kNoOps) {
    batch.prologue.op = op;
    refused(text("the unknown op ", op), OCTAVO_UNSUPPORTED);
  }
  octavo_tensor in = *right.in;
  batch.prologue.in = &in;
  --in.rows;
  refused("a row of in missing", OCTAVO_INVALID);
  in = *right.in;
  batch.prologue.in = &in;
  --in.cols;
  refused("a column of in missing", OCTAVO_INVALID);
  octavo_tensor gamma = *right.gamma;
  batch.prologue.gamma = &gamma;
  --gamma.cols;
  refused("a column of gamma missing", OCTAVO_INVALID);
  for (const float eps : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    batch.prologue.eps = eps;
    refused(text("eps = ", eps), OCTAVO_INVALID);
  }
  batch.linear = static_cast<uint32_t>(host.session().linears().size());
  check_refused(host, start, batch, "an unknown linear", OCTAVO_INVALID, OCTAVO_INVALID);
}

void check_linear(Host &host, uint32_t linear) {
  Session &s = host.session();
  const auto extent = workspace_of(s, linear);
  const uint64_t seed = mix(s.context().seed, 700 + linear);
  if (!extent) {
    octavo_extent ample = s.linears()[linear].plan.forward_workspace;
    ample.fixed_bytes += 1 << 16;
    FusedBatch batch(host, linear, {.op = OCTAVO_PROLOGUE_RMS_NORM, .rows = 5}, ample, seed);
    return check_refused(host, host.arena().snapshot(), batch, "a linear that needs x in backward",
                         OCTAVO_UNSUPPORTED, OCTAVO_UNSUPPORTED);
  }
  uint64_t i = 0;
  for (const FusedSpec &spec : specs_of(s, linear)) {
    FusedBatch batch(host, linear, spec, *extent, mix(seed, i++));
    check_forward(host, batch);
  }
  FusedBatch batch(host, linear, {.op = OCTAVO_PROLOGUE_LAYER_NORM, .rows = 6}, *extent, seed);
  check_refusals_of(host, batch);
}

}  // namespace

void check_fused(const Context &context) {
  if (context.target.fused == nullptr) throw Skip(text("the backend has no ", OCTAVO_FUSED_ID));
  Session s(context);
  s.add(standard_model());
  s.seal();
  if (!s.kernels().executes(OCTAVO_KIND_PROLOGUE_CALL, OCTAVO_F32)) {
    octavo_extent extent = kUntouched;
    expect(context.target.fused->workspace(s.handle(), 0, &extent) == OCTAVO_UNSUPPORTED,
           "octavo.fused/1 workspace answered another status than OCTAVO_UNSUPPORTED on kernels "
           "that decline prologues");
    throw Skip("the kernels decline prologues");
  }
  check_unknown_linear(s);
  for (uint32_t linear = 0; linear < s.linears().size(); ++linear) {
    Host host(s, context.seed);
    host.add_batch({linear, 16, mix(context.seed, 600 + linear)});
    host.train_step();
    host.quantize_weights();
    check_linear(host, linear);
  }
}

}  // namespace octavo::conformance

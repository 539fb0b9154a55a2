// fused: a forward through octavo.fused/1 leaves the bytes of a prologue and then linear_forward.
//
// Whatever the fused forward may not touch is compared, too: the whole arena, apart from the bytes
// of its workspace. What it must overwrite holds other bytes than before the unfused forward.
#include <cmath>
#include <limits>

#include "all_checks.h"
#include "fused.h"
#include "report.h"

namespace octavo::conformance {
namespace {

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

// nonfinite: Inf and NaN in x, w and dy, and the step after them.
//
// A saturating cast erases an infinity, so it must be reported in the nonfinite slot, whatever was
// cast, or stay visible in the result of the product. NaN is never erased. It stays alone,
// but codes of four bits have no NaN: there its scale is NaN, which 16 elements share in the
// direction of a product or, of a weight, in both.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "all_checks.h"
#include "host.h"
#include "octavo/draft/fp4.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Elements for which `touched` holds are NaN, all others are not, except where `may_be` holds.
template <typename Touched>
void expect_nan(const Matrix &m, const std::string &what, const Touched &touched,
                const std::function<bool(int64_t, int64_t)> &may_be = nullptr) {
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) {
      const bool wanted = touched(row, col);
      if (!wanted && may_be && may_be(row, col)) continue;
      expect(std::isnan(m.at(row, col)) == wanted, what, " [", row, ", ", col, "] should ",
             wanted ? "be NaN" : "be a number", " but is ", m.at(row, col));
    }
  }
}

template <typename Untouched>
void expect_finite(const Matrix &m, const std::string &what, const Untouched &untouched) {
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) {
      expect(!untouched(row, col) || std::isfinite(m.at(row, col)), what, " [", row, ", ", col,
             "] should be finite but is ", m.at(row, col));
    }
  }
}

// A step up to, but without, optimizer_step: what a host has when it looks at the nonfinite slot.
Snapshot run_step(Host &host) {
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
  return host.arena().snapshot();
}

bool is_history(const Region &region) {
  return region.role == OCTAVO_ROLE_AMAX_HISTORY || region.role == OCTAVO_ROLE_COUNTER;
}

enum class Struck { kX, kW, kDy };

// The matrix of the first batch that is struck, and how it comes to its slots.
Matrix &matrix_of(Host &host, Struck operand) {
  Batch &batch = host.batches().front();
  if (operand == Struck::kX) return batch.x;
  if (operand == Struck::kDy) return batch.dy;
  return host.weight(host.session().linears()[batch.spec.linear].weight);
}
void set_element(Host &host, Struck operand, double value) {
  matrix_of(host, operand).set(1, 0, value);
  if (operand == Struck::kW)
    host.write_weight(host.session().linears()[host.batches().front().spec.linear].weight);
}

// Kernels restart the counter of an Inf, so a backend may warm up again. Both runs go on with the
// counters of the run without it: all other state has to be the same.
void take_counters(Host &struck, Host &spared) {
  Snapshot state = struck.arena().snapshot();
  const Snapshot other = spared.arena().snapshot();
  for (const Region &region : struck.arena().regions()) {
    if (region.role != OCTAVO_ROLE_COUNTER) continue;
    const auto begin = other.begin() + static_cast<std::ptrdiff_t>(region.begin);
    std::copy_n(begin, region.bytes, state.begin() + static_cast<std::ptrdiff_t>(region.begin));
  }
  struck.arena().restore(state);
}

void check_recovery(const Context &context, Struck operand, double bad) {
  Standard struck(context), spared(context);
  Host &host = struck.host, &clean = spared.host;
  const uint32_t linear = host.batches().front().spec.linear;
  // A backend's own form of a weight may hold no Inf.
  const uint32_t weight = struck.session.linears()[linear].weight;
  if (operand == Struck::kW && !struck.session.is_native(weight, OCTAVO_ROLE_WEIGHT)) return;
  const char *const name = operand == Struck::kX ? "x" : operand == Struck::kW ? "w" : "dy";
  for (Host *h : {&host, &clean}) {
    set_element(*h, operand, 0x1p-6);  // far below amax, which therefore stays the same
    // The bad step repeats this one but for one element, so only that element can tell the two
    // runs apart; the weights stay as they are until then.
    run_step(*h);
    h->end_step();
    h->clear_gradients();
  }
  const Batch &batch = host.batches().front();
  set_element(host, operand, bad);
  run_step(host);
  const float *nonfinite = host.nonfinite();
  if (nonfinite == nullptr || (operand != Struck::kDy && *nonfinite == 0)) {
    const std::vector<double> result = values_of(operand == Struck::kDy ? batch.dx : batch.y);
    expect(has_nonfinite(result), "no nonfinite slot is 1 after ", bad, " in ", name,
           ", and no result shows it either: nobody can notice it");
    if (operand != Struck::kDy) return;  // the loss shows it
  } else {
    expect(*nonfinite == 1, "the nonfinite slot should be 1 after ", bad, " in ", name, " but is ",
           *nonfinite);
    host.optimizer_step();
  }
  host.end_step();
  host.clear_gradients();
  set_element(host, operand, 0x1p-6);
  if (nonfinite != nullptr) {
    expect(*nonfinite == 0, "the nonfinite slot should be 0 after end_step but is ", *nonfinite);
  }
  take_counters(host, clean);
  const Snapshot found = run_step(host);
  const Snapshot expected = run_step(clean);
  for (const Batch &one : host.batches()) {
    expect(!has_nonfinite(values_of(one.y)) && !has_nonfinite(values_of(one.dx)), "y or dx of ",
           one.name, " is not finite in the step after ", bad, " in ", name);
  }
  expect_equal(
      host.arena(), expected, found,
      text("the step after ", bad, " in ", name, ", against a run in which it never happened"),
      is_history);
}

// Wherever an Inf is, and whatever outputs a call asks for, it is reported, or a result shows it.
void check_everywhere(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  if (const auto row = s.find_linear("row")) host.add_batch({*row, 200, context.seed});
  host.train_step();
  host.quantize_weights();
  float *const flag = host.nonfinite();
  Call all, without_dx, only_dx, only_db;
  all.flags = without_dx.flags = OCTAVO_BACKWARD_OVERWRITE;
  without_dx.want_dx = without_dx.want_db = false;
  only_dx.flags = OCTAVO_BACKWARD_SKIP_WEIGHT;
  only_dx.want_db = only_db.want_dx = false;
  only_db.flags = OCTAVO_BACKWARD_SKIP_WEIGHT | OCTAVO_BACKWARD_OVERWRITE;
  const std::pair<const char *, Call> calls[] = {
      {"dx, dw and db", all}, {"dw only", without_dx}, {"dx only", only_dx}, {"db only", only_db}};
  for (Batch &batch : host.batches()) {
    const uint32_t weight = s.linears()[batch.spec.linear].weight;
    // Whether the flag was raised by `verb` after an Inf there.
    const auto raises = [&](Matrix &m, int64_t row, int64_t col, const auto &verb) {
      const double old = m.at(row, col);
      m.set(row, col, kInf);
      if (flag != nullptr) *flag = 0;
      verb();
      m.set(row, col, old);
      return flag != nullptr && *flag > 0;
    };
    const auto at_each = [&](const Matrix &m, const auto &body) {
      const int64_t rows = m.rows(), cols = m.cols(), step = rows > 100 ? 33 : 1;
      for (int64_t row = 0; row < rows; row += step) body(row, (7 * row) % cols);
      for (int64_t col = 0; col < cols; ++col) body(rows - 1, col);
    };
    at_each(batch.x, [&](int64_t row, int64_t col) {
      const bool raised = raises(batch.x, row, col, [&] { host.forward(batch); });
      expect(raised || has_nonfinite(values_of(batch.y)), "no nonfinite slot is 1 after Inf in x [",
             row, ", ", col, "] of ", batch.name, ", and y does not show it either");
    });
    Call unsaved;
    unsaved.save = false;
    const bool is_x_flagged = raises(batch.x, 0, 0, [&] { host.forward(batch); });
    expect(raises(batch.x, 0, 0, [&] { host.forward(batch, unsaved); }) == is_x_flagged,
           "the nonfinite slot after Inf in x [0, 0] of ", batch.name,
           " depends on whether `saved` is null");
    host.forward(batch);
    at_each(batch.dy, [&](int64_t row, int64_t col) {
      for (const auto &one : calls) {
        const auto &outputs = one.first;
        const auto &call = one.second;
        // Without any output there is nothing to spoil.
        if (!call.want_dx && !call.want_db &&
            s.linears()[batch.spec.linear].plan.gradient == OCTAVO_GRADIENT_NONE)
          continue;
        const bool raised = raises(batch.dy, row, col, [&] { host.backward(batch, call); });
        if (raised) continue;
        // db is a sum of what dy is: no cast is needed for it, and the slot is of casts.
        const bool casts = call.want_dx || (call.flags & OCTAVO_BACKWARD_SKIP_WEIGHT) == 0;
        const bool shown = has_nonfinite(!casts         ? values_of(batch.db)
                                         : call.want_dx ? values_of(batch.dx)
                                                        : host.gradient(weight));
        expect(shown, "no nonfinite slot is 1 after Inf in dy [", row, ", ", col, "] of ",
               batch.name, ", in a backward of ", outputs, ", and no result shows it either");
      }
    });
  }
}

}  // namespace

void check_nan(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  for (Batch &batch : host.batches()) {
    const Linear &linear = s.linears()[batch.spec.linear];
    const std::string &name = batch.name;
    const Snapshot start = host.arena().snapshot();
    const int64_t row = batch.x.rows() / 2;
    const int64_t k = batch.x.cols() / 2;
    const int64_t n = batch.y.cols() / 2;
    const bool has_dw = linear.plan.gradient != OCTAVO_GRADIENT_NONE;
    Matrix &dw = host.dw(linear.weight);
    const auto run_all = [&] {
      Call overwrite;
      overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
      host.quantize_weight(linear.weight);
      host.forward(batch);
      host.backward(batch, overwrite);
      host.gradient(linear.weight);
    };
    const auto nothing = [](int64_t, int64_t) { return false; };
    const auto shares = [&](int64_t one, int64_t other) {
      const uint64_t formats = s.kernels().quantized(OCTAVO_VERB_QUANTIZE_WEIGHT) |
                               s.kernels().quantized(OCTAVO_VERB_FORWARD);
      return (formats & dtype_bit(OCTAVO_E2M1)) != 0 && one / 16 == other / 16;
    };
    batch.x.set(row, k, kNan);
    run_all();
    expect_nan(batch.y, text("with NaN in x, y of ", name),
               [&](int64_t i, int64_t) { return i == row; });
    expect_nan(batch.dx, text("with NaN in x, dx of ", name), nothing);
    if (has_dw) {
      expect_nan(
          dw, text("with NaN in x, dw of ", name), [&](int64_t, int64_t j) { return j == k; },
          [&](int64_t, int64_t j) { return shares(j, k); });
    }
    host.arena().restore(start);
    batch.dy.set(row, n, kNan);
    run_all();
    expect_nan(batch.y, text("with NaN in dy, y of ", name), nothing);
    expect_nan(batch.dx, text("with NaN in dy, dx of ", name),
               [&](int64_t i, int64_t) { return i == row; });
    if (has_dw) {
      expect_nan(dw, text("with NaN in dy, dw of ", name),
                 [&](int64_t i, int64_t) { return i == n; });
    }
    host.arena().restore(start);
    host.weight(linear.weight).set(n, k, kNan);
    host.write_weight(linear.weight);
    run_all();
    expect_nan(
        batch.y, text("with NaN in w, y of ", name), [&](int64_t, int64_t j) { return j == n; },
        [&](int64_t, int64_t j) { return shares(j, n); });
    expect_nan(
        batch.dx, text("with NaN in w, dx of ", name), [&](int64_t, int64_t j) { return j == k; },
        [&](int64_t, int64_t j) { return shares(j, k); });
    host.arena().restore(start);
    // Inf in x and w saturates: results that it does not touch stay numbers.
    batch.x.set(row, k, kInf);
    run_all();
    expect_finite(batch.y, text("with Inf in x, y of ", name),
                  [&](int64_t i, int64_t) { return i != row; });
    host.arena().restore(start);
    host.weight(linear.weight).set(n, k, kInf);
    host.write_weight(linear.weight);
    run_all();
    expect_finite(batch.y, text("with Inf in w, y of ", name),
                  [&](int64_t, int64_t j) { return j != n; });
    expect_finite(batch.dx, text("with Inf in w, dx of ", name),
                  [&](int64_t, int64_t j) { return j != k; });
    host.arena().restore(start);
  }
}

void check_nonfinite(const Context &context) {
  for (const Struck operand : {Struck::kX, Struck::kW, Struck::kDy})
    for (const double bad : {kInf, -kInf, kNan}) check_recovery(context, operand, bad);
  check_everywhere(context);
}

}  // namespace octavo::conformance

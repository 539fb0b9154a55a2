// scales: casts record in slots of the right role, and the scales that they are given follow from
// it.
//
// Kernels in between note what each cast and each update gets. When the same data was cast in two
// steps, scale * amax is at most the largest value of the format, and at least its 2^-5 part: one
// for a rule of powers of two, the rest for a margin and for a history of larger steps. An amax
// enters the history of its slot once a step, as the newest row, which is the last one.
#include <cmath>
#include <cstring>
#include <map>

#include "all_checks.h"
#include "between.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kSmallestPart = 0x1p-5;
constexpr double kRounding = 0x1p-20;  // of a scale and of the product

bool is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

double amax_of(const octavo_tensor &t) {
  const Matrix m{t};
  double amax = 0;
  for (int64_t row = 0; row < m.rows(); ++row)
    for (int64_t col = 0; col < m.cols(); ++col) amax = std::max(amax, std::fabs(m.at(row, col)));
  return amax;
}

// What casts and updates get.
class CastWatch : public KernelsBetween<CastWatch> {
 public:
  struct Given {
    double amax;  // of everything that was cast with this scale
    double largest;
  };
  struct Update {
    const float *amax, *history;
  };

  explicit CastWatch(const Context &context) : KernelsBetween(context) {
    table_.quantize = quantize;
    table_.quantize_stats = quantize_stats;
    table_.delayed_scale_update = delayed_scale_update;
  }
  void look_at(Host *host) { host_ = host; }
  void forget() {
    given.clear();
    updates.clear();
  }
  void finish() const { expect(violation_.empty(), violation_); }

  std::map<const float *, Given> given;  // by the address of the scale
  std::vector<Update> updates;

 private:
  // Memory that is no slot, or has a role that the contract leaves open, is the backend's choice.
  void note(const char *kernel, const char *field, const void *address, uint32_t role) {
    if (address == nullptr || host_ == nullptr || !violation_.empty()) return;
    const auto at = static_cast<const uint8_t *>(address);
    if (at < host_->arena().base() || at >= host_->arena().base() + host_->arena().size()) return;
    const uint64_t offset = host_->arena().offset(address);
    for (const Region &r : host_->arena().regions()) {
      if (offset < r.begin || offset >= r.begin + r.bytes) continue;
      if ((r.use != Use::kSlot && r.use != Use::kSum) || r.role == OCTAVO_ROLE_OTHER) return;
      if (r.role != role)
        violation_ = text(kernel, " got ", host_->arena().describe(offset), ", as ", field,
                          ": its role is ", r.role, "; expected ", role);
    }
  }
  static octavo_status quantize(void *ctx, const octavo_quantize *c) {
    CastWatch &w = *watching_;
    w.note("quantize", "amax", c->amax, OCTAVO_ROLE_AMAX);
    w.note("quantize", "nonfinite", c->nonfinite, OCTAVO_ROLE_NONFINITE);
    w.note("quantize", "scale", c->scale, OCTAVO_ROLE_SCALE);
    const bool is_given =
        c->rule == OCTAVO_RULE_GIVEN || (c->counter != nullptr && *c->counter >= c->window);
    if (is_given && c->scale != nullptr && c->in_scale_inv == nullptr && is_plain(c->in->dtype)) {
      const uint32_t dtype = c->out != nullptr ? c->out->dtype : c->out_t->dtype;
      Given &g = w.given[c->scale];
      g.amax = std::max(g.amax, amax_of(*c->in));
      g.largest = dtype == OCTAVO_E5M2 ? 57344 : dtype == OCTAVO_E4M3FN ? 448 : 0;
    }
    return w.real().quantize(ctx, c);
  }
  static octavo_status quantize_stats(void *ctx, const octavo_quantize_stats *c) {
    CastWatch &w = *watching_;
    w.note("quantize_stats", "saturated", c->saturated, OCTAVO_ROLE_SATURATED);
    w.note("quantize_stats", "underflow", c->underflow, OCTAVO_ROLE_UNDERFLOW);
    w.note("quantize_stats", "signal", c->signal, OCTAVO_ROLE_SIGNAL);
    w.note("quantize_stats", "noise", c->noise, OCTAVO_ROLE_NOISE);
    return w.real().quantize_stats(ctx, c);
  }
  static octavo_status delayed_scale_update(void *ctx, const octavo_delayed_scale_update *c) {
    CastWatch &w = *watching_;
    w.note("delayed_scale_update", "amax", c->amax, OCTAVO_ROLE_AMAX);
    w.note("delayed_scale_update", "history", c->history, OCTAVO_ROLE_AMAX_HISTORY);
    w.note("delayed_scale_update", "scale", c->scale, OCTAVO_ROLE_SCALE);
    w.note("delayed_scale_update", "counter", c->counter, OCTAVO_ROLE_COUNTER);
    w.updates.push_back({c->amax, c->history});
    return w.real().delayed_scale_update(ctx, c);
  }

  Host *host_ = nullptr;
  std::string violation_;
};

void run_pass(Host &host) {
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
}

void check_fit(Host &host, const CastWatch &watch) {
  for (const auto &[scale, g] : watch.given) {
    if (g.amax <= 0 || g.largest <= 0) continue;
    const double product = g.amax * static_cast<double>(*scale);
    expect(product <= g.largest * (1 + kRounding) && product >= g.largest * kSmallestPart,
           "the scale in ", host.arena().describe(host.arena().offset(scale)), " is ", *scale,
           ": times the amax ", g.amax, " of what it casts, for the third step alike, it is ",
           product, "; expected from ", g.largest * kSmallestPart, " to ", g.largest,
           ", the largest value of the format");
  }
}

// The amax of each column at the last end_step, by slot of the history.
using Newest = std::map<uint32_t, std::vector<float>>;

void check_history(Host &host, CastWatch &watch, Newest &newest) {
  const Session &s = host.session();
  Arena &arena = host.arena();
  const Snapshot before = arena.snapshot();
  watch.forget();
  host.end_step();
  for (const CastWatch::Update &u : watch.updates) {
    const auto is_history = [&](const Slot &slot) {
      return host.address(slot.desc.id) == reinterpret_cast<const uint8_t *>(u.history);
    };
    const auto slot = std::find_if(s.slots().begin(), s.slots().end(), is_history);
    if (slot == s.slots().end() || slot->desc.rows < 2) continue;
    const int64_t rows = slot->desc.rows, cols = slot->desc.cols;
    std::vector<float> &last = newest[slot->desc.id];
    const std::vector<float> earlier = last;
    last.assign(static_cast<size_t>(cols), 0);
    for (int64_t col = 0; col < cols; ++col) {
      const auto i = static_cast<size_t>(col);
      std::memcpy(&last[i], before.data() + arena.offset(u.amax + col), sizeof(float));
      if (!(last[i] > 0) || !std::isfinite(last[i])) continue;
      const auto at = [&](int64_t row) { return static_cast<double>(u.history[row * cols + col]); };
      const auto expect_row = [&](int64_t row, float amax, const char *of) {
        const double wanted = static_cast<double>(amax);
        expect(!(at(row) < wanted) && !(at(row) > wanted), host.slot_name(slot->desc.id), " [", row,
               ", ", col, "] is ", at(row), " after end_step; expected ", wanted, ", the amax of ",
               of, " step: each enters once");
      };
      expect_row(rows - 1, last[i], "this");
      if (rows > 2 && !earlier.empty() && earlier[i] > 0)
        expect_row(rows - 2, earlier[i], "the previous");
    }
  }
}

}  // namespace

void check_scales(const Context &context) {
  CastWatch watch(context);
  Standard standard(watch.context());
  Session &s = standard.session;
  Host &host = standard.host;
  const auto old = static_cast<uint32_t>(s.linears().size());
  s.add(late_model());
  s.seal();
  host.extend();
  for (uint32_t id = old; id < s.linears().size(); ++id)
    host.add_batch({id, 12, mix(context.seed, 800 + id)});
  watch.look_at(&host);
  for (int step = 0; step < 2; ++step) {
    run_pass(host);
    host.end_step();
    host.clear_gradients();
  }
  watch.forget();
  run_pass(host);
  watch.finish();
  check_fit(host, watch);
  const bool any = !watch.given.empty();
  Newest newest;
  for (uint64_t step = 0; step < 3; ++step) {
    check_history(host, watch, newest);
    host.clear_gradients();
    for (Batch &batch : host.batches()) {
      fill(batch.x, mix(batch.spec.seed, 40 + step), 1);
      fill(batch.dy, mix(batch.spec.seed, 50 + step), 0.125);
    }
    run_pass(host);
  }
  watch.finish();
  if (!any && newest.empty()) throw Skip("no cast takes its scale from a slot");
}

}  // namespace octavo::conformance

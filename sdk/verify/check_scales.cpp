// scales: casts record in slots of the right role, and the scales that they are given follow from
// it.
//
// Kernels in between note what each cast and each update gets. When the same data was cast in two
// steps, scale * amax is at most the largest value of the format, and at least its 2^-5 part: one
// for a rule of powers of two, the rest for a margin and for a history of larger steps. Where
// delayed_scale_update was seen to write the scale, its rule and its margin give the part. A scale
// that no verb writes is static, and may be any. An amax
// enters the history of its slot once a step, as the newest row, which is the last one. A kernel
// that reads codes gets the scale_inv that their cast wrote, to the bit.
#include <cmath>
#include <cstring>
#include <map>

#include "all_checks.h"
#include "between.h"
#include "host.h"
#include "page_lock.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kSmallestPart = 0x1p-5;
constexpr double kRounding = 0x1p-20;  // of a scale and of the product

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
  // The scale_inv that a cast gave with its codes, whose bytes tell whether they are still these.
  struct Written {
    octavo_tensor codes;
    octavo_scale scale;
    std::vector<uint8_t> bytes, scales;
  };
  struct Update {
    const float *amax, *history;
  };

  explicit CastWatch(const Context &context)
      : KernelsBetween(context), host_device_(context.target.desc.device) {
    table_.quantize = quantize;
    table_.quantize_stats = quantize_stats;
    table_.delayed_scale_update = delayed_scale_update;
    table_.gemm = gemm;
    table_.dequantize = dequantize;
  }
  void look_at(Host *host) { host_ = host; }
  void forget() {
    given.clear();
    updates.clear();
    casts_.clear();
  }
  void finish() const { expect(violation_.empty(), violation_); }

  std::map<const float *, Given> given;  // by the address of the scale
  std::vector<Update> updates;
  bool any_scale_inv = false;
  std::map<const float *, double> least;  // part of the largest value, of scales by a known rule

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
    const octavo_status status = w.real().quantize(ctx, c);
    // Codes that are only moved keep the scale_inv that they have.
    const bool moves = !is_plain(c->in->dtype) && c->in_scale_inv == nullptr;
    const octavo_scale *of_t =
        c->out_t_scale_inv != nullptr ? c->out_t_scale_inv : c->out_scale_inv;
    w.remember(c->out, moves ? nullptr : c->out_scale_inv);
    w.remember(c->out_t, moves ? nullptr : of_t);
    return status;
  }
  // All bytes of a tensor or of scales with one or a few rows of f32.
  static std::vector<uint8_t> bytes_at(const void *data, int64_t rows, int64_t stride,
                                       uint64_t width) {
    std::vector<uint8_t> all;
    for (int64_t row = 0; row < rows; ++row) {
      const auto *begin = static_cast<const uint8_t *>(data) + row * stride;
      all.insert(all.end(), begin, begin + width);
    }
    return all;
  }
  static std::vector<uint8_t> codes_of(const octavo_tensor &t) {
    const uint64_t width = static_cast<uint64_t>(t.cols) * element_bytes(t.dtype);
    return bytes_at(t.data, t.rows, t.stride * static_cast<int64_t>(element_bytes(t.dtype)), width);
  }
  static std::vector<uint8_t> scales_of(const octavo_scale &s, int64_t rows) {
    const bool is_one = s.granularity == OCTAVO_PER_TENSOR;
    return bytes_at(s.data, is_one ? 1 : rows, s.stride * 4, 4);
  }
  void remember(const octavo_tensor *codes, const octavo_scale *scale) {
    if (codes == nullptr) return;
    casts_.erase(codes->data);
    if (scale == nullptr || codes->rows == 0 || scale->dtype != OCTAVO_F32 ||
        (scale->granularity != OCTAVO_PER_TENSOR && scale->granularity != OCTAVO_PER_ROW))
      return;
    if (wait_for(host_device_) != 0) return;
    any_scale_inv = true;
    casts_[codes->data] = {*codes, *scale, codes_of(*codes), scales_of(*scale, codes->rows)};
  }
  void belongs(const char *kernel, const octavo_tensor &codes, const octavo_scale *scale) {
    const auto cast = casts_.find(codes.data);
    if (scale == nullptr || cast == casts_.end() || !violation_.empty()) return;
    const Written &w = cast->second;
    if (w.codes.dtype != codes.dtype || w.codes.rows != codes.rows || w.codes.cols != codes.cols ||
        w.scale.granularity != scale->granularity || codes_of(codes) != w.bytes)
      return;  // other codes by now, which another kernel wrote
    const std::vector<uint8_t> now = scales_of(*scale, codes.rows);
    if (now == w.scales) return;
    float found = 0, wanted = 0;
    const auto differ = std::mismatch(now.begin(), now.end(), w.scales.begin());
    const auto at = (differ.first - now.begin()) / 4 * 4;
    std::memcpy(&found, now.data() + at, sizeof found);
    std::memcpy(&wanted, w.scales.data() + at, sizeof wanted);
    violation_ = text(kernel, " got codes with a scale_inv of ", static_cast<double>(found), " at ",
                      place_of(scale->data), "; expected ", static_cast<double>(wanted),
                      ", to the bit, which their cast wrote with them");
  }
  std::string place_of(const void *p) const {
    if (host_ == nullptr) return "an address";
    Arena &arena = host_->arena();
    const auto at = static_cast<const uint8_t *>(p);
    const bool inside = at >= arena.base() && at < arena.base() + arena.size();
    return inside ? arena.describe(arena.offset(p)) : "an address outside of the host's memory";
  }
  static octavo_status gemm(void *ctx, const octavo_gemm *c) {
    watching_->belongs("gemm", *c->a, c->a_scale_inv);
    if ((c->layout & OCTAVO_GEMM_B_PACKED) == 0) watching_->belongs("gemm", *c->b, c->b_scale_inv);
    return watching_->real().gemm(ctx, c);
  }
  static octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
    watching_->belongs("dequantize", *c->in, c->scale_inv);
    return watching_->real().dequantize(ctx, c);
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
    // A rule of powers of two takes up to one more than the margin.
    const bool is_quotient = c->rule == OCTAVO_RULE_QUOTIENT || c->rule == OCTAVO_RULE_RECIPROCAL;
    for (uint64_t i = 0; i < c->n; ++i)
      w.least[c->scale + i] = std::ldexp(1 - kRounding, -c->margin - (is_quotient ? 0 : 1));
    return w.real().delayed_scale_update(ctx, c);
  }

  Host *host_ = nullptr;
  octavo_device host_device_{};
  std::map<const void *, Written> casts_;  // by the address of the codes
  std::string violation_;
};

void run_pass(Host &host) {
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
}

// A scale that no verb writes follows from nothing.
bool is_static(const Host &host, const float *scale) {
  const auto *at = reinterpret_cast<const uint8_t *>(scale);
  for (const Slot &slot : host.session().slots()) {
    const octavo_slot &d = slot.desc;
    const auto bytes = OCTAVO_DTYPE_BYTES(d.dtype, d.rows * d.cols);
    if (at < host.address(d.id) || at >= host.address(d.id) + bytes) continue;
    return std::none_of(d.access, d.access + OCTAVO_VERB_LIMIT,
                        [](uint8_t access) { return access > OCTAVO_ACCESS_READ; });
  }
  return false;
}

void check_fit(Host &host, const CastWatch &watch) {
  for (const auto &[scale, g] : watch.given) {
    if (g.amax <= 0 || g.largest <= 0 || is_static(host, scale)) continue;
    const double product = g.amax * static_cast<double>(*scale);
    const auto known = watch.least.find(scale);
    const double part = known == watch.least.end() ? kSmallestPart : known->second;
    expect(product <= g.largest * (1 + kRounding) && product >= g.largest * part, "the scale in ",
           host.arena().describe(host.arena().offset(scale)), " is ", *scale, ": times the amax ",
           g.amax, " of what it casts, for the third step alike, it is ", product,
           "; expected from ", g.largest * part, " to ", g.largest,
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
    const auto pool = std::find_if(s.slots().begin(), s.slots().end(), [&](const Slot &amax) {
      return host.address(amax.desc.id) == reinterpret_cast<const uint8_t *>(u.amax);
    });
    expect(
        pool == s.slots().end() || pool->labels == slot->labels, host.slot_name(slot->desc.id),
        " has other labels than the pool whose amax enters it: a rank that adds an object copies "
        "columns by their labels");
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

// A step of values that are not 0 leaves no amax and no sum of squares of 0, of trained layers.
void check_recorded(const Host &host, const Batch &batch) {
  const Session &s = host.session();
  const Linear &linear = s.linears()[batch.spec.linear];
  if ((s.parameters()[linear.weight].spec.flags & OCTAVO_PARAMETER_FROZEN) != 0) return;
  const auto recorded = [&](uint32_t verb, uint32_t owner_kind, uint32_t owner) {
    for (const Entry &e : host.entries(verb, owner_kind, owner)) {
      const uint32_t role = s.slots()[e.slot].desc.role;
      if (e.access != OCTAVO_ACCESS_ACCUMULATE ||
          (role != OCTAVO_ROLE_AMAX && role != OCTAVO_ROLE_SIGNAL))
        continue;
      expect(decode(OCTAVO_F32, e.address) > 0, host.slot_name(e.slot), ", as ", batch.name,
             " has it, is 0 after a step; expected what its cast recorded");
    }
  };
  recorded(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, linear.weight);
  recorded(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, batch.spec.linear);
  recorded(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, batch.spec.linear);
}

// Scales follow data that grows after a long training. Hundreds of steps fill every history.
void check_growth(const Context &context) {
  CastWatch watch(context);
  Session s(watch.context());
  s.add({{{"few", 3, 16}}, {{"few", "few"}}});
  s.seal();
  Host host(s, context.seed);
  Batch &batch = host.add_batch({0, 4, context.seed});
  watch.look_at(&host);
  const bool is_cpu = context.target.desc.device.type == OCTAVO_DEVICE_CPU;
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      run_pass(host);
      host.end_step();
      host.clear_gradients();
    }
  };
  train(is_cpu ? 300 : 80);
  for (Matrix *m : {&batch.x, &batch.dy})
    for (int64_t row = 0; row < m->rows(); ++row)
      for (int64_t col = 0; col < m->cols(); ++col) m->set(row, col, 16 * m->at(row, col));
  train(2);
  watch.forget();
  run_pass(host);
  watch.finish();
  check_fit(host, watch);
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
  for (const Batch &batch : host.batches()) check_recorded(host, batch);
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
  check_growth(context);
  if (!any && newest.empty() && !watch.any_scale_inv)
    throw Skip("no cast takes its scale from a slot, or gives one for a tensor or rows");
}

}  // namespace octavo::conformance

// contract.options: a missing option is its default, an unknown one is refused, and what a linear
// takes for itself is what a session with that option computes.
//
// Values come from list_options: every choice, both bounds, and what lies next to the session's.
#include <algorithm>
#include <cstring>
#include <deque>

#include "all_checks.h"
#include "emitted.h"
#include "host.h"
#include "in_flight.h"
#include "report.h"

namespace octavo::conformance {
namespace {

using Values = std::vector<octavo_option_value>;

// The options that the backend lists, with texts of their own.
class Listed {
 public:
  explicit Listed(const octavo_backend &backend) {
    const octavo_option_sink sink = {sizeof sink, OCTAVO_KIND_OPTION_SINK, this, take};
    calling("list_options");
    const octavo_status status = backend.list_options(&sink);
    expect(status == OCTAVO_OK, "list_options answered ", status_name(status));
  }
  struct Option {
    octavo_option_value initial;
    octavo_value low, high;
    std::vector<octavo_value> choices;
  };
  const std::deque<Option> &options() const { return options_; }
  // Values other than `now`.
  static std::vector<octavo_value> others(const Option &o, const octavo_value &now) {
    if (now.type == OCTAVO_VALUE_TEXT) {
      std::vector<octavo_value> others = o.choices;
      std::erase_if(others,
                    [&](const octavo_value &v) { return text_of(v.text) == text_of(now.text); });
      return others;
    }
    std::vector<octavo_value> others;
    const auto add = [&](int64_t integer, double real) {
      octavo_value v = now;
      v.integer = integer;
      v.real = real;
      const bool is_low = o.low.type == 0 || (integer >= o.low.integer && real >= o.low.real);
      const bool is_high = o.high.type == 0 || (integer <= o.high.integer && real <= o.high.real);
      if (is_low && is_high && (integer != now.integer || real < now.real || real > now.real))
        others.push_back(v);
    };
    if (now.type == OCTAVO_VALUE_BOOL) add(1 - now.integer, 0);
    if (now.type == OCTAVO_VALUE_INT) add(now.integer + 1, 0), add(now.integer - 1, 0);
    if (now.type == OCTAVO_VALUE_REAL) add(0, now.real / 2), add(0, now.real * 2);
    if (o.low.type != 0) add(o.low.integer, o.low.real);
    if (o.high.type != 0) add(o.high.integer, o.high.real);
    return others;
  }
  octavo_str keep(const std::string &s) { return str_of(texts_.emplace_back(s)); }

 private:
  static octavo_status take(void *ctx, const octavo_option *o) {
    auto &self = *static_cast<Listed *>(ctx);
    Option &own = self.options_.emplace_back();
    own.initial = {self.keep(text_of(o->name)), self.copy(o->initial)};
    own.low = self.copy(o->low);
    own.high = self.copy(o->high);
    for (uint64_t i = 0; o->choices != nullptr && i < o->choice_count; ++i) {
      octavo_value choice = own.initial.value;
      choice.text = self.keep(text_of(o->choices[i]));
      own.choices.push_back(choice);
    }
    return OCTAVO_OK;
  }
  octavo_value copy(octavo_value v) {
    if (v.type == OCTAVO_VALUE_TEXT) v.text = keep(text_of(v.text));
    return v;
  }

  std::deque<Option> options_;
  std::deque<std::string> texts_;
};

// The context of sessions with other options.
class With {
 public:
  With(const Context &context, Values values)
      : values_(std::move(values)), outer_(context), target_(context.target) {
    target_.desc.options = values_.data();
    target_.desc.option_count = values_.size();
  }
  With(const With &) = delete;
  With &operator=(const With &) = delete;
  Context context() const { return {target_, outer_.seed, outer_.alignment}; }
  bool is_declined() const { return !declined_reason(context()).empty(); }

 private:
  Values values_;
  Context outer_;
  Target target_;
};

Values given(const Context &context) {
  const octavo_session_desc &desc = context.target.desc;
  return {desc.options, desc.options + desc.option_count};
}
octavo_option_value *find(Values &values, octavo_str name) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto &v) { return text_of(v.name) == text_of(name); });
  return found == values.end() ? nullptr : &*found;
}

void check_missing(const Context &context, const Listed &listed) {
  const auto compare = [&](const Values &without, const Values &with, const std::string &what) {
    const With one(context, without), other(context, with);
    const bool declined = one.is_declined();
    expect(declined == other.is_declined(), "check_session accepts ",
           declined ? "the default of " : "no ", what, ", and not ",
           declined ? "its absence" : "its default");
    if (declined) return;
    Session a(one.context()), b(other.context());
    for (Session *s : {&a, &b}) s->add(standard_model(), true), s->seal();
    expect(emitted(a) == emitted(b), "without ", what, " seal emits something else than with the ",
           "default: ", first_difference(emitted(b), emitted(a)));
  };
  Values defaults;
  for (const Listed::Option &o : listed.options()) {
    defaults.push_back(o.initial);
    Values without = given(context), with = without;
    octavo_option_value *const found = find(with, o.initial.name);
    if (found == nullptr) continue;
    without.erase(without.begin() + (found - with.data()));
    found->value = o.initial.value;
    compare(without, with, text("option '", text_of(o.initial.name), "'"));
  }
  compare({}, defaults, "any option");
}

// Names that begin as one that is listed.
void check_unknown_names(const Context &context, Listed &listed) {
  Session s(context);
  s.add(standard_model());
  for (size_t i = 0; i < listed.options().size(); ++i) {
    const octavo_option_value known = listed.options()[i].initial;
    const std::string name = text_of(known.name);
    for (const std::string &unknown : {name + "_", name.substr(0, name.size() - 1)}) {
      octavo_option_value value{listed.keep(unknown), known.value};
      Values values = given(context);
      if (unknown.empty() || find(values, value.name) != nullptr) continue;
      values.push_back(value);
      const With with(context, values);
      HostWatch host(context.target.desc.host);
      octavo_session_desc desc = with.context().target.desc;
      desc.host = host.table();
      octavo_session *opened = nullptr;
      calling("open_session");
      const octavo_status status = context.target.backend->open_session(&desc, &opened);
      if (opened != nullptr) context.target.backend->close_session(opened);
      expect(status == OCTAVO_INVALID, "open_session with the unknown option '", unknown,
             "' answered ", status_name(status), "; expected OCTAVO_INVALID");
      expect(host.take(status) > 0, "open_session with the unknown option '", unknown,
             "' answered ", status_name(status), ", and the session's host got no diagnostic");
      octavo_linear_desc l{};
      l.name = OCTAVO_STR("with_an_option");
      l.options = &value;
      l.option_count = 1;
      octavo_verdict verdict;
      uint32_t id = 0;
      const octavo_status added = s.add_linear(l, &verdict, &id);
      expect(added == OCTAVO_OK && verdict.decision == OCTAVO_DECLINE, "add_linear with the ",
             "unknown option '", unknown, "' answered ", status_name(added), ", decision ",
             verdict.decision, "; expected OCTAVO_OK and a decline");
    }
  }
}

// Two linears, the second perhaps with options of its own.
class Pair {
 public:
  Pair(const Context &context, const Values &own) : session_(context) {
    session_.add({{{"first", 17, 33}, {"second", 24, 40}}, {{"first", "first"}}}, true);
    octavo_linear_desc l{};
    l.name = OCTAVO_STR("second");
    l.weight = 1;
    octavo_verdict verdict;
    uint32_t id = 0;
    if (session_.parameters().size() < 2 || session_.linears().size() != 1) return;
    if (!own.empty()) {
      l.options = own.data();
      l.option_count = own.size();
      is_own_ =
          session_.add_linear(l, &verdict, &id) == OCTAVO_OK && verdict.decision != OCTAVO_DECLINE;
    }
    l.options = nullptr;
    l.option_count = 0;
    if (!is_own_) session_.add_linear(l, &verdict, &id);
    is_whole_ = session_.linears().size() == 2;
    session_.seal();
  }
  bool is_whole() const { return is_whole_; }  // both linears are there
  bool is_own() const { return is_own_; }      // the second with its own options
  const Session &session() const { return session_; }

  // What the linear's plan and slots are, and what four steps leave.
  std::vector<std::string> results(uint32_t linear) {
    if (!host_) train();
    const Linear &l = session_.linears()[linear];
    std::string slots, bytes;
    for (const octavo_slot_use &use : session_.uses(OCTAVO_OWNER_LINEAR, linear)) {
      const octavo_slot &d = session_.slots()[use.slot].desc;
      slots += text(" role ", d.role, " access ", int{d.access[OCTAVO_VERB_FORWARD]}, "/",
                    int{d.access[OCTAVO_VERB_BACKWARD]});
    }
    for (const Entry &e : host_->entries(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear))
      bytes.append(reinterpret_cast<const char *>(e.address), e.bytes);
    const Batch &b = host_->batches()[linear];
    const auto values = [](const std::vector<double> &all) {
      return std::string(reinterpret_cast<const char *>(all.data()), all.size() * sizeof(double));
    };
    return {text("flags ", l.plan.flags, " gradient ", l.plan.gradient),
            slots,
            bytes,
            values(values_of(b.y)),
            values(values_of(b.dx)),
            values(values_of(b.db)),
            values(host_->gradient(l.weight)),
            values(values_of(host_->weight(l.weight)))};
  }

 private:
  void train() {
    host_.emplace(session_, session_.context().seed);
    for (uint32_t id = 0; id < 2; ++id)
      host_->add_batch({id, 6, mix(session_.context().seed, 970 + id)});
    for (int step = 0; step < 3; ++step) host_->train_step();
    host_->quantize_weights();
    for (Batch &batch : host_->batches()) host_->forward(batch), host_->backward(batch);
  }

  Session session_;
  std::optional<Host> host_;
  bool is_whole_ = false, is_own_ = false;
};

const char *const kParts[] = {"plan", "slots", "the bytes in slots",    "y", "dx",
                              "db",   "dw",    "the weight after steps"};

void expect_alike(Pair &found, Pair &expected, uint32_t linear, const std::string &what) {
  const auto a = found.results(linear), b = expected.results(linear);
  for (size_t i = 0; i < a.size(); ++i)
    expect(a[i] == b[i], kParts[i], " of linear '", linear == 0 ? "first" : "second", "' ", what);
}

void check_own(const Context &context, const Listed &listed) {
  Pair plain(context, {});
  if (!plain.is_whole()) return;
  Values all_low, all_high;
  for (const Listed::Option &o : listed.options()) {
    Values session = given(context);
    octavo_option_value *const now = find(session, o.initial.name);
    if (now == nullptr) continue;
    const auto others = Listed::others(o, now->value);
    for (const octavo_value &value : others) {
      const octavo_option_value own{o.initial.name, value};
      Pair pair(context, {own});
      const std::string what = text("option '", text_of(o.initial.name), "' = ",
                                    value.type == OCTAVO_VALUE_TEXT   ? text_of(value.text)
                                    : value.type == OCTAVO_VALUE_REAL ? text(value.real)
                                                                      : text(value.integer));
      if (!pair.is_own()) {
        expect(emitted(pair.session()) == emitted(plain.session()), "a linear that was declined ",
               "for its ", what, " left a trace: ",
               first_difference(emitted(plain.session()), emitted(pair.session())));
        continue;
      }
      now->value = value;
      const With with(context, session);
      if (with.is_declined()) continue;
      Pair whole(with.context(), {});
      if (!whole.is_whole()) continue;
      expect_alike(pair, plain, 0, text("changes where another linear has its own ", what));
      expect_alike(pair, whole, 1,
                   text("with its own ", what, " differs from a session with this option"));
    }
    if (others.empty()) continue;
    all_low.push_back({o.initial.name, others.front()});
    all_high.push_back({o.initial.name, others.back()});
  }
  for (const Values &own : {all_low, all_high}) {
    Pair pair(context, own);
    if (own.empty() || pair.is_own()) continue;
    for (const uint32_t linear : {0U, 1U})
      expect_alike(pair, plain, linear, "changes where a linear with other options was declined");
  }
}

}  // namespace

void check_own_options(const Context &context) {
  Listed listed(*context.target.backend);
  check_missing(context, listed);
  check_unknown_names(context, listed);
  check_own(context, listed);
}

}  // namespace octavo::conformance

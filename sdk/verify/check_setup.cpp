// contract.refusals and contract.decline: setup calls that fail, and what they may leave behind.
//
// "No trace" means: a session with refused calls in between emits, slot by slot and use by use,
// what a session without them emits.
#include "all_checks.h"
#include "emitted.h"
#include "in_flight.h"
#include "matrix.h"
#include "report.h"
#include "session.h"

namespace octavo::conformance {

std::string emitted(const Session &s) {
  std::string all;
  for (const Slot &slot : s.slots()) {
    const octavo_slot &d = slot.desc;
    all += text("slot ", d.id, " '", slot.name, "' owner ", d.owner_kind, ".", d.owner, " role ",
                d.role, " dtype ", d.dtype, " flags ", d.flags, " [", d.rows, ", ", d.cols, "]");
    for (const std::string &label : slot.labels) all += " " + label;
    all += "\n";
  }
  const auto add_uses = [&](uint32_t kind, uint32_t owner) {
    for (const octavo_slot_use &u : s.uses(kind, owner)) {
      all += text("use ", kind, ".", owner, " of ", u.slot, " (", u.first, ", ", u.count, ")\n");
    }
  };
  add_uses(OCTAVO_OWNER_SESSION, 0);
  for (uint32_t id = 0; id < s.parameters().size(); ++id) add_uses(OCTAVO_OWNER_PARAMETER, id);
  for (uint32_t id = 0; id < s.linears().size(); ++id) add_uses(OCTAVO_OWNER_LINEAR, id);
  return all;
}

std::string first_difference(const std::string &a, const std::string &b) {
  std::istringstream lines_a(a), lines_b(b);
  std::string x, y;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(lines_a, x));
    const bool more_b = static_cast<bool>(std::getline(lines_b, y));
    if (!more_a) x = "nothing more";
    if (!more_b) y = "nothing more";
    if (x != y || (!more_a && !more_b)) return text("expected '", x, "', found '", y, "'");
  }
}

namespace {

octavo_parameter_desc parameter(const char *name) {
  octavo_parameter_desc desc{};
  desc.name = {name, std::char_traits<char>::length(name)};
  desc.rows = 16;
  desc.cols = 32;
  desc.dtype = OCTAVO_F32;
  desc.gradient_dtype = OCTAVO_F32;
  desc.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  return desc;
}

octavo_linear_desc linear(const char *name, uint32_t weight) {
  octavo_linear_desc desc{};
  desc.name = {name, std::char_traits<char>::length(name)};
  desc.weight = weight;
  return desc;
}

void expect_no_trace(const Context &context, Session &disturbed, const char *what) {
  Session clean(context);
  clean.add(standard_model());
  clean.seal();
  disturbed.seal();
  const std::string expected = emitted(clean);
  const std::string found = emitted(disturbed);
  expect(expected == found, what,
         " left a trace in what seal emits: ", first_difference(expected, found));
}

struct Refusing {
  uint64_t left;
  static octavo_status slot(void *ctx, const octavo_slot *) { return next(ctx); }
  static octavo_status use(void *ctx, const octavo_slot_use *) { return next(ctx); }

 private:
  static octavo_status next(void *ctx) {
    uint64_t &left = static_cast<Refusing *>(ctx)->left;
    return left == 0 ? OCTAVO_NO_RESOURCE : (--left, OCTAVO_OK);
  }
};

// A sink that refuses at any place: the seal returns that, and may be made again.
void check_aborted_seal(const Context &context) {
  Session clean(context), s(context);
  for (Session *one : {&clean, &s}) one->add(standard_model());
  clean.seal();
  uint64_t emissions = clean.slots().size() + clean.uses(OCTAVO_OWNER_SESSION, 0).size();
  for (uint32_t id = 0; id < clean.parameters().size(); ++id)
    emissions += clean.uses(OCTAVO_OWNER_PARAMETER, id).size();
  for (uint32_t id = 0; id < clean.linears().size(); ++id)
    emissions += clean.uses(OCTAVO_OWNER_LINEAR, id).size();
  for (const uint64_t at : {uint64_t{0}, emissions / 4, emissions / 2, emissions - 1}) {
    if (emissions == 0) break;
    Refusing refusing{at};
    const octavo_slot_sink sink = {sizeof sink, OCTAVO_KIND_SLOT_SINK, &refusing, Refusing::slot,
                                   Refusing::use};
    calling("seal");
    const octavo_status status = s.backend().seal(s.handle(), &sink);
    expect(status == OCTAVO_NO_RESOURCE, "seal answered ", status_name(status),
           " where its sink answered OCTAVO_NO_RESOURCE to emission ", at, " of ", emissions,
           "; expected the sink's status");
  }
  expect_no_trace(context, s, "a seal that its sink aborted");
}

// Fields of a later minor version may be ignored.
void check_longer(const Context &context) {
  Session s(context, Longer<octavo_session_desc>::kTail);
  s.add(standard_model());
  expect_no_trace(context, s, "descriptions that are longer than this minor version's");
}

// Either is the host's choice; a backend that cannot follow declines in check_session.
void check_deterministic(const Context &context) {
  for (const uint64_t flags : {uint64_t{0}, uint64_t{OCTAVO_SESSION_DETERMINISTIC}}) {
    Target target = context.target;
    if (flags != 0 && (target.desc.caps->flags & OCTAVO_CAPS_DETERMINISTIC) == 0) continue;
    target.desc.flags = flags;
    const Context with{target, context.seed, context.alignment};
    if (declined_reason(with).empty()) Session s(with);
  }
}

// Verbs with the id of an object that no seal covers: none, and one that was added since.
void check_unknown_ids(Session &s) {
  void *const slots[64] = {};
  octavo_tensor none{};
  none.dtype = OCTAVO_F32;
  const auto refuses = [&](const char *verb, uint32_t id, auto call,
                           octavo_status or_else = OCTAVO_INVALID) {
    s.take_reports();
    calling(verb);
    const octavo_status status = call();
    expect(status == OCTAVO_INVALID || status == or_else, verb, " of ", id,
           ", which no seal covers, answered ", status_name(status), "; expected OCTAVO_INVALID");
    s.expect_reported(status, text(verb, " of ", id, ", which no seal covers,"));
  };
  const auto parameters = static_cast<uint32_t>(s.parameters().size());
  const auto linears = static_cast<uint32_t>(s.linears().size());
  octavo_verdict verdict;
  uint32_t id = 0;
  const octavo_parameter_desc since = parameter("since");
  octavo_tensor x{}, y{};
  if (s.add_parameter(since, &verdict, &id) == OCTAVO_OK && verdict.decision != OCTAVO_DECLINE) {
    s.add_linear(linear("since", id), &verdict, &id);
    x.cols = x.stride = since.cols;
    y.cols = y.stride = since.rows;
  }
  x.dtype = y.dtype = OCTAVO_F32;
  for (const uint32_t unknown : {parameters, parameters + 7, OCTAVO_NONE}) {
    if (s.backend().quantize_weight == nullptr) break;
    const octavo_weight_call c = {sizeof c, OCTAVO_KIND_WEIGHT_CALL, unknown, 0, kStream, slots,
                                  nullptr};
    refuses("quantize_weight", unknown,
            [&] { return s.backend().quantize_weight(s.handle(), &c); });
  }
  for (const uint32_t unknown : {linears, linears + 7, OCTAVO_NONE}) {
    auto f = octavo::make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    f.linear = unknown;
    f.stream = kStream;
    f.x = unknown == linears ? &x : &none;
    f.y = unknown == linears ? &y : &none;
    f.slots = slots;
    refuses("linear_forward", unknown, [&] { return s.backend().linear_forward(s.handle(), &f); });
    auto b = octavo::make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    b.linear = unknown;
    b.stream = kStream;
    b.dy = unknown == linears ? &y : &none;
    b.x = unknown == linears ? &x : &none;
    b.slots = slots;
    refuses("linear_backward", unknown,
            [&] { return s.backend().linear_backward(s.handle(), &b); });
    auto plan = octavo::make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
    refuses(
        "linear_plan", unknown, [&] { return s.backend().linear_plan(s.handle(), unknown, &plan); },
        OCTAVO_WRONG_STATE);
  }
}

// A host asks in this way whether a flag of a later minor is followed.
void check_unknown_session_flag(const Context &context) {
  const octavo_backend &backend = *context.target.backend;
  HostWatch host(context.target.desc.host);
  octavo_session_desc desc = context.target.desc;
  desc.host = host.table();
  desc.flags |= uint64_t{1} << 62;
  octavo_session *opened = nullptr;
  calling("open_session");
  const octavo_status status = backend.open_session(&desc, &opened);
  if (opened != nullptr) backend.close_session(opened);
  expect(status == OCTAVO_INVALID, "open_session with the unknown flag 1 << 62 answered ",
         status_name(status), "; expected OCTAVO_INVALID");
  const uint32_t reports = host.take(status);
  expect(reports == 1, "open_session with the unknown flag 1 << 62 answered ", status_name(status),
         ", and the session's host got ", reports, " diagnostics; expected one");
}

}  // namespace

void check_refusals(const Context &context) {
  check_unknown_session_flag(context);
  check_deterministic(context);
  check_aborted_seal(context);
  check_longer(context);
  Session s(context);
  octavo_verdict verdict;
  uint32_t id = 0;
  const auto refused_parameter = [&](const octavo_parameter_desc &desc, const char *why) {
    const octavo_status status = s.add_parameter(desc, &verdict, &id);
    expect(status == OCTAVO_INVALID, "add_parameter with ", why, " answered ", status_name(status),
           "; expected OCTAVO_INVALID");
    s.expect_reported(status, text("add_parameter with ", why));
  };
  const auto refused_linear = [&](const octavo_linear_desc &desc, const char *why) {
    const octavo_status status = s.add_linear(desc, &verdict, &id);
    expect(status == OCTAVO_INVALID, "add_linear with ", why, " answered ", status_name(status),
           "; expected OCTAVO_INVALID");
    s.expect_reported(status, text("add_linear with ", why));
  };
  refused_linear(linear("early", 0), "a weight id before any parameter was added");
  octavo_parameter_desc p = parameter("reserved");
  p.reserved = 1;
  refused_parameter(p, "reserved = 1");
  p = parameter("flags");
  p.flags = 1U << 30;
  refused_parameter(p, "unknown flag 1 << 30");
  s.add(standard_model());
  auto plan = octavo::make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
  calling("linear_plan");
  const octavo_status planned = s.backend().linear_plan(s.handle(), 0, &plan);
  expect(planned == OCTAVO_INVALID || planned == OCTAVO_WRONG_STATE,
         "linear_plan before the seal of its linear answered ", status_name(planned),
         "; expected OCTAVO_INVALID or OCTAVO_WRONG_STATE");
  const auto parameters = static_cast<uint32_t>(s.parameters().size());
  refused_linear(linear("unknown", parameters), "the unknown weight id just behind the last");
  refused_linear(linear("none", OCTAVO_NONE), "weight = OCTAVO_NONE");
  if (const auto vector = s.find_parameter("vector"))
    refused_linear(linear("vector", *vector), "the id of a parameter that is no LINEAR_WEIGHT");
  octavo_linear_desc l = linear("flags", 0);
  l.flags = 1;
  refused_linear(l, "flags = 1");
  expect_no_trace(context, s, "a refused add_parameter or add_linear");
  check_unknown_ids(s);
}

namespace {

// One that ignored it would compute something else than it was asked for.
void check_unknown_option(const Context &context) {
  Session s(context);
  octavo_verdict verdict;
  uint32_t id = 0;
  s.add(standard_model());
  octavo_option_value unknown{};
  unknown.name = OCTAVO_STR("octavo_verify_unknown");
  unknown.value.type = OCTAVO_VALUE_INT;
  octavo_linear_desc l = linear("with_an_option", 0);
  l.options = &unknown;
  l.option_count = 1;
  const octavo_status status = s.add_linear(l, &verdict, &id);
  expect(status == OCTAVO_OK && verdict.decision == OCTAVO_DECLINE &&
             verdict.reason == OCTAVO_REASON_OPTION,
         "add_linear with an option that no backend has answered ", status_name(status),
         ", decision ", verdict.decision, ", reason ", verdict.reason,
         "; expected OCTAVO_OK and a decline with OCTAVO_REASON_OPTION");
  expect_no_trace(context, s, "a linear that was declined for its option");
}

}  // namespace

void check_decline(const Context &context) {
  check_unknown_option(context);
  Session s(context);
  octavo_verdict verdict;
  uint32_t id = 0;
  int declined = 0;
  // A session that accepts the object is of no use any more, so each try has one of its own.
  const auto accepts = [&](const octavo_parameter_desc &desc, bool with_linear) {
    Session trial(context);
    const octavo_status status = trial.add_parameter(desc, &verdict, &id);
    expect(status == OCTAVO_OK, "add_parameter of [", desc.rows, ", ", desc.cols, "] in ",
           dtype_name(desc.dtype), " with gradients in ", dtype_name(desc.gradient_dtype),
           " answered ", status_name(status),
           "; expected OCTAVO_OK, with DECLINE if it is not taken");
    if (status != OCTAVO_OK || verdict.decision == OCTAVO_DECLINE) return false;
    if (!with_linear) return true;
    return trial.add_linear(linear("candidate", id), &verdict, &id) == OCTAVO_OK &&
           verdict.decision != OCTAVO_DECLINE;
  };
  const auto try_parameter = [&](uint32_t dtype, uint32_t gradient, int64_t rows, int64_t cols) {
    octavo_parameter_desc desc = parameter("candidate");
    desc.dtype = dtype;
    desc.gradient_dtype = gradient;
    desc.rows = rows;
    desc.cols = cols;
    const bool accepted = accepts(desc, false);
    expect(!accepted || (is_plain(dtype) && is_plain(gradient)), "a parameter in ",
           dtype_name(dtype), " with gradients in ", dtype_name(gradient),
           " was accepted; expected DECLINE unless both are f32, bf16 or f16");
    if (accepted) return;
    ++declined;
    s.add_parameter(desc, &verdict, &id);
  };
  for (const uint32_t odd : {OCTAVO_I32, OCTAVO_E8M0FNU, OCTAVO_E4M3FN, 0x0611u}) {
    try_parameter(odd, OCTAVO_F32, 16, 32);
    try_parameter(OCTAVO_F32, odd, 16, 32);
  }
  octavo_parameter_desc frozen = parameter("frozen");
  frozen.flags |= OCTAVO_PARAMETER_FROZEN;
  const bool is_taken = accepts(frozen, false);
  frozen.gradient_dtype = 0x0611u;
  expect(accepts(frozen, false) == is_taken,
         "a frozen parameter is accepted or declined by its gradient_dtype, which is not read");
  try_parameter(OCTAVO_F16, OCTAVO_F16, 16, 32);
  try_parameter(OCTAVO_F32, OCTAVO_F32, 1, 1);
  if (declined == 0) {
    throw Skip("the backend took every dtype and shape that was tried, so nothing was declined");
  }
  s.add(standard_model());
  expect_no_trace(context, s, "a declined add_parameter or add_linear");
}

}  // namespace octavo::conformance

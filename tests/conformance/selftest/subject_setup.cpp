// Setup verbs of the subject: options, verdicts, parameters, linears.
//
// A parameter in another dtype than f32 or bf16 is declined, so that the suite has something to
// decline.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

octavo_status emit_option(const octavo_option_sink *sink, const char *name, const char *help,
                          octavo_value initial) {
  octavo_option o{};
  o.size = sizeof o;
  o.kind = OCTAVO_KIND_OPTION;
  o.name = {name, std::char_traits<char>::length(name)};
  o.help = {help, std::char_traits<char>::length(help)};
  o.initial = initial;
  return sink->option(sink->ctx, &o);
}

octavo_status emit_options(const octavo_option_sink *sink, int64_t fault) {
  octavo_value number{}, yes{};
  number.type = OCTAVO_VALUE_INT;
  number.integer = fault;
  yes.type = OCTAVO_VALUE_BOOL;
  yes.integer = 1;
  const octavo_status status = emit_option(
      sink, "fault", "The rule of the contract to break, as a number; 0 breaks none.", number);
  return status != OCTAVO_OK && fault != kListsOn
             ? status
             : emit_option(sink, "bias", "Whether y gets the bias.", yes);
}

octavo_status list_options(const octavo_option_sink *sink) {
  return emit_options(sink, kNone);
}

// kUnsteadyOptions: the default counts the calls. Options are listed before any session exists, so
// this fault is a table of its own.
octavo_status list_unsteady_options(const octavo_option_sink *sink) {
  static std::atomic<int64_t> count{0};
  return emit_options(sink, count++);
}

octavo_status list_on(const octavo_option_sink *sink) {
  return emit_options(sink, kListsOn);
}

int64_t fault_of(const octavo_session_desc *desc) {
  for (uint64_t i = 0; i < desc->option_count; ++i) {
    const octavo_str name = desc->options[i].name;
    if (std::string(name.data, name.size) == "fault") return desc->options[i].value.integer;
  }
  return kNone;
}

bool is_named(octavo_str name, const std::string &option, int64_t fault) {
  const std::string given(name.data, name.size);
  return fault == kOptionsByPrefix ? given.rfind(option, 0) == 0 : given == option;
}

octavo_status refuse(const octavo_host *host, int64_t fault) {
  if (fault != kReportsNothing) subject_report(host, OCTAVO_INVALID);
  if (fault == kReportsTwice) subject_report(host, OCTAVO_INVALID);
  return OCTAVO_INVALID;
}

// Whether the kernels have every call of the verbs.
bool are_complete(const octavo_session_desc *desc) {
  static constexpr uint32_t kCalls[][3] = {{OCTAVO_KIND_QUANTIZE, OCTAVO_E4M3FN, 0},
                                           {OCTAVO_KIND_QUANTIZE, OCTAVO_E5M2, 0},
                                           {OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, OCTAVO_E4M3FN},
                                           {OCTAVO_KIND_GEMM, OCTAVO_E5M2, OCTAVO_E4M3FN},
                                           {OCTAVO_KIND_DEQUANTIZE, OCTAVO_F32, 0},
                                           {OCTAVO_KIND_DELAYED_SCALE_UPDATE, 0, 0},
                                           {OCTAVO_KIND_COPY, 0, 0},
                                           {OCTAVO_KIND_ADAM_STEP, OCTAVO_F32, 0},
                                           {OCTAVO_KIND_GRADIENT_SCALE, 0, 0},
                                           {OCTAVO_KIND_SUM, OCTAVO_F32, 0}};
  const auto has = [&](uint32_t call, uint32_t dtype, uint32_t b_dtype = 0) {
    octavo_ability q{};
    q.size = sizeof q;
    q.kind = OCTAVO_KIND_ABILITY;
    q.call = call;
    q.dtype = dtype;
    q.b_dtype = b_dtype;
    return desc->kernels->ability(desc->kernels_ctx, &q) == OCTAVO_OK &&
           q.decision != OCTAVO_DECLINE;
  };
  const int64_t fault = fault_of(desc);
  if (fault == kAsksNothing) return true;
  for (const auto &[call, dtype, b_dtype] : kCalls) {
    const bool is_e5m2 = call == OCTAVO_KIND_QUANTIZE && dtype == OCTAVO_E5M2;
    if (!has(call, dtype, b_dtype) && !(is_e5m2 && fault == kAsksOneFormat)) return false;
  }
  if (fault == kAsksOneDtype) return true;
  for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16})  // in which dy may come
    if (has(OCTAVO_KIND_DEQUANTIZE, dtype) && !has(OCTAVO_KIND_SUM, dtype)) return false;
  return true;
}

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  if (fault_of(desc) == kNoVerdict) return OCTAVO_OK;
  if (fault_of(desc) == kProbesKernels) {
    const octavo_verdict_sink none = {sizeof none, OCTAVO_KIND_VERDICT_SINK, nullptr,
                                      [](void *, const octavo_verdict *) {}};
    desc->kernels->probe_device(desc->device, &none);
  }
  octavo_verdict v{};
  v.size = sizeof v;
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_SESSION;
  v.decision = OCTAVO_ACCEPT_EMULATED;
  v.text = OCTAVO_STR("runs on any kernels");
  if (fault_of(desc) == kDeclinesPadding && desc->caps->alignment > 1) {
    v.decision = OCTAVO_DECLINE;
    v.text = OCTAVO_STR("pads nothing");
  }
  if (!are_complete(desc)) {
    v.decision = OCTAVO_DECLINE;
    v.text = OCTAVO_STR("the kernels lack a call");
  }
  switch (fault_of(desc)) {
    case kEscapesInText: v.text = OCTAVO_STR("runs \033[31mred"); break;
    case kTextNotUtf8: v.text = OCTAVO_STR("l\xE4uft"); break;
    case kTextHuge: v.text.size = uint64_t{1} << 40; break;
    case kTextNoData: v.text = {nullptr, 7}; break;
    case kTextWithLines: v.text = OCTAVO_STR("runs\npass  fence"); break;
    default: break;
  }
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  const uint64_t known = OCTAVO_SESSION_DETERMINISTIC;
  if ((desc->flags & ~known) != 0 && fault_of(desc) != kAcceptsSessionFlags)
    return refuse(desc->host, fault_of(desc));
  const int64_t fault = fault_of(desc);
  if (fault == kRefusesDeterministic && desc->flags != 0) return refuse(desc->host, fault);
  if (octavo_kernels_caps caps = *desc->caps; fault == kDescribesKernels)
    desc->kernels->describe(desc->kernels_ctx, &caps);
  auto s = std::make_unique<octavo_session>();
  bool is_given = false;
  for (uint64_t i = 0; i < desc->option_count; ++i) {
    const octavo_option_value &option = desc->options[i];
    if (is_named(option.name, "fault", fault)) continue;
    if (!is_named(option.name, "bias", fault)) return refuse(desc->host, fault);
    s->has_bias = option.value.integer != 0;
    is_given = true;
  }
  if (fault == kNeedsEveryOption && !is_given) return refuse(desc->host, fault);
  s->host = desc->host;
  s->kernels = desc->kernels;
  s->ctx = desc->kernels_ctx;
  s->tables = KernelsTables(s->kernels, s->ctx);
  s->fault = fault;
  s->casts = nullptr;
  if (s->fault == kOwnCasts || s->fault == kOwnCastsHalve) {
    s->casts = static_cast<const SubjectCasts *>(
        s->kernels->get_extension(s->ctx, OCTAVO_STR(SUBJECT_CASTS_ID)));
    if (s->casts == nullptr) return OCTAVO_UNSUPPORTED;
  }
  s->alignment = s->fault == kNoPadding || s->fault == kDeclinesPadding
                     ? 1
                     : static_cast<int64_t>(desc->caps->alignment);
  *out = s.release();
  return OCTAVO_OK;
}

octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *desc,
                            octavo_verdict *verdict, uint32_t *id) {
  const uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
  if (s->fault == kRefusesLonger && desc->size > sizeof *desc) return subject_refuse(s);
  const SubjectParameter parameter{{desc->name.data, desc->name.size}, *desc, 0};
  if ((desc->reserved != 0 || (desc->flags & ~known) != 0) && s->fault != kAcceptsFlags) {
    if (s->fault == kBurnsId) s->parameters.push_back(parameter);
    return subject_refuse(s);
  }
  const auto handled = [](uint32_t dtype) { return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16; };
  verdict->level =
      s->fault == kLevelOfSession ? uint32_t{OCTAVO_LEVEL_SESSION} : uint32_t{OCTAVO_LEVEL_LAYER};
  const bool has_gradient =
      (desc->flags & OCTAVO_PARAMETER_FROZEN) == 0 || s->fault == kFrozenGradientCounts;
  if (!handled(desc->dtype) ||
      (has_gradient && !handled(desc->gradient_dtype) && s->fault != kTakesAnyGradient)) {
    if (s->fault == kInvalidForDtype) return subject_refuse(s);
    verdict->decision = OCTAVO_DECLINE;
    verdict->reason = OCTAVO_REASON_DTYPE;
    verdict->text = OCTAVO_STR("expected f32 or bf16");
    if (s->fault == kDeclineEmits) ++s->ghosts;
    return OCTAVO_OK;
  }
  verdict->decision = OCTAVO_ACCEPT_EMULATED;
  *id = static_cast<uint32_t>(s->parameters.size());
  s->parameters.push_back(parameter);
  s->parameters.back().desc.name = {};
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *desc, octavo_verdict *verdict,
                         uint32_t *id) {
  if (desc->flags != 0 && s->fault != kAcceptsFlags) return subject_refuse(s);
  const bool weight_known = desc->weight < s->parameters.size();
  if (!weight_known && s->fault != kAcceptsAnyWeight) return subject_refuse(s);
  if (weight_known && s->fault != kTakesVectorWeight &&
      (s->parameters[desc->weight].desc.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) == 0) {
    return subject_refuse(s);
  }
  verdict->level = OCTAVO_LEVEL_LAYER;
  bool has_bias = s->has_bias, follows = true;
  for (uint64_t i = 0; i < desc->option_count && s->fault != kIgnoresLinearOptions; ++i) {
    const octavo_option_value &option = desc->options[i];
    if (is_named(option.name, "bias", s->fault))
      has_bias = option.value.integer != 0;
    else
      follows = false;
  }
  if (s->fault == kDeclineKeepsOption && !follows) s->has_bias = has_bias;
  if (s->fault == kLinearOptionForAll) s->has_bias = has_bias;
  if (s->fault == kLinearOptionForAll)
    for (SubjectLinear &linear : s->linears) linear.has_bias = has_bias;
  if (s->fault == kLinearOptionIgnored) has_bias = s->has_bias;
  if (!follows) {
    verdict->decision = OCTAVO_DECLINE;
    verdict->reason = OCTAVO_REASON_OPTION;
    if (s->fault == kDeclineWritesId) *id = 0;
    return OCTAVO_OK;
  }
  verdict->decision = OCTAVO_ACCEPT_EMULATED;
  *id = static_cast<uint32_t>(s->linears.size());
  s->linears.push_back({{desc->name.data, desc->name.size}, desc->weight, desc->name, has_bias});
  return OCTAVO_OK;
}

void close_session(octavo_session *s) {
  if (s->fault != kKeepsSession) delete s;
}

}  // namespace

namespace {

std::atomic<const octavo_session *> last_session{nullptr};  // kSharedAcrossSessions

}  // namespace

bool subject_loses_bias(const octavo_session *s, const octavo_forward_call &c) {
  const uint32_t linear = c.linear;
  if (s->fault == kNoBias || !s->linears[linear].has_bias) return true;
  if (s->fault == kDependsOnAddress) return reinterpret_cast<uintptr_t>(c.x->data) / 64 % 2 == 1;
  if (s->fault == kNinthLinear) return linear >= 8;
  if (s->fault == kManyRows) return c.x->rows > 32767;
  if (s->fault == kManyColumns) return c.x->cols > 1024;
  if (s->fault == kManyCalls) return s->calls++ >= 3000;
  if (s->fault == kFirstCallFlag && s->calls++ == 0) return true;
  if (s->fault == kSharedAcrossSessions) return last_session.exchange(s) != s;
  if (s->fault != kCurrentCallMember) return false;
  s->current.store(linear);
  // Long enough that the other thread's call overlaps on a machine with more work than cores, too.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return s->current.load() != linear;
}

void subject_report(const octavo_host *host, octavo_status code) {
  octavo_diagnostic d{};
  d.size = sizeof d;
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.code = code;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = OCTAVO_STR("subject");
  d.text = OCTAVO_STR("a malformed argument");
  if (host != nullptr) host->diagnose(host->ctx, &d);
}

octavo_status subject_refuse(const octavo_session *s) {
  return refuse(s->host, s->fault);
}

octavo_status subject_decline(const octavo_session *s) {
  subject_report(s->host, OCTAVO_UNSUPPORTED);
  return OCTAVO_UNSUPPORTED;
}

octavo_status subject_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out) {
  const size_t known = s->fault == kPlansEarly ? s->linears.size() : s->sealed_linears;
  if (linear >= known)
    return s->fault == kPlanRefusesInSilence ? OCTAVO_INVALID : subject_refuse(s);
  const octavo_parameter_desc &w = s->parameters[s->linears[linear].weight].desc;
  const auto n = static_cast<uint64_t>(round_up(w.rows, s->alignment));
  const auto k = static_cast<uint64_t>(round_up(w.cols, s->alignment));
  const auto align = static_cast<uint64_t>(s->alignment);
  const uint64_t extra = s->fault == kSavedTooLarge ? 8 : s->fault == kForgetsSavedByte ? 1 : 0;
  out->gradient =
      (w.flags & OCTAVO_PARAMETER_FROZEN) != 0 ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  out->flags = s->fault == kTakesWhatItDeclines || s->fault == kDeclinesLate
                   ? uint32_t{OCTAVO_LINEAR_DECLINES_F16}
               : s->fault == kEvaluatesInHost ? uint32_t{OCTAVO_LINEAR_EVALUATES_IN_HOST}
                                              : 0u;
  if (s->fault == kPlanWritesSize) out->size = 8;
  out->saved = {align, k, sizeof(float) + extra};
  // x as codes behind a padded y; the scale_inv of dy, the sums of db, a padded dw, a padded dx, dy
  // twice.
  out->forward_workspace = {align, n * sizeof(float) + k, 16};
  out->backward_workspace = {align, k * sizeof(float) + 2 * n, 16 + n * (k + 1) * sizeof(float)};
  if (s->fault == kLatePlan) out->backward_workspace.fixed_bytes += s->seals;
  if (s->fault == kRoundsX || s->fault == kTransposedRounds)
    out->forward_workspace.bytes_per_row += 2 * k;
  if (s->fault == kPlanHuge) out->backward_workspace.fixed_bytes = uint64_t{1} << 47;
  if (s->fault == kPlanLosesFailure) {
    octavo_copy call{};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_COPY;
    uint64_t bytes = 4096;
    s->kernels->workspace_bytes(s->ctx, &call, &bytes);
    out->forward_workspace.fixed_bytes += bytes;
  }
  out->weight_workspace = 0;
  return OCTAVO_OK;
}

const octavo_backend *subject_backend(Fault fault) {
  static const octavo_backend kTable = {sizeof(octavo_backend),
                                        OCTAVO_KIND_BACKEND,
                                        list_options,
                                        check_session,
                                        open_session,
                                        add_parameter,
                                        add_linear,
                                        subject_seal,
                                        subject_plan,
                                        subject_quantize_weight,
                                        subject_forward,
                                        subject_backward,
                                        subject_end_step,
                                        close_session};
  static const octavo_backend kUnsteady = [] {
    octavo_backend table = kTable;
    table.list_options = list_unsteady_options;
    return table;
  }();
  static const octavo_backend kOn = [] {
    octavo_backend table = kTable;
    table.list_options = list_on;
    return table;
  }();
  return fault == kUnsteadyOptions ? &kUnsteady : fault == kListsOn ? &kOn : &kTable;
}

}  // namespace octavo::selftest

// A plugin that answers what a fuzzer's script says: anything that a host can check, in any order.
// Its memory is as the contract says, and it computes nothing.
#include "scripted_plugin.h"

namespace octavo::fuzz {
namespace {

octavo_status list_options(const octavo_option_sink *sink) {
  if (fault(1) != 0) return any_failure(nullptr);
  static const octavo_str modes[] = {OCTAVO_STR("fast"), OCTAVO_STR("exact")};
  octavo_option o{};
  o.size = sizeof(o);
  o.kind = OCTAVO_KIND_OPTION;
  o.name = OCTAVO_STR("count");
  o.initial.type = o.low.type = OCTAVO_VALUE_INT;
  o.initial.integer = 4;
  o.low.integer = 1;
  octavo_option mode{};
  mode.size = sizeof(mode);
  mode.kind = OCTAVO_KIND_OPTION;
  mode.name = OCTAVO_STR("mode");
  mode.initial.type = OCTAVO_VALUE_TEXT;
  mode.initial.text = modes[0];
  mode.choices = modes;
  mode.choice_count = 2;
  switch (fault(8)) {
    case 1: o.name = {nullptr, 5}; break;
    case 2: o.initial.type = any_id(); break;
    case 3: o.low.type = any_id(); break;
    case 4: mode.choices = nullptr; break;
    case 5: mode.initial.text = {nullptr, 3}; break;
    case 6: mode.name = o.name; break;
    case 7: o.size = OCTAVO_SIZE_THROUGH(octavo_option, initial); break;
    case 8:
      o.initial.type = OCTAVO_VALUE_REAL;
      o.initial.real = octavo_fuzz_script->real();
      break;
    default: break;
  }
  const octavo_status status = sink->option(sink->ctx, &o);
  return status == OCTAVO_OK || fault(1) != 0 ? sink->option(sink->ctx, &mode) : status;
}

void answer(octavo_verdict *v, uint32_t level) {
  v->level = level;
  v->decision = OCTAVO_ACCEPT;
  v->text = OCTAVO_STR("as the script says");
  switch (fault(5)) {
    case 1: v->decision = OCTAVO_DECLINE; break;
    case 2: v->decision = any_id(); break;
    case 3: v->reason = any_id(); break;
    case 4: v->text = v->remedy = {nullptr, 9}; break;
    case 5: v->level = any_id(); break;
    default: break;
  }
}

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  octavo_verdict v{};
  v.size = fault(1) != 0 ? OCTAVO_SIZE_THROUGH(octavo_verdict, reason) : sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  answer(&v, OCTAVO_LEVEL_SESSION);
  sink->verdict(sink->ctx, &v);
  return fault(1) != 0 ? any_failure(desc->host) : octavo_status{OCTAVO_OK};
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  if (fault(1) != 0) return any_failure(desc->host);
  if (fault(1) != 0) return OCTAVO_OK;
  *out = new octavo_session;
  (*out)->host = desc->host;
  return OCTAVO_OK;
}

octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d, octavo_verdict *v,
                            uint32_t *id) {
  answer(v, OCTAVO_LEVEL_LAYER);
  if (fault(1) != 0) return any_failure(s->host);
  if (v->decision == OCTAVO_DECLINE) return OCTAVO_OK;
  *id = fault(1) != 0 ? any_id() : static_cast<uint32_t>(s->parameters.size());
  s->parameters.push_back(*d);
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *, octavo_verdict *v,
                         uint32_t *id) {
  answer(v, OCTAVO_LEVEL_LAYER);
  if (fault(1) != 0) return any_failure(s->host);
  if (v->decision == OCTAVO_DECLINE) return OCTAVO_OK;
  *id = fault(1) != 0 ? any_id() : s->linears;
  ++s->linears;
  return OCTAVO_OK;
}

octavo_status linear_plan(const octavo_session *s, uint32_t, octavo_linear_plan *out) {
  if (fault(1) != 0) return any_failure(s->host);
  out->gradient = OCTAVO_GRADIENT_TENSOR;
  out->saved = out->forward_workspace = out->backward_workspace = {fault(1) != 0 ? 0u : 1u, 0, 0};
  return OCTAVO_OK;
}

void close_session(octavo_session *s) {
  delete s;
}

octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan) {
  octavo_gradient_stage stage{sizeof(stage),
                              OCTAVO_KIND_GRADIENT_STAGE,
                              OCTAVO_COLLECTIVE_ALL_REDUCE_SUM,
                              OCTAVO_F32,
                              2,
                              2};
  plan->state_bytes = 4;
  switch (fault(8)) {
    case 1: return any_failure(s->host);
    case 2: stage.collective = any_id(); break;
    case 3: stage.dtype = any_id(); break;
    case 4: stage.send_count = static_cast<uint64_t>(any_extent()); break;
    case 5: stage.recv_count = static_cast<uint64_t>(any_extent()); break;
    case 6: stage.send_count = stage.recv_count = static_cast<uint64_t>(any_extent()); break;
    case 7: stage.size = OCTAVO_SIZE_THROUGH(octavo_gradient_stage, dtype); break;
    case 8: plan->state_bytes = static_cast<uint64_t>(any_extent()); break;
    default: break;
  }
  const octavo_status status = plan->stage(plan->ctx, &stage);
  return fault(1) != 0 ? plan->stage(plan->ctx, &stage) : status;
}

octavo_status run_stage(const octavo_session *s, const octavo_gradient_call *) {
  return fault(1) != 0 ? any_failure(s->host) : octavo_status{OCTAVO_OK};
}

template <typename Call>
octavo_status computes_nothing(const octavo_session *, const Call *) {
  return OCTAVO_UNSUPPORTED;
}

const octavo_backend kBackend = {sizeof(octavo_backend),
                                 OCTAVO_KIND_BACKEND,
                                 list_options,
                                 check_session,
                                 open_session,
                                 add_parameter,
                                 add_linear,
                                 seal,
                                 linear_plan,
                                 computes_nothing,
                                 computes_nothing,
                                 computes_nothing,
                                 computes_nothing,
                                 close_session};
const octavo_gradients kGradients = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                     plan_reduction, run_stage};

const void *get_interface(octavo_str id) {
  const std::string_view wanted(id.data, id.size);
  if (wanted == OCTAVO_BACKEND_ID) return &kBackend;
  return wanted == OCTAVO_GRADIENTS_ID ? &kGradients : nullptr;
}

const octavo_plugin kPlugin = {sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN,     OCTAVO_ABI_MAJOR,
                               OCTAVO_TARGET_MINOR,   OCTAVO_STR("scripted"), OCTAVO_STR("0.1.0"),
                               get_interface};

}  // namespace
}  // namespace octavo::fuzz

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &octavo::fuzz::kPlugin;
  return OCTAVO_OK;
}

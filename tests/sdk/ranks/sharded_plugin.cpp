// A backend that computes nothing and describes slots as an optimizer that shards its states does;
// its option `fault` selects what is wrong with it.
//
// Parameter p has, in this order: weight, weight/scale_inv, gradient, weight_cache, exp_avg
// (WHOLE), exp_avg/scale_inv (WHOLE), step (WHOLE). Frozen: the weight only. A name that begins
// with "native" has a native weight; with "native states", a native exp_avg, too.
#include "tests/sdk/ranks/sharded_plugin.h"

#include <cstring>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/draft/optimizer.h"
#include "octavo/plugin.h"

struct octavo_session {
  struct Parameter {
    std::string name;
    int64_t rows, cols;
    bool is_frozen;
  };
  std::string fault;
  std::vector<Parameter> parameters;
  uint32_t linears = 0;
  uint32_t sealed = 0;
  uint32_t slots = 0;
};

namespace {

octavo_str str(const char *s) {
  return {s, std::strlen(s)};
}

octavo_status list_options(const octavo_option_sink *sink) {
  octavo_option o{};
  o.size = sizeof(o);
  o.kind = OCTAVO_KIND_OPTION;
  o.name = str("fault");
  o.help = str("what is wrong");
  o.initial.type = OCTAVO_VALUE_TEXT;
  o.initial.text = str("none");
  return sink->option(sink->ctx, &o);
}

octavo_status check_session(const octavo_session_desc *, const octavo_verdict_sink *sink) {
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_SESSION;
  v.decision = OCTAVO_ACCEPT;
  v.text = str("runs anywhere");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  const octavo_str fault = desc->options[0].value.text;
  *out = new octavo_session();
  (*out)->fault.assign(fault.data, fault.size);
  return OCTAVO_OK;
}

void close_session(octavo_session *s) {
  delete s;
}

octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d, octavo_verdict *v,
                            uint32_t *id) {
  v->decision = OCTAVO_ACCEPT;
  *id = static_cast<uint32_t>(s->parameters.size());
  s->parameters.push_back({std::string(d->name.data, d->name.size), d->rows, d->cols,
                           (d->flags & OCTAVO_PARAMETER_FROZEN) != 0});
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *, octavo_verdict *v,
                         uint32_t *id) {
  v->decision = OCTAVO_ACCEPT;
  *id = s->linears++;
  return OCTAVO_OK;
}

// Emits slots, and lists each for its owner.
class Emitter {
 public:
  Emitter(octavo_session &s, const octavo_slot_sink &sink) : s_(s), sink_(sink) {}

  octavo_slot make(uint32_t owner_kind, uint32_t owner, uint32_t role, uint32_t dtype, int64_t rows,
                   int64_t cols, const char *name) const {
    octavo_slot slot{};
    slot.size = sizeof(slot);
    slot.kind = OCTAVO_KIND_SLOT;
    slot.owner_kind = owner_kind;
    slot.owner = owner;
    slot.role = role;
    slot.dtype = dtype;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = rows;
    slot.cols = cols;
    slot.name = str(name);
    return slot;
  }
  void emit(octavo_slot slot) {
    slot.id = s_.slots++;
    if (status == OCTAVO_OK) status = sink_.slot(sink_.ctx, &slot);
    use(slot.owner_kind, slot.owner, slot.id);
  }
  void use(uint32_t owner_kind, uint32_t owner, uint32_t slot) {
    const octavo_slot_use u = {owner_kind, owner, slot, 0, 0, 0};
    if (status == OCTAVO_OK) status = sink_.use(sink_.ctx, &u);
  }

  octavo_status status = OCTAVO_OK;

 private:
  octavo_session &s_;
  const octavo_slot_sink &sink_;
};

void emit_session(const octavo_session &s, Emitter &e) {
  auto slot = e.make(OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_NONFINITE, OCTAVO_F32, 1, 1, "nonfinite");
  slot.flags = OCTAVO_SLOT_REDUCE;
  slot.combine = OCTAVO_COMBINE_MAX;
  slot.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_ACCUMULATE;
  slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_UPDATE;
  if (s.fault == "whole_session") slot.shard = OCTAVO_SHARD_WHOLE;
  e.emit(slot);
  slot = e.make(OCTAVO_OWNER_SESSION, 0, OCTAVO_ROLE_OTHER, OCTAVO_F32, 2, 3, "saturated");
  slot.flags = OCTAVO_SLOT_REDUCE;
  slot.combine = OCTAVO_COMBINE_SUM;
  if (s.fault == "dtype") slot.dtype = OCTAVO_I32;
  if (s.fault == "native_reduce") slot.flags |= OCTAVO_SLOT_NATIVE;
  const octavo_str labels[] = {s.parameters.empty() ? str("") : str(s.parameters[0].name.c_str()),
                               str("up"), str("down")};
  if (s.fault == "pool") slot.labels = labels;
  e.emit(slot);
  slot.flags = 0;
  slot.labels = nullptr;
  slot.name = str("not combined");
  e.emit(slot);
}

void emit_parameter(const octavo_session &s, uint32_t p, Emitter &e) {
  const octavo_session::Parameter &q = s.parameters[p];
  const uint32_t base = s.slots;
  const auto make = [&](uint32_t role, uint32_t dtype, bool is_scalar, const char *name,
                        uint8_t step) {
    octavo_slot slot = e.make(OCTAVO_OWNER_PARAMETER, p, role, dtype, is_scalar ? 1 : q.rows,
                              is_scalar ? 1 : q.cols, name);
    slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = step;
    return slot;
  };
  auto weight = make(OCTAVO_ROLE_WEIGHT, OCTAVO_F16, false, "weight", OCTAVO_ACCESS_UPDATE);
  if (q.name.rfind("native", 0) == 0) {
    weight.flags = OCTAVO_SLOT_NATIVE;
    weight.dtype = OCTAVO_F32;
  }
  e.emit(weight);
  if (q.is_frozen) return;
  e.emit(make(OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, true, "weight/scale_inv", OCTAVO_ACCESS_WRITE));
  e.emit(make(OCTAVO_ROLE_GRADIENT, OCTAVO_U8, false, "gradient", OCTAVO_ACCESS_READ));
  e.emit(make(OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_U8, false, "weight_cache", OCTAVO_ACCESS_NONE));
  const auto whole = [&](octavo_slot slot) {
    slot.shard = OCTAVO_SHARD_WHOLE;
    slot.flags |= OCTAVO_SLOT_CHECKPOINT;
    if (s.fault == "whole_reduce") slot.flags |= OCTAVO_SLOT_REDUCE;
    e.emit(slot);
  };
  auto exp_avg = make(OCTAVO_ROLE_EXP_AVG, OCTAVO_U8, false, "exp_avg", OCTAVO_ACCESS_UPDATE);
  if (q.name.rfind("native states", 0) == 0) exp_avg.flags = OCTAVO_SLOT_NATIVE;
  whole(exp_avg);
  whole(make(OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, true, "exp_avg/scale_inv", OCTAVO_ACCESS_UPDATE));
  whole(make(OCTAVO_ROLE_COUNTER, OCTAVO_I32, true, "step", OCTAVO_ACCESS_UPDATE));
  // The list goes on with a slot of the session and with the weight once more.
  e.use(OCTAVO_OWNER_PARAMETER, p, 0);
  e.use(OCTAVO_OWNER_PARAMETER, p, base);
}

octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  Emitter e(*s, *sink);
  if (s->slots == 0) {
    emit_session(*s, e);
  } else if (s->fault == "late") {
    auto slot = e.make(OCTAVO_OWNER_PARAMETER, 0, OCTAVO_ROLE_OTHER, OCTAVO_U8, 100, 100, "late");
    slot.shard = OCTAVO_SHARD_WHOLE;
    e.emit(slot);
  }
  for (; s->sealed < s->parameters.size(); ++s->sealed) emit_parameter(*s, s->sealed, e);
  return e.status;
}

octavo_status linear_plan(const octavo_session *, uint32_t, octavo_linear_plan *out) {
  out->saved = out->forward_workspace = out->backward_workspace = {1, 0, 0};
  return OCTAVO_OK;
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

octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan) {
  return plan_stages(s->fault, *plan);
}

// Counts the stages that ran in state.
octavo_status run_stage(const octavo_session *, const octavo_gradient_call *c) {
  ++*static_cast<uint64_t *>(c->state);
  return OCTAVO_OK;
}

const octavo_gradients kGradients = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                     plan_reduction, run_stage};

octavo_status describes_nothing(const octavo_session *, octavo_optimizer_desc *) {
  return OCTAVO_UNSUPPORTED;
}
octavo_status needs_nothing(const octavo_session *, const uint32_t *, uint64_t, uint64_t *) {
  return OCTAVO_UNSUPPORTED;
}

// Weights that are not the host's need one.
const octavo_optimizer kOptimizer = {
    sizeof(octavo_optimizer), OCTAVO_KIND_OPTIMIZER, describes_nothing, needs_nothing,
    computes_nothing,         computes_nothing,      computes_nothing,  computes_nothing,
    computes_nothing};

const void *get_interface(octavo_str id) {
  const std::string name(id.data, id.size);
  if (name == OCTAVO_BACKEND_ID) return &kBackend;
  if (name == OCTAVO_OPTIMIZER_ID) return &kOptimizer;
  return name == OCTAVO_GRADIENTS_ID ? &kGradients : nullptr;
}

}  // namespace

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN, OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("sharded"), OCTAVO_STR("1.0"),  get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}

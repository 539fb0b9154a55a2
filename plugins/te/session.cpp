// Setup: whether a session can run, and the objects of the model. Slots are emitted in slots.cpp.
#include <new>

#include "te.h"

namespace octavo::te {
namespace {

void answer(octavo_verdict *v, uint32_t level, uint32_t decision, uint32_t reason,
            octavo_str text) {
  v->level = level;
  v->decision = decision;
  v->reason = reason;
  v->text = text;
}

std::string text_of(octavo_str s) {
  return {s.data, s.size};
}

// The names of both kinds are checkpoint keys or labels, so two of one kind cannot share one.
template <typename Object>
bool has_name(const std::vector<Object> &objects, const std::string &name) {
  for (const Object &o : objects)
    if (o.name == name) return true;
  return false;
}

}  // namespace

octavo_status refuse(const octavo_host *host, octavo_status status, const std::string &text) {
  octavo_diagnostic d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.code = status;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = OCTAVO_STR("te");
  d.text = {text.data(), text.size()};
  host->diagnose(host->ctx, &d);
  return status;
}

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  const uint64_t dtypes = OCTAVO_DTYPE_BIT(OCTAVO_E4M3FN) | OCTAVO_DTYPE_BIT(OCTAVO_E5M2);
  if ((desc->caps->dtypes & dtypes) != dtypes)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("the kernels lack float8_e4m3fn or float8_e5m2"));
  else if (desc->caps->flags & OCTAVO_CAPS_EMULATED)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT_EMULATED, OCTAVO_REASON_NONE,
           OCTAVO_STR("FP8 arithmetic is emulated exactly, without FP8 hardware"));
  else
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
           OCTAVO_STR("FP8 runs on the device"));
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  auto *s = new (std::nothrow) octavo_session;
  if (s == nullptr) return refuse(desc->host, OCTAVO_RESOURCE, "out of memory");
  s->desc = *desc;
  s->recipe = parse_recipe(*desc);
  s->desc.options = nullptr;  // valid during this call only
  s->desc.option_count = 0;
  *out = s;
  return OCTAVO_OK;
}

void close_session(octavo_session *s) {
  delete s;
}

octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d, octavo_verdict *v,
                            uint32_t *id) {
  const std::string name = text_of(d->name);
  const std::string where = "add_parameter \"" + name + "\": expected ";
  constexpr uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
  if (d->reserved != 0 || (d->flags & ~known) != 0)
    return refuse(s->desc.host, OCTAVO_INVALID,
                  where + "reserved 0 and known flags, found reserved " +
                      std::to_string(d->reserved) + ", flags " + std::to_string(d->flags));
  if (d->rows < 1 || d->cols < 1)
    return refuse(s->desc.host, OCTAVO_INVALID,
                  where + "at least one row and column, found [" + std::to_string(d->rows) + ", " +
                      std::to_string(d->cols) + "]");
  if (has_name(s->parameters, name))
    return refuse(s->desc.host, OCTAVO_INVALID, where + "a name that no other parameter has");
  if (d->dtype != OCTAVO_F32 && d->dtype != OCTAVO_BF16 && d->dtype != OCTAVO_F16) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("a weight in f32, bf16 or f16 is expected"));
    return OCTAVO_OK;
  }
  try {
    Parameter p;
    p.name = name;
    p.rows = d->rows;
    p.cols = d->cols;
    p.dtype = d->dtype;
    p.flags = d->flags;
    s->parameters.push_back(p);
  } catch (const std::bad_alloc &) {
    return refuse(s->desc.host, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->parameters.size() - 1);
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         d->flags & OCTAVO_PARAMETER_LINEAR_WEIGHT ? octavo_str(OCTAVO_STR("weight of linears"))
                                                   : octavo_str(OCTAVO_STR("stays with the host")));
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                         uint32_t *id) {
  const std::string name = text_of(d->name);
  const std::string where = "add_linear \"" + name + "\": expected ";
  if (d->flags != 0)
    return refuse(s->desc.host, OCTAVO_INVALID,
                  where + "flags 0, found " + std::to_string(d->flags));
  if (d->weight >= s->parameters.size() || !s->parameters[d->weight].is_linear_weight())
    return refuse(
        s->desc.host, OCTAVO_INVALID,
        where + "the id of a parameter added as LINEAR_WEIGHT, found " + std::to_string(d->weight));
  if (has_name(s->linears, name))
    return refuse(s->desc.host, OCTAVO_INVALID, where + "a name that no other linear has");
  try {
    s->linears.push_back({name, d->weight});
  } catch (const std::bad_alloc &) {
    return refuse(s->desc.host, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->linears.size() - 1);
  const bool hybrid = s->recipe.gradient_dtype == OCTAVO_E5M2;
  const Parameter &w = s->parameters[d->weight];
  const bool padded = s->aligned(w.rows) != w.rows || s->aligned(w.cols) != w.cols;
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         s->delayed() ? (hybrid ? octavo_str(OCTAVO_STR("delayed scaling, HYBRID"))
                                : octavo_str(OCTAVO_STR("delayed scaling, E4M3")))
                      : (hybrid ? octavo_str(OCTAVO_STR("current scaling, HYBRID"))
                                : octavo_str(OCTAVO_STR("current scaling, E4M3"))));
  if (padded) v->evidence = OCTAVO_STR("N or K is padded inside to what the kernels need");
  return OCTAVO_OK;
}

}  // namespace octavo::te

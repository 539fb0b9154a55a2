// Setup: whether a session can run, and the objects of the model. Slots are emitted in slots.cpp.
#include <new>

#include "plugins/common/setup.h"
#include "te.h"

namespace octavo::te {

using plugin::answer;

octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text) {
  return plugin::refuse(s.device.host(), "te", status, text);
}

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  const octavo_verdict v = plugin::check_formats(*desc);
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  auto *s = new (std::nothrow) octavo_session;
  if (s == nullptr) return plugin::refuse(desc->host, "te", OCTAVO_RESOURCE, "out of memory");
  s->device = plugin::Device(*desc);
  s->recipe = parse_recipe(*desc);
  *out = s;
  return OCTAVO_OK;
}

void close_session(octavo_session *s) {
  delete s;
}

octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d, octavo_verdict *v,
                            uint32_t *id) {
  if (const std::string fault = plugin::parameter_fault(*d, s->parameters); !fault.empty())
    return refuse(*s, OCTAVO_INVALID, fault);
  if (!plugin::is_plain_dtype(d->dtype)) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("a weight in f32, bf16 or f16 is expected"));
    return OCTAVO_OK;
  }
  try {
    s->parameters.emplace_back(*d);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->parameters.size() - 1);
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         d->flags & OCTAVO_PARAMETER_LINEAR_WEIGHT ? octavo_str(OCTAVO_STR("weight of linears"))
                                                   : octavo_str(OCTAVO_STR("stays with the host")));
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                         uint32_t *id) {
  if (const std::string fault = plugin::linear_fault(*d, s->parameters, s->linears); !fault.empty())
    return refuse(*s, OCTAVO_INVALID, fault);
  try {
    s->linears.emplace_back(*d);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->linears.size() - 1);
  const bool hybrid = s->recipe.gradient_dtype == OCTAVO_E5M2;
  const Parameter &w = s->parameters[d->weight];
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         s->delayed() ? (hybrid ? octavo_str(OCTAVO_STR("delayed scaling, HYBRID"))
                                : octavo_str(OCTAVO_STR("delayed scaling, E4M3")))
                      : (hybrid ? octavo_str(OCTAVO_STR("current scaling, HYBRID"))
                                : octavo_str(OCTAVO_STR("current scaling, E4M3"))));
  if (s->device.pads(w.rows, w.cols))
    v->evidence = OCTAVO_STR("N or K is padded inside to what the kernels need");
  return OCTAVO_OK;
}

}  // namespace octavo::te

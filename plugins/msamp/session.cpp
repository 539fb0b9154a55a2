// Setup: whether a session can run, and the objects of the model. Slots are emitted in slots.cpp.
#include <new>

#include "msamp.h"
#include "plugins/common/setup.h"

namespace octavo::msamp {

using plugin::answer;

octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text) {
  return plugin::refuse(s.device.host(), "msamp", status, text);
}

octavo_status refuse_id(const octavo_session &s, const char *verb, uint32_t id) {
  return refuse(s, OCTAVO_INVALID,
                std::string(verb) + ": expected a sealed parameter below " +
                    std::to_string(s.sealed_parameters) + ", found " + std::to_string(id));
}

namespace {

// Whether a session with this recipe can run on these kernels.
octavo_verdict judge(const octavo_session_desc &desc, const Recipe &recipe) {
  octavo_verdict v = plugin::check_formats(desc);
  const uint64_t granularity = UINT64_C(1) << recipe.state_granularity;
  if (v.decision == OCTAVO_DECLINE) {
    // The formats come first: nothing else matters without them.
  } else if ((desc.caps->dtypes & OCTAVO_DTYPE_BIT(OCTAVO_F16)) == 0) {
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("the kernels lack f16, in which weights and second moments are kept"));
  } else if (recipe.amsgrad) {
    answer(
        &v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_OPTION,
        OCTAVO_STR("amsgrad is not possible: its maximum of second moments has no low-bit form"));
    v.remedy = OCTAVO_STR("set fp8.msamp.amsgrad = false");
  } else if (recipe.parity && recipe.decay_is_l2 && recipe.state_granularity != OCTAVO_PER_TENSOR) {
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_OPTION,
           OCTAVO_STR("msamp04 drops the L2 decay from moments in its own formats only"));
    v.remedy = OCTAVO_STR("set fp8.msamp.state_format = \"level\", or profile = \"msamp-fixed\"");
  } else if ((desc.caps->granularities & granularity) == 0) {
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
           OCTAVO_STR("the kernels lack optimizer states in groups"));
    v.remedy = OCTAVO_STR("set fp8.msamp.state_format = \"level\"");
  }
  return v;
}

}  // namespace

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  const octavo_verdict v = judge(*desc, parse_recipe(*desc));
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  const Recipe recipe = parse_recipe(*desc);
  if (const octavo_verdict v = judge(*desc, recipe); v.decision == OCTAVO_DECLINE)
    return plugin::refuse(desc->host, "msamp", OCTAVO_UNSUPPORTED, plugin::view(v.text));
  auto *s = new (std::nothrow) octavo_session;
  if (s == nullptr) return plugin::refuse(desc->host, "msamp", OCTAVO_RESOURCE, "out of memory");
  s->device = plugin::Device(*desc);
  s->recipe = recipe;
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
  const bool frozen = (d->flags & OCTAVO_PARAMETER_FROZEN) != 0;
  if (!plugin::is_plain_dtype(d->dtype) ||
      (!frozen && !plugin::is_plain_dtype(d->gradient_dtype))) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("a weight and a gradient in f32, bf16 or f16 are expected"));
    return OCTAVO_OK;
  }
  try {
    s->parameters.emplace_back(*d);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->parameters.size() - 1);
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         d->flags & OCTAVO_PARAMETER_LINEAR_WEIGHT
             ? octavo_str(OCTAVO_STR("weight of linears, kept by the backend"))
             : octavo_str(OCTAVO_STR("stays with the host; moments by the level")));
  return OCTAVO_OK;
}

octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                         uint32_t *id) {
  if (const std::string fault = plugin::linear_fault(*d, s->parameters, s->linears); !fault.empty())
    return refuse(*s, OCTAVO_INVALID, fault);
  const Parameter &w = s->parameters[d->weight];
  if (d->weight < s->sealed_parameters && !w.is_owned) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_POLICY,
           OCTAVO_STR("the weight was sealed without a linear, so it stays the host's tensor"));
    v->remedy = OCTAVO_STR("add the linear before the seal of its weight");
    return OCTAVO_OK;
  }
  try {
    s->linears.emplace_back(*d);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->linears.size() - 1);
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         s->recipe.level == Level::kO3
             ? octavo_str(OCTAVO_STR("weight E4M3, x E4M3, dy E5M2, dw E4M3"))
             : octavo_str(OCTAVO_STR("weight f16 cast to E4M3, x E4M3, dy E5M2, dw E4M3")));
  if (s->device.pads(w.rows, w.cols))
    v->evidence = OCTAVO_STR("N or K is padded inside to what the kernels need");
  return OCTAVO_OK;
}

}  // namespace octavo::msamp

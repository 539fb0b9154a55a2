// Setup: whether a session can run, and the objects of the model. Slots are emitted in slots.cpp.
#include <cstdio>
#include <mutex>
#include <new>
#include <set>

#include "plugins/common/setup.h"
#include "te.h"

namespace octavo::te {

using plugin::answer;

octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text) {
  return plugin::refuse(s.device.host(), "te", status, text);
}

namespace {

// Evidence of a refusal outlives the call: there is no session that could own it.
octavo_str kept_text(const std::string &text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string &kept = *texts.insert(text).first;
  return {kept.data(), kept.size()};
}

// "N 20 -> 32, K 33 -> 48: 2.33 times the multiply-adds", or nothing without padding. M is padded,
// too, but differs from call to call.
std::string padding_of(const plugin::Device &device, const Parameter &w) {
  if (!device.pads(w.rows, w.cols)) return {};
  const int64_t n = device.aligned(w.rows);
  const int64_t k = device.aligned(w.cols);
  std::string text;
  if (n != w.rows) text = "N " + std::to_string(w.rows) + " -> " + std::to_string(n);
  if (k != w.cols)
    text += (text.empty() ? "K " : ", K ") + std::to_string(w.cols) + " -> " + std::to_string(k);
  char factor[64];
  std::snprintf(factor, sizeof(factor), ": %.3g times the multiply-adds",
                static_cast<double>(n) * static_cast<double>(k) /
                    (static_cast<double>(w.rows) * static_cast<double>(w.cols)));
  return text + factor;
}

}  // namespace

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink) {
  std::vector<Refusal> refusals;
  parse_recipe(*desc, &refusals);
  for (const Refusal &r : refusals) {
    octavo_verdict v = plugin::make_verdict();
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, r.reason, r.text);
    v.evidence = kept_text(r.evidence);
    v.remedy = r.remedy;
    sink->verdict(sink->ctx, &v);
  }
  const octavo_verdict v = plugin::check_formats(*desc);
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  std::vector<Refusal> refusals;
  const Recipe recipe = parse_recipe(*desc, &refusals);
  if (!refusals.empty()) {
    const Refusal &r = refusals.front();
    return plugin::refuse(desc->host, "te", OCTAVO_UNSUPPORTED,
                          "open_session: " + std::string(plugin::view(r.text)) + "; found " +
                              r.evidence + "; " + std::string(plugin::view(r.remedy)));
  }
  if (const octavo_verdict v = plugin::check_formats(*desc); v.decision == OCTAVO_DECLINE)
    return plugin::refuse(desc->host, "te", OCTAVO_UNSUPPORTED, plugin::view(v.text));
  auto *s = new (std::nothrow) octavo_session;
  if (s == nullptr) return plugin::refuse(desc->host, "te", OCTAVO_RESOURCE, "out of memory");
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
  const std::string padding = padding_of(s->device, s->parameters[d->weight]);
  octavo_str evidence{};
  try {
    if (!padding.empty()) {
      s->texts.push_back(std::make_shared<const std::string>(padding));
      evidence = {s->texts.back()->data(), s->texts.back()->size()};
    }
    s->linears.emplace_back(*d);
  } catch (const std::bad_alloc &) {
    return refuse(*s, OCTAVO_RESOURCE, "out of memory");
  }
  *id = static_cast<uint32_t>(s->linears.size() - 1);
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE, describe(s->recipe));
  v->evidence = evidence;
  return OCTAVO_OK;
}

}  // namespace octavo::te

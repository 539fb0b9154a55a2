// A backend in C++ whose functions throw, which the contract forbids: FAKE_THROWS names the
// function and what comes out of it, "check_session text", "seal number".
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "octavo/backend.h"
#include "octavo/plugin.h"

struct octavo_session {
  int opened = 1;
};

namespace {

// Not derived from std::exception, with a destructor that must run.
struct Foreign {
  std::string text = "foreign";
};

void at(const std::string &function) {
  const char *wanted = std::getenv("FAKE_THROWS");
  const std::string given(wanted == nullptr ? "" : wanted);
  if (given == function + " text") throw std::runtime_error("out of luck");
  if (given == function + " number") throw 7;
  if (given == function + " object") throw Foreign();
  if (given == function + " thread") std::thread([] { throw std::runtime_error("alone"); }).join();
}

octavo_status list_options(const octavo_option_sink *) {
  at("list_options");
  return OCTAVO_OK;
}
octavo_status check_session(const octavo_session_desc *, const octavo_verdict_sink *sink) {
  at("check_session");
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_SESSION;
  v.decision = OCTAVO_ACCEPT;
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}
octavo_status open_session(const octavo_session_desc *, octavo_session **out) {
  at("open_session");
  *out = new octavo_session;
  return OCTAVO_OK;
}
octavo_status add_parameter(octavo_session *, const octavo_parameter_desc *, octavo_verdict *v,
                            uint32_t *id) {
  at("add_parameter");
  v->level = OCTAVO_LEVEL_LAYER;
  v->decision = OCTAVO_ACCEPT;
  *id = 0;
  return OCTAVO_OK;
}
octavo_status add_linear(octavo_session *, const octavo_linear_desc *, octavo_verdict *v,
                         uint32_t *id) {
  at("add_linear");
  v->level = OCTAVO_LEVEL_LAYER;
  v->decision = OCTAVO_ACCEPT;
  *id = 0;
  return OCTAVO_OK;
}
octavo_status seal(octavo_session *, const octavo_slot_sink *) {
  at("seal");
  return OCTAVO_OK;
}
octavo_status linear_plan(const octavo_session *, uint32_t, octavo_linear_plan *out) {
  at("linear_plan");
  const octavo_extent none = {1, 0, 0};
  out->gradient = OCTAVO_GRADIENT_TENSOR;
  out->saved = out->forward_workspace = out->backward_workspace = none;
  return OCTAVO_OK;
}
octavo_status linear_forward(const octavo_session *, const octavo_forward_call *) {
  at("linear_forward");
  return OCTAVO_OK;
}
void close_session(octavo_session *s) {
  delete s;
  at("close_session");
}

const void *get_interface(octavo_str id) {
  at("get_interface");
  static octavo_backend backend{};
  backend.size = sizeof(backend);
  backend.kind = OCTAVO_KIND_BACKEND;
  backend.list_options = list_options;
  backend.check_session = check_session;
  backend.open_session = open_session;
  backend.add_parameter = add_parameter;
  backend.add_linear = add_linear;
  backend.seal = seal;
  backend.linear_plan = linear_plan;
  backend.linear_forward = linear_forward;
  backend.linear_backward = [](const octavo_session *, const octavo_backward_call *) {
    return octavo_status{OCTAVO_UNSUPPORTED};
  };
  backend.close_session = close_session;
  return std::string(id.data, id.size) == OCTAVO_BACKEND_ID ? &backend : nullptr;
}

}  // namespace

extern "C" octavo_status octavo_plugin_query_1(const octavo_host *, const octavo_plugin **out) {
  at("query");
  static octavo_plugin plugin{};
  plugin.size = sizeof(plugin);
  plugin.kind = OCTAVO_KIND_PLUGIN;
  plugin.abi_major = OCTAVO_ABI_MAJOR;
  plugin.id = OCTAVO_STR("fake");
  plugin.version = OCTAVO_STR("1.2.3");
  plugin.get_interface = get_interface;
  *out = &plugin;
  return OCTAVO_OK;
}

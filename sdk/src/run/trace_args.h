// What a trace says about a call: the members of a JSON object. Only structs of calls are read,
// never the memory of a device.
#pragma once

#include <string>
#include <vector>

#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/kernels.h"
#include "sdk/src/base/text.h"

namespace octavo {

// Of what a session accepted, by id; as JSON strings.
struct Names {
  std::vector<std::string> linears, parameters;
  const std::string &linear(uint32_t id) const { return of(linears, id); }
  const std::string &parameter(uint32_t id) const { return of(parameters, id); }

 private:
  static const std::string &of(const std::vector<std::string> &names, uint32_t id) {
    static const std::string none = "null";
    return id < names.size() ? names[id] : none;
  }
};

inline std::string dtype_name(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "f32";
    case OCTAVO_F16: return "f16";
    case OCTAVO_BF16: return "bf16";
    case OCTAVO_E4M3FN: return "e4m3fn";
    case OCTAVO_E5M2: return "e5m2";
    default: return concat(dtype);
  }
}

inline std::string shape(const char *name, const octavo_tensor *t) {
  if (t == nullptr) return "";
  return concat("\"", name, "\":\"", dtype_name(t->dtype), "[", t->rows, ",", t->cols, "]\"");
}
inline std::string and_then(std::string first, const std::string &second) {
  return first.empty() || second.empty() ? first + second : first + "," + second;
}

// What a call works on.
inline std::string args(const Names &t, const octavo_weight_call &c) {
  return concat("\"parameter\":", t.parameter(c.parameter));
}
inline std::string args(const Names &t, const octavo_parameter_call &c) {
  return concat("\"parameter\":", t.parameter(c.parameter));
}
inline std::string args(const Names &t, const octavo_forward_call &c) {
  return and_then(concat("\"linear\":", t.linear(c.linear)), shape("x", c.x));
}
inline std::string args(const Names &t, const octavo_fused_forward_call &c) {
  return c.forward == nullptr ? "" : args(t, *c.forward);
}
inline std::string args(const Names &t, const octavo_backward_call &c) {
  return and_then(concat("\"linear\":", t.linear(c.linear)), shape("dy", c.dy));
}
inline std::string args(const Names &, const octavo_optimizer_call &c) {
  return concat("\"parameters\":", c.count);
}
inline std::string args(const Names &, const octavo_quantize &c) {
  return and_then(shape("in", c.in),
                  shape(c.out == nullptr ? "out_t" : "out", c.out == nullptr ? c.out_t : c.out));
}
inline std::string args(const Names &, const octavo_gemm &c) {
  return and_then(and_then(shape("a", c.a), shape("b", c.b)), shape("d", c.d));
}
template <typename Call>
inline std::string args(const Names &, const Call &) {
  return "";
}

}  // namespace octavo

// octavo/hpp/plugin/abilities.hpp: which calls of a backend its kernels decline.
//
// Before a session opens, the verbs of one linear are measured (pass.hpp) in every dtype, and the
// kernels are asked about each call that a verb would make. So no backend has to list its calls.
#ifndef OCTAVO_HPP_PLUGIN_ABILITIES_HPP
#define OCTAVO_HPP_PLUGIN_ABILITIES_HPP

#include <array>
#include <map>
#include <string>
#include <utility>

#include "octavo/hpp/plugin/scales.hpp"
#include "octavo/kernels.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

inline octavo_ability question(uint32_t call, uint32_t dtype = 0, uint32_t granularity = 0) {
  octavo_ability q{};
  q.size = sizeof(q);
  q.kind = OCTAVO_KIND_ABILITY;
  q.call = call;
  q.dtype = dtype;
  q.granularity = granularity;
  return q;
}
inline uint32_t granularity_of(const octavo_scale *s) {
  return s == nullptr ? 0 : s->granularity;
}

// The question about a call. call = 0: the backend itself asks about calls of octavo/draft, and a
// fused interface about prologues.
template <typename Call>
octavo_ability question_of(const Call &) {
  return {};
}
inline octavo_ability question_of(const octavo_quantize &c) {
  const octavo_tensor *codes = c.out != nullptr ? c.out : c.out_t;
  const octavo_scale *scale = c.out_scale_inv != nullptr ? c.out_scale_inv : c.out_t_scale_inv;
  octavo_ability q =
      question(OCTAVO_KIND_QUANTIZE, codes == nullptr ? uint32_t{OCTAVO_E4M3FN} : codes->dtype,
               granularity_of(scale));
  q.flags = c.flags;
  return q;
}
inline octavo_ability question_of(const octavo_gemm &c) {
  octavo_ability q = question(OCTAVO_KIND_GEMM, c.a->dtype, granularity_of(c.a_scale_inv));
  q.flags = c.layout;
  q.b_dtype = c.b->dtype;
  q.b_granularity = granularity_of(c.b_scale_inv);
  return q;
}
inline octavo_ability question_of(const octavo_quantize_stats &c) {
  return question(OCTAVO_KIND_QUANTIZE_STATS, c.codes->dtype, granularity_of(c.scale_inv));
}
inline octavo_ability question_of(const octavo_dequantize &c) {
  return question(OCTAVO_KIND_DEQUANTIZE, c.in->dtype, granularity_of(c.scale_inv));
}
inline octavo_ability question_of(const octavo_compute_amax &c) {
  return question(OCTAVO_KIND_COMPUTE_AMAX, c.in->dtype, granularity_of(c.in_scale_inv));
}
inline octavo_ability question_of(const octavo_sum &c) {
  return question(OCTAVO_KIND_SUM, c.in->dtype, granularity_of(c.in_scale_inv));
}
inline octavo_ability question_of(const octavo_pack &c) {
  return question(OCTAVO_KIND_PACK, c.in->dtype);
}
inline octavo_ability question_of(const octavo_delayed_scale_update &c) {
  octavo_ability q = question(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
  q.flags = c.history_flags;
  return q;
}
inline octavo_ability question_of(const octavo_scale_from_amax &) {
  return question(OCTAVO_KIND_SCALE_FROM_AMAX);
}
inline octavo_ability question_of(const octavo_copy &) {
  return question(OCTAVO_KIND_COPY);
}

// "sum_rows of float16".
inline std::string describe(const octavo_ability &q) {
  const char *name = q.call == OCTAVO_KIND_QUANTIZE               ? "quantize"
                     : q.call == OCTAVO_KIND_GEMM                 ? "gemm"
                     : q.call == OCTAVO_KIND_QUANTIZE_STATS       ? "quantize_stats"
                     : q.call == OCTAVO_KIND_DEQUANTIZE           ? "dequantize"
                     : q.call == OCTAVO_KIND_COMPUTE_AMAX         ? "compute_amax"
                     : q.call == OCTAVO_KIND_SUM                  ? "sum_rows"
                     : q.call == OCTAVO_KIND_PACK                 ? "pack"
                     : q.call == OCTAVO_KIND_DELAYED_SCALE_UPDATE ? "delayed_scale_update"
                     : q.call == OCTAVO_KIND_SCALE_FROM_AMAX      ? "scale_from_amax"
                                                                  : "copy";
  std::string text = name;
  if (q.dtype != 0) text += std::string(" of ") + describe_dtype(q.dtype);
  if (q.b_dtype != 0) text += std::string(" by ") + describe_dtype(q.b_dtype);
  return text;
}

// Asks each question once.
class Questions {
 public:
  void ask(const octavo_kernels &kernels, void *ctx, octavo_ability q) {
    if (q.call == 0) return;
    const std::array<uint32_t, 6> key{q.call,        q.flags,   q.dtype,
                                      q.granularity, q.b_dtype, q.b_granularity};
    const auto [at, is_new] = answers_.try_emplace(key);
    if (is_new && (kernels.ability(ctx, &q) != OCTAVO_OK || q.decision == OCTAVO_DECLINE)) {
      at->second = describe(q);
      if (q.evidence.size > 0) at->second += ": " + std::string(q.evidence.data, q.evidence.size);
    }
    if (declined_.empty()) declined_ = at->second;
  }
  // The first call since the last time that the kernels decline, and why; empty: none.
  std::string take_declined() { return std::exchange(declined_, std::string()); }

 private:
  std::map<std::array<uint32_t, 6>, std::string> answers_;  // empty: accepted
  std::string declined_;
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif

/* kernels/check/calls.h: what follows from a call struct alone: which way through a verb it asks
 * for, and the sizes of a product.
 */
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "kernels/check/granularity.h"

namespace octavo {

/* What all call structs begin with. */
struct CallHeader {
  uint32_t size;
  uint32_t kind;
};

inline uint32_t kind_of(const void *call) {
  return static_cast<const CallHeader *>(call)->kind;
}

/* The table with this id; null: none of them has it. */
inline const void *table_of_id(
    octavo_str id, std::initializer_list<std::pair<std::string_view, const void *>> tables) {
  for (const auto &[name, table] : tables)
    if (std::string_view(id.data, id.size) == name) return table;
  return nullptr;
}

/* The families of quantize, in the order in which they are asked for; one scale per tensor is what
 * remains. */
inline bool is_state_scaled(const octavo_quantize &c) {
  return has_state_blocks(c.out_scale_inv);
}

inline bool has_row_scales(const octavo_quantize &c) {
  return is_row_scaled(c.out_scale_inv) || is_row_scaled(c.out_t_scale_inv);
}

inline bool is_fp4_scaled(const octavo_quantize &c) {
  return has_fp4_blocks(c.out_scale_inv) || has_fp4_blocks(c.out_t_scale_inv);
}

inline bool is_block_scaled(const octavo_quantize &c) {
  return has_blocks(c.out_scale_inv) || has_blocks(c.out_t_scale_inv);
}

/* Whether the rule of an Adam step is looked at for this item: it has one scale for a tensor. */
inline bool has_tensor_scale(const octavo_adam_step &c, const octavo_adam_item &item) {
  if (item.weight_scale_inv != nullptr) return true;
  return c.state_granularity == OCTAVO_PER_TENSOR &&
         (item.exp_avg_scale_inv != nullptr || item.exp_avg_sq_scale_inv != nullptr);
}

/* An operation of a prologue that looks at whole rows. */
inline bool is_norm(uint32_t op) {
  return op == OCTAVO_PROLOGUE_LAYER_NORM || op == OCTAVO_PROLOGUE_RMS_NORM;
}

/* M, N and K are never read from a tensor's rows and cols directly, since a plain operand may be
 * the other way round. */
struct GemmShape {
  int64_t m;
  int64_t n;
  int64_t k;
};

inline bool is_k_major(const octavo_gemm &c, uint32_t operand) {
  return (c.layout & operand) != 0;
}

/* b's codes are in panel order. */
inline bool is_packed(const octavo_gemm &c) {
  return (c.layout & OCTAVO_GEMM_B_PACKED) != 0;
}

inline GemmShape gemm_shape(const octavo_gemm &c) {
  const bool a_km = is_k_major(c, OCTAVO_GEMM_A_KM);
  const bool b_kn = is_k_major(c, OCTAVO_GEMM_B_KN);
  return {a_km ? c.a->cols : c.a->rows, b_kn ? c.b->cols : c.b->rows, a_km ? c.a->rows : c.a->cols};
}

}  // namespace octavo

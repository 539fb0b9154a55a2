// int8.cpp: x, w and dy in int8 with scales of 32x32 elements, as Jetfire has them, each cast once:
// the products for dx and dw read codes transposed. The arithmetic is the layer's, in layer.c.
#include "octavo/draft/layer.h"
#include "octavo/plugin.hpp"

extern "C" const octavo_layer int8_layer;

namespace {

using namespace octavo::plugin;

constexpr CodeFormat kFormat = {0x0800, OCTAVO_BLOCK_32X32};  // DLPack's signed integer of 8 bits

// Codes as an operand that is summed over their rows.
Operand turned(const Codes &matrix) {
  return {matrix.rows, matrix.scale_inv, Layout::kTransposed};
}

class Int8 : public Backend<Int8> {
 public:
  static void check(const Device &, const Options &, Verdicts &verdicts) {
    verdicts.need_casts({kFormat});
    verdicts.need_product(kFormat, kFormat);
    verdicts.accept("x, w and dy in int8 with scales of 32x32 elements");
  }
  void declare(Slots &s) {
    weight_ = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    WeightCodes codes;
    codes.name = "weight_int8";
    codes.dtype = OCTAVO_U8;  // for hosts they are bytes
    codes.granularity = kFormat.granularity;
    codes.rows_read_by = {OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD};
    codes_ = s.weight_codes(codes);
    nonfinite_ = s.nonfinite();
  }

  void cast_weight(Pass &p, const WeightCall &c) const {
    Codes w = weight(c);
    p.cast(c[weight_], w);
  }

  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = c.keeps() ? saved(p, c.k()) : Codes();
    if (p.measures_or(!c.keeps())) p.add_rows(x, c.m(), c.k(), kFormat.dtype, kFormat.granularity);
    p.cast(c.x(), x);
    p.multiply(x.by_rows(), weight(c).by_rows(), c.y(), c.bias());
  }

  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), kFormat.dtype, kRows, kFormat.granularity);
    p.cast(c.dy(), dy);
    if (c.wants_dx()) p.multiply(dy.by_rows(), turned(weight(c)), c.dx());
    if (c.wants_dw())
      p.multiply(turned(dy), turned(saved(p, c.k())), c.dw(), nullptr, c.accumulates());
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

 private:
  static Codes saved(Pass &p, int64_t k) {
    return p.saved_codes(kRows, k, kFormat.dtype, kFormat.granularity);
  }
  template <typename Call>
  Codes weight(const Call &c) const {
    Codes w = c[codes_];
    w.rows.dtype = kFormat.dtype;
    return w;
  }

  MatrixSlot weight_;
  CodesSlot codes_;
  FloatSlot nonfinite_;
};

const void *get_interface(octavo_str id) noexcept {
  if (octavo::view(id) == OCTAVO_LAYER_ID) return &int8_layer;
  return Tables<Int8>::get_interface(id);
}

}  // namespace

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN,           OCTAVO_ABI_MAJOR,
      OCTAVO_TARGET_MINOR,   OCTAVO_STR(OCTAVO_PLUGIN_ID), OCTAVO_STR(OCTAVO_PLUGIN_VERSION),
      get_interface};
  return answer_query(host, &plugin, out);
}

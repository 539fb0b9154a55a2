// The casts and products that the kernels of a device execute, by asking them for each.
#include "octavo/draft/fp4.h"
#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/report/report_json.h"

namespace octavo {
namespace {

struct Name {
  uint32_t value;
  const char *text;
};
constexpr uint32_t kInt8 = 0x0800;  // by DLPack; kernels have it by a layer
constexpr Name kCodes[] = {{OCTAVO_E4M3FN, "float8_e4m3fn"},
                           {OCTAVO_E5M2, "float8_e5m2"},
                           {OCTAVO_E2M1, "float4_e2m1fn"},
                           {kInt8, "int8"}};
// As fp8.require.scaling names them.
constexpr Name kScales[] = {
    {OCTAVO_PER_TENSOR, "tensor"},       {OCTAVO_PER_ROW, "row"},
    {OCTAVO_BLOCK_1X128, "block_1x128"}, {OCTAVO_BLOCK_128X128, "block_128x128"},
    {OCTAVO_BLOCK_1X32, "block_1x32"},   {OCTAVO_BLOCK_32X32, "block_32x32"},
    {OCTAVO_BLOCK_1X16, "block_1x16"},   {OCTAVO_BLOCK_16X16, "block_16x16"}};

// "native", "emulated", or null: they do not execute it.
const char *answer(const OpenDevice &device, octavo_ability question) {
  question.size = sizeof(question);
  question.kind = OCTAVO_KIND_ABILITY;
  if (device.kernels().ability(device.ctx(), &question) != OCTAVO_OK) return nullptr;
  return question.decision == OCTAVO_ACCEPT            ? "native"
         : question.decision == OCTAVO_ACCEPT_EMULATED ? "emulated"
                                                       : nullptr;
}

}  // namespace

Json ability_json(const OpenDevice &device) {
  Json casts = Json::object(), products = Json::object();
  for (const Name &a : kCodes) {
    Json &cast = casts[a.text] = Json::object();
    for (const Name &scale : kScales) {
      octavo_ability question{};
      question.call = OCTAVO_KIND_QUANTIZE;
      question.dtype = a.value;
      question.granularity = scale.value;
      if (const char *how = answer(device, question)) cast[scale.text] = how;
    }
    for (const Name &b : kCodes) {
      Json product = Json::object();
      for (const Name &a_scale : kScales)
        for (const Name &b_scale : kScales) {
          octavo_ability question{};
          question.call = OCTAVO_KIND_GEMM;
          question.dtype = a.value;
          question.granularity = a_scale.value;
          question.b_dtype = b.value;
          question.b_granularity = b_scale.value;
          if (const char *how = answer(device, question))
            product[concat(a_scale.text, " by ", b_scale.text)] = how;
        }
      if (!product.empty()) products[concat(a.text, " by ", b.text)] = product;
    }
  }
  return {{"casts", casts}, {"products", products}};
}

}  // namespace octavo

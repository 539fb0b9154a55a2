// Numbers of every dtype, by kernels/format.
#include "grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../report.h"
#include "kernels/format/e8m0.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/nvfp4.h"

namespace octavo::conformance::kernels {
namespace {

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

int64_t divided(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

int64_t block_rows(uint32_t granularity) {
  const bool is_square = granularity == OCTAVO_BLOCK_128X128 || granularity == OCTAVO_BLOCK_32X32 ||
                         granularity == OCTAVO_BLOCK_16X16;
  return is_square ? block_cols(granularity) : 1;
}

}  // namespace

Grid Grid::of(uint32_t dtype, int64_t rows, int64_t cols, int64_t gap) {
  Grid g{dtype, rows, cols, cols + gap};
  if (rows > 0 && cols > 0) g.bytes.assign(g.offset(rows - 1, 0) + g.row_bytes(), kLargeFiller);
  return g;
}

Grid Grid::of_values(const std::vector<float> &values) {
  Grid g = of(OCTAVO_F32, 1, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) g.put(0, static_cast<int64_t>(i), values[i]);
  return g;
}

uint32_t Grid::code(int64_t row, int64_t col) const {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + offset(row, col), element());
  if (bits() >= 8) return code;
  const auto shift = static_cast<uint64_t>(col) * bits() % 8;
  return code >> shift & ((1u << bits()) - 1);
}

void Grid::put_code(int64_t row, int64_t col, uint32_t code) {
  uint8_t *to = bytes.data() + offset(row, col);
  if (bits() < 8) {
    const auto shift = static_cast<uint64_t>(col) * bits() % 8;
    code = (*to & ~(((1u << bits()) - 1) << shift)) | code << shift;
  }
  std::memcpy(to, &code, element());
}

float Grid::at(int64_t row, int64_t col) const {
  const uint32_t from = code(row, col);
  switch (dtype) {
    case OCTAVO_F32: return bits_as<float>(from);
    case OCTAVO_BF16: return decode_bf16(static_cast<uint16_t>(from));
    case OCTAVO_F16: return decode_f16(static_cast<uint16_t>(from));
    case OCTAVO_E4M3FN: return decode_e4m3(static_cast<uint8_t>(from));
    case OCTAVO_E5M2: return decode_e5m2(static_cast<uint8_t>(from));
    case OCTAVO_E8M0FNU: return decode_e8m0(static_cast<uint8_t>(from));
    case OCTAVO_E2M1: return decode_e2m1(static_cast<uint8_t>(from));
    default: throw Failure(text("a case reads dtype ", dtype, " as a number"));
  }
}

void Grid::put(int64_t row, int64_t col, float value) {
  switch (dtype) {
    case OCTAVO_F32: return put_code(row, col, bits_as<uint32_t>(value));
    case OCTAVO_BF16: return put_code(row, col, encode_bf16(value));
    case OCTAVO_F16: return put_code(row, col, encode_f16(value));
    case OCTAVO_E4M3FN: return put_code(row, col, encode_e4m3(value));
    case OCTAVO_E5M2: return put_code(row, col, encode_e5m2(value));
    case OCTAVO_E8M0FNU: return put_code(row, col, encode_e8m0_down(value));
    case OCTAVO_E2M1: return put_code(row, col, encode_e2m1(value));
    default: throw Failure(text("a case writes dtype ", dtype, " as a number"));
  }
}

bool Grid::is_nan(int64_t row, int64_t col) const {
  if (dtype == OCTAVO_I32 || dtype == OCTAVO_U8) return false;
  return std::isnan(at(row, col));
}

void Grid::fill(float value) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) put(r, c, value);
}

void Grid::vary() {
  const int64_t count = rows * cols;
  const bool is_few = count <= 16 && dtype == OCTAVO_F32;
  for (int64_t i = 0; is_few && i < count; ++i) put(i / cols, i % cols, at(i / cols, i % cols) / 2);
  for (int64_t i = 0; !is_few && i < count / 2; ++i) {
    const int64_t j = count - 1 - i;
    const uint32_t low = code(i / cols, i % cols), high = code(j / cols, j % cols);
    put_code(i / cols, i % cols, high);
    put_code(j / cols, j % cols, low);
  }
}

uint64_t Numbers::next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

float Numbers::spread(int low, int high) {
  const uint64_t bits = next();
  const float fraction = 1.0f + static_cast<float>(bits & 0x7FFFFF) * 0x1p-23f;
  const int exponent = low + static_cast<int>(bits >> 40) % (high - low + 1);
  return std::ldexp((bits >> 30 & 1) != 0 ? -fraction : fraction, exponent);
}

void spread(Grid &grid, uint64_t seed, int low, int high) {
  Numbers numbers(seed);
  for (int64_t r = 0; r < grid.rows; ++r)
    for (int64_t c = 0; c < grid.cols; ++c)
      grid.put(r, c, numbers.below(16) == 0 ? 0.0f : numbers.spread(low, high));
}

void whole(Grid &grid, uint64_t seed, int64_t limit) {
  Numbers numbers(seed);
  for (int64_t r = 0; r < grid.rows; ++r)
    for (int64_t c = 0; c < grid.cols; ++c)
      grid.put(r, c, static_cast<float>(numbers.below(2 * limit + 1) - limit));
}

std::vector<float> edges_of(uint32_t codes, float unit) {
  std::vector<float> all = {0.0f, -0.0f};
  Grid one = Grid::of(codes, 1, 2);
  const int step = codes == OCTAVO_F16 ? 61 : 1;  // a sample of its 31,744 numbers
  for (int code = 0; code + step < 1 << (OCTAVO_DTYPE_BITS(codes) - 1); code += step) {
    for (const int at : {0, 1}) one.put_code(0, at, static_cast<uint32_t>(code + at));
    const float low = one.at(0, 0), high = one.at(0, 1);
    if (!std::isfinite(low) || !std::isfinite(high)) break;
    const float middle = low + (high - low) / 2;
    for (const float value :
         {high, middle, std::nextafter(middle, low), std::nextafter(middle, high)})
      all.insert(all.end(), {value * unit, -value * unit});
  }
  const float largest = largest_of(codes) * unit;
  for (const float factor : {1.03f, 1.0625f, 1.07f, 1.125f, 1.2f, 2.0f, 1000.0f})
    all.insert(all.end(), {largest * factor, -largest * factor});
  return all;
}

Grid scales_of(uint32_t granularity, int64_t rows, int64_t cols, int64_t gap) {
  switch (granularity) {
    case OCTAVO_PER_TENSOR: return Grid::of(OCTAVO_F32, 1, 1);
    case OCTAVO_PER_ROW: return Grid::of(OCTAVO_F32, rows, 1, gap);
    case OCTAVO_FLAT_256: return Grid::of(OCTAVO_F32, 1, divided(rows * cols, 256));
    case OCTAVO_EXPANDED_128: return Grid::of(OCTAVO_F32, divided(rows * cols, 128), 3);
    default:
      return Grid::of(is_fp4(granularity)             ? OCTAVO_E4M3FN
                      : block_cols(granularity) == 32 ? OCTAVO_E8M0FNU
                                                      : OCTAVO_F32,
                      divided(rows, block_rows(granularity)),
                      divided(cols, block_cols(granularity)), gap);
  }
}

float scale_at(const Grid &scales, uint32_t granularity, const Grid &codes, int64_t row,
               int64_t col) {
  switch (granularity) {
    case OCTAVO_PER_TENSOR: return scales.at(0, 0);
    case OCTAVO_PER_ROW: return scales.at(row, 0);
    case OCTAVO_FLAT_256: return scales.at(0, (row * codes.cols + col) / 256);
    default: return scales.at(row / block_rows(granularity), col / block_cols(granularity));
  }
}

bool is_block(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X128 || granularity == OCTAVO_BLOCK_128X128 ||
         granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32 ||
         is_fp4(granularity);
}

bool is_fp4(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X16 || granularity == OCTAVO_BLOCK_16X16;
}

bool is_state(uint32_t granularity) {
  return granularity == OCTAVO_FLAT_256 || granularity == OCTAVO_EXPANDED_128;
}

int64_t block_cols(uint32_t granularity) {
  if (is_fp4(granularity)) return 16;
  return granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32 ? 32 : 128;
}

float largest_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_E4M3FN: return kMaxE4m3;
    case OCTAVO_E5M2: return kMaxE5m2;
    case OCTAVO_F16: return kMaxF16;
    case OCTAVO_E2M1: return 6;
    case OCTAVO_BF16: return kMaxBf16;
    default: return 0x1.fffffep127f;
  }
}

const char *name_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "float32";
    case OCTAVO_BF16: return "bfloat16";
    case OCTAVO_F16: return "float16";
    case OCTAVO_E4M3FN: return "float8_e4m3fn";
    case OCTAVO_E5M2: return "float8_e5m2";
    case OCTAVO_E8M0FNU: return "float8_e8m0fnu";
    case OCTAVO_E2M1: return "float4_e2m1fn";
    case OCTAVO_I32: return "int32";
    case OCTAVO_U8: return "uint8";
    default: return "an unknown dtype";
  }
}

const char *granularity_name(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_PER_TENSOR: return "one scale";
    case OCTAVO_PER_ROW: return "scales of rows";
    case OCTAVO_BLOCK_1X128: return "blocks of 1x128";
    case OCTAVO_BLOCK_128X128: return "blocks of 128x128";
    case OCTAVO_BLOCK_1X32: return "blocks of 1x32";
    case OCTAVO_FLAT_256: return "groups of 256";
    case OCTAVO_BLOCK_32X32: return "blocks of 32x32";
    case OCTAVO_BLOCK_1X16: return "blocks of 1x16";
    case OCTAVO_BLOCK_16X16: return "blocks of 16x16";
    case OCTAVO_EXPANDED_128: return "expanded groups of 128";
    default: return "an unknown granularity";
  }
}

std::string shape_text(const Grid &grid) {
  return text("[", grid.rows, ", ", grid.cols,
              grid.stride == grid.cols ? std::string("]") : text("], stride ", grid.stride));
}

}  // namespace octavo::conformance::kernels

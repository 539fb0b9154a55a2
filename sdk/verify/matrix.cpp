// Contents and element access of the suite's matrices.
//
// Conversions are written with frexp and ldexp on doubles: they must not share code with the
// kernels under test.
#include "matrix.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "report.h"

namespace octavo::conformance {
namespace {

// A value of a binary format with `mantissa` bits and the given exponent bias.
double decode_bits(uint32_t bits, int mantissa, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto sign = (bits >> (mantissa + exponent_bits)) != 0 ? -1.0 : 1.0;
  const auto exponent = static_cast<int>((bits >> mantissa) & ((1u << exponent_bits) - 1));
  const double fraction = std::ldexp(static_cast<double>(bits & ((1u << mantissa) - 1)), -mantissa);
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

uint16_t encode_f16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return 0x7E00;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | 0x7C00);
  if (value == 0) return sign;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const double bits = exponent < -13 ? std::ldexp(std::fabs(value), 24)
                                     : std::ldexp(fraction * 2 - 1, 10) + (exponent + 14) * 1024.0;
  if (exponent > 16 || bits != std::floor(bits)) throw Failure("the suite lost bits in f16");
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(bits));
}

}  // namespace

uint64_t mix(uint64_t seed, uint64_t i) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + (i + 1) * 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t element_bytes(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) / 8;
}

std::string dtype_name(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "f32";
    case OCTAVO_BF16: return "bf16";
    case OCTAVO_F16: return "f16";
    case OCTAVO_I32: return "i32";
    case OCTAVO_U8: return "u8";
    case OCTAVO_E4M3FN: return "e4m3fn";
    case OCTAVO_E5M2: return "e5m2";
    default: return text("dtype ", dtype);
  }
}

double decode(uint32_t dtype, const uint8_t *element) {
  if (dtype == OCTAVO_F32) {
    float value = 0;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, element, sizeof bits);
  if (dtype == OCTAVO_BF16) return decode_bits(bits, 7, 8);
  if (dtype == OCTAVO_F16) return decode_bits(bits, 10, 5);
  throw Failure(text("the suite cannot decode ", dtype_name(dtype)));
}

void encode(uint32_t dtype, double value, uint8_t *element) {
  if (dtype == OCTAVO_F16) {
    const uint16_t bits = encode_f16(value);
    std::memcpy(element, &bits, sizeof bits);
    return;
  }
  const auto f = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof bits);
  if (dtype == OCTAVO_F32) {
    std::memcpy(element, &bits, sizeof bits);
  } else if (dtype == OCTAVO_BF16) {
    if (!std::isnan(value) && (bits & 0xFFFF) != 0) throw Failure("the suite lost bits in bf16");
    const auto high = static_cast<uint16_t>(std::isnan(value) ? 0x7FC0 : bits >> 16);
    std::memcpy(element, &high, sizeof high);
  } else {
    throw Failure(text("the suite cannot encode ", dtype_name(dtype)));
  }
}

uint8_t *Matrix::element(int64_t row, int64_t col) const {
  return static_cast<uint8_t *>(tensor.data) +
         static_cast<uint64_t>(row * tensor.stride + col) * element_bytes(tensor.dtype);
}

double Matrix::at(int64_t row, int64_t col) const {
  return decode(tensor.dtype, element(row, col));
}

void Matrix::set(int64_t row, int64_t col, double value) {
  encode(tensor.dtype, value, element(row, col));
}

Matrix make_matrix(Arena &arena, const std::string &name, int64_t rows, int64_t cols,
                   uint32_t dtype, int64_t gap, uint32_t role) {
  Matrix m;
  const int64_t stride = cols + gap;
  const int64_t elements = rows == 0 ? 0 : (rows - 1) * stride + cols;
  uint8_t *data = arena.allocate(static_cast<uint64_t>(elements) * element_bytes(dtype),
                                 Use::kTensor, name, role);
  m.tensor = {rows == 0 ? nullptr : data, rows, cols, stride, dtype, 0};
  return m;
}

void fill(Matrix &m, uint64_t seed, double bound) {
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) {
      const uint64_t random = mix(seed, static_cast<uint64_t>(row * m.cols() + col));
      const auto steps = static_cast<double>(random % 511) - 255;
      m.set(row, col, steps / 256 * bound);
    }
  }
}

void vary_rows(Matrix &m) {
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col)
      m.set(row, col, std::ldexp(m.at(row, col), -static_cast<int>(row % 5)));
  }
}

void fill_zero(Matrix &m) {
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) m.set(row, col, 0);
  }
}

std::vector<uint8_t> bytes_of(const Matrix &m) {
  const uint64_t width = static_cast<uint64_t>(m.cols()) * element_bytes(m.tensor.dtype);
  std::vector<uint8_t> bytes;
  for (int64_t row = 0; row < m.rows(); ++row) {
    bytes.insert(bytes.end(), m.element(row, 0), m.element(row, 0) + width);
  }
  return bytes;
}

bool has_nonfinite(const std::vector<double> &values) {
  for (const double value : values) {
    if (!std::isfinite(value)) return true;
  }
  return false;
}

std::vector<double> values_of(const Matrix &m) {
  std::vector<double> values;
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) values.push_back(m.at(row, col));
  }
  return values;
}

void expect_equal_bits(const Matrix &found, const std::vector<uint8_t> &expected,
                       const std::string &what) {
  const uint64_t width = element_bytes(found.tensor.dtype);
  for (int64_t row = 0; row < found.rows(); ++row) {
    for (int64_t col = 0; col < found.cols(); ++col) {
      const uint64_t at = static_cast<uint64_t>(row * found.cols() + col) * width;
      if (std::memcmp(found.element(row, col), expected.data() + at, width) == 0) continue;
      throw Failure(text(what, ": element [", row, ", ", col, "] should be ",
                         decode(found.tensor.dtype, expected.data() + at), " but is ",
                         found.at(row, col), " (bits differ)"));
    }
  }
}

}  // namespace octavo::conformance

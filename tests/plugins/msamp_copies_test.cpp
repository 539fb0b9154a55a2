// read_parameter and write_parameter of msamp: every role, every plain dtype, to within one code.
#include "octavo/draft/msamp.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 8, kK = 48;

// A plain tensor in one of the three dtypes that cross the border.
class Plain {
 public:
  Plain(uint32_t dtype, int64_t rows, int64_t cols)
      : dtype_(dtype), rows_(rows), cols_(cols), bytes_(static_cast<size_t>(rows * cols) * 4) {}
  octavo_tensor tensor() { return {bytes_.data(), rows_, cols_, cols_, dtype_, 0}; }
  // Rounds to the dtype; the values that it now holds.
  Matrix set(const Matrix &m) {
    for (size_t i = 0; i < m.v.size(); ++i) {
      if (dtype_ == OCTAVO_F32) {
        std::memcpy(&bytes_[4 * i], &m.v[i], 4);
        continue;
      }
      const uint16_t bits =
          dtype_ == OCTAVO_BF16
              ? static_cast<uint16_t>(std::bit_cast<uint32_t>(bfloat_of(m.v[i])) >> 16)
              : half_bits(half_of(m.v[i]));
      std::memcpy(&bytes_[2 * i], &bits, 2);
    }
    return get();
  }
  Matrix get() const {
    Matrix m(rows_, cols_);
    for (size_t i = 0; i < m.v.size(); ++i) {
      uint16_t bits = 0;
      if (dtype_ == OCTAVO_F32)
        std::memcpy(&m.v[i], &bytes_[4 * i], 4);
      else
        std::memcpy(&bits, &bytes_[2 * i], 2);
      if (dtype_ == OCTAVO_BF16) m.v[i] = std::bit_cast<float>(uint32_t{bits} << 16);
      if (dtype_ == OCTAVO_F16) m.v[i] = half_value(bits);
    }
    return m;
  }

 private:
  static float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float v = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    return bits & 0x8000 ? -v : v;
  }
  static uint16_t half_bits(float v) {
    const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
    const int exponent = v == 0 ? -15 : std::max(std::ilogb(v), -15);
    if (exponent < -14) return static_cast<uint16_t>(sign + std::ldexp(std::fabs(v), 24));
    return static_cast<uint16_t>(sign + ((exponent + 14) << 10) +
                                 static_cast<int>(std::ldexp(std::fabs(v), 10 - exponent)));
  }
  uint32_t dtype_;
  int64_t rows_, cols_;
  std::vector<char> bytes_;
};

// The distance of two neighbouring values of `bits` significant bits around v, whose smallest
// exponent is `least`.
double unit_of(double v, int bits, int least) {
  return std::ldexp(1.0, std::max(v == 0 ? least : std::ilogb(v), least) - bits + 1);
}

// One unit of the stored format at v, from the slot's dtype and the scale_inv beside it.
double stored_unit(Msamp &m, const std::string &name, size_t i, double v) {
  const octavo_slot &s = *m.slot(name);
  if (s.dtype == OCTAVO_F32) return unit_of(v, 24, -126);
  const float *scales = m.floats(name + "/scale_inv");
  const int bits = s.dtype == OCTAVO_F16 ? 11 : 4, least = s.dtype == OCTAVO_F16 ? -14 : -6;
  if (s.granularity == OCTAVO_EXPANDED_128) {
    // code = (v / c)^k / scale_inv, so one unit u of a code changes v by c's power of it.
    const float *group = scales + i / 128 * 3;
    const double k = group[1], c = group[2];
    const double code = std::pow(std::fabs(v) / c, k) / group[0];
    const double next = code + unit_of(code, bits, least);
    return c * std::pow(next * group[0], 1 / k) - std::fabs(v);
  }
  const double scale = s.granularity == OCTAVO_FLAT_256 ? scales[i / 256] : scales[0];
  return scale * unit_of(v / scale, bits, least);
}
// Half a unit of the dtype that the value was read into.
double read_error(uint32_t dtype, double v) {
  return dtype == OCTAVO_F32    ? 0
         : dtype == OCTAVO_BF16 ? unit_of(v, 8, -126) / 2
                                : unit_of(v, 11, -14) / 2;
}

class MsampCopies : public testing::TestWithParam<Variant> {};

TEST_P(MsampCopies, every_role_and_dtype) {
  Msamp m(GetParam().lines);
  m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.add_parameter(rough_matrix(kN, kK, 2, 1.0f));
  m.seal();
  struct Role {
    uint32_t role;
    const char *name;
  };
  std::vector<Role> roles = {{OCTAVO_ROLE_WEIGHT, "weight"},
                             {OCTAVO_ROLE_GRADIENT, "gradient"},
                             {OCTAVO_ROLE_EXP_AVG, "exp_avg"},
                             {OCTAVO_ROLE_EXP_AVG_SQ, "exp_avg_sq"}};
  roles.push_back(
      {OCTAVO_ROLE_MASTER_WEIGHT, m.slot("master_weight") ? "master_weight" : "weight"});
  for (const Role &role : roles) {
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      Plain written(dtype, kN, kK), found(dtype, kN, kK);
      Matrix values = rough_matrix(kN, kK, 7, 6.0f);
      if (role.role == OCTAVO_ROLE_EXP_AVG_SQ)
        for (float &v : values.v) v = std::fabs(v);
      values.v[5] = 0;
      values = written.set(values);
      ASSERT_EQ(m.write_from(0, role.role, written.tensor()), OCTAVO_OK) << m.error();
      ASSERT_EQ(m.read_to(0, role.role, found.tensor()), OCTAVO_OK) << m.error();
      const Matrix read = found.get();
      for (size_t i = 0; i < values.v.size(); ++i) {
        const double v = values.v[i];
        ASSERT_LE(std::fabs(double{read.v[i]} - v),
                  stored_unit(m, role.name, i, v) * (1 + 1e-5) + read_error(dtype, v))
            << role.name << " dtype " << dtype << " element " << i << ": " << v;
      }
      EXPECT_EQ(read.v[5], 0.0f);
      // What was read is what the slot holds, so written back it changes nothing.
      if (dtype != OCTAVO_F32) continue;
      ASSERT_EQ(m.write_from(0, role.role, found.tensor()), OCTAVO_OK);
      if (m.slot(role.name)->granularity == OCTAVO_PER_TENSOR)
        expect_same(m.read(0, role.role), read, role.name);
    }
  }
}

// The host's own tensors are copied, and rounded to the dtype asked for.
TEST_P(MsampCopies, native_parameter) {
  Msamp m(GetParam().lines);
  m.add_parameter(rough_matrix(kN, kK, 2, 1.0f));
  m.seal();
  for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_MASTER_WEIGHT}) {
    expect_same(m.read(0, role), m.value(0), "f32");
    Plain half(OCTAVO_F16, kN, kK);
    const Matrix values = half.set(rough_matrix(kN, kK, 3, 2.0f));
    ASSERT_EQ(m.write_from(0, role, half.tensor()), OCTAVO_OK) << m.error();
    expect_same(m.value(0), values, "f16");
  }
}

constexpr Variant kVariants[] = {
    {"o1", "opt_level = \"O1\""},        {"o2", "opt_level = \"O2\""},
    {"o3", "opt_level = \"O3\""},        {"block", "state_format = \"e4m3-block\""},
    {"coat", "state_format = \"coat\""}, {"fp32_gradients", "gradient_accumulation = \"fp32\""}};
INSTANTIATE_TEST_SUITE_P(Of, MsampCopies, testing::ValuesIn(kVariants), name_of);

// O3: the codes come from the f16 master wherever it lies, so every rank has the same ones, and
// writing one role writes the other.
TEST(MsampCopiesO3, weight_and_master_on_every_rank) {
  const Matrix values = rough_matrix(kN, kK, 4, 2.0f), master = scaled_half(values);
  const Quantized codes = by_rule(kE4m3, master);
  for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_MASTER_WEIGHT}) {
    for (const uint32_t rank : {0u, 1u}) {
      Msamp m("opt_level = \"O3\"", rank, 2);
      m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
      m.seal();
      ASSERT_EQ(octavo_store_owner(m.store(), 0), 0u);
      ASSERT_EQ(m.write(0, role, values), OCTAVO_OK) << m.error();
      expect_same(m.read(0, OCTAVO_ROLE_WEIGHT), dequantized(codes), "weight");
      EXPECT_EQ(*m.floats("weight/scale_inv"), codes.scale_inv);
      Matrix found;
      if (rank == 0) {
        expect_same(m.read(0, OCTAVO_ROLE_MASTER_WEIGHT), master, "master");
      } else {
        EXPECT_EQ(m.memory("master_weight"), nullptr);
        EXPECT_EQ(m.read(0, OCTAVO_ROLE_MASTER_WEIGHT, found), OCTAVO_INVALID);
        EXPECT_EQ(m.error(),
                  "read_parameter \"p0\": expected a role that this parameter has and whose slots "
                  "are on this rank, found role 2");
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test

/* Golden vectors, block/: quantize with block granularities against public libraries.
 *
 * Bit-exact, on every level of this CPU. Every file that index.csv lists below block/ is read: the
 * test lists what it compared, so that a file nobody looks at fails.
 */
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

/* What a file name says: <prefix>_codes.bin beside <prefix>_<scale>.bin. */
struct Scheme {
  std::string codes;
  std::string scales;
  uint32_t granularity;
  uint32_t rule;
  uint32_t dtype;
  bool is_transposed;   /* quantized as out_t */
  bool codes_t;         /* the file holds the codes of out_t as they are, else transposed back */
  bool repeats_squares; /* the file repeats the scale of a square block for each of its rows */
};

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* The schemes whose files lie in one folder. */
std::vector<Scheme> schemes_of(const std::string &folder) {
  std::vector<Scheme> schemes;
  for (const VectorFile &file : VectorFiles::get().files()) {
    const std::string &path = file.path;
    if (path.rfind(folder + "/", 0) != 0 || !contains(path, "_codes")) continue;
    const std::string name = path.substr(folder.size() + 1);
    const std::string stem = path.substr(0, path.find("_codes"));
    Scheme s = {};
    s.codes = path;
    s.dtype = contains(name, "e5m2") ? OCTAVO_E5M2 : OCTAVO_E4M3FN;
    s.codes_t = contains(name, "_codes_t");
    s.is_transposed = s.codes_t || contains(name, "_col_") || contains(name, "128x1_");
    if (name.rfind("te_", 0) == 0) {
      s.rule = contains(name, "pow2") ? OCTAVO_RULE_POW2 : OCTAVO_RULE_QUOTIENT;
      s.scales = stem + (s.codes_t ? "_scaleinv_t.bin" : "_scaleinv.bin");
    } else if (name.rfind("dg_", 0) == 0) {
      s.rule = contains(name, "ue8m0") ? OCTAVO_RULE_DEEPGEMM_POW2 : OCTAVO_RULE_DEEPGEMM;
      s.scales = stem + "_sf.bin";
    } else if (name.rfind("mx_", 0) == 0) {
      s.rule = contains(name, "mx_te") ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_MX_FLOOR;
      s.scales = stem + "_e8m0.bin";
    } else {
      throw std::runtime_error(path + " belongs to no scheme that this test knows");
    }
    s.repeats_squares = contains(name, "mx_te_2d");
    if (name.rfind("mx_", 0) == 0) {
      s.granularity = s.repeats_squares ? OCTAVO_BLOCK_32X32 : OCTAVO_BLOCK_1X32;
    } else {
      s.granularity = contains(name, "128x128") ? OCTAVO_BLOCK_128X128 : OCTAVO_BLOCK_1X128;
    }
    schemes.push_back(s);
  }
  return schemes;
}

Matrix input_of(const std::string &folder) {
  const VectorFile &file = VectorFiles::get().file(folder + "/x.bin");
  Matrix in(file.type == "u16" ? OCTAVO_BF16 : OCTAVO_F32, file.shape.at(0), file.shape.at(1));
  const std::vector<uint8_t> raw = VectorFiles::get().bytes(file.path);
  std::memcpy(in.at(0, 0), raw.data(), raw.size());
  return in;
}

/* Microxcaling multiplies by torch.sign, which is +0 for an input of -0; the contract of a cast
 * keeps the sign of zero, as the other sources do. */
constexpr int32_t kMinusZero = INT32_MIN;

/* out alone, or out_t alone, must be what both together give. */
void expect_golden(Kernels *kernels, const Matrix &in, const Scheme &s, bool with_other) {
  Matrix out(s.dtype, in.rows(), in.cols(), 3);
  Matrix out_t(s.dtype, in.cols(), in.rows(), 1);
  Scales scales(s.granularity, in.rows(), in.cols(), 2);
  Scales scales_t(s.granularity, in.cols(), in.rows(), 1);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.rule = s.rule;
  c.format_max = s.dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
  if (with_other || !s.is_transposed) {
    c.out = out.tensor();
    c.out_scale_inv = scales.get();
  }
  if (with_other || s.is_transposed) {
    c.out_t = out_t.tensor();
    c.out_t_scale_inv = scales_t.get();
  }
  ASSERT_EQ(kernels->quantize(c), OCTAVO_OK) << kernels->host().last_text();

  const VectorFiles &files = VectorFiles::get();
  const std::vector<uint8_t> codes = files.array<uint8_t>(s.codes);
  ASSERT_EQ(static_cast<int64_t>(codes.size()), in.rows() * in.cols());
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t col = 0; col < in.cols(); ++col) {
      const int64_t index = s.codes_t ? col * in.rows() + row : row * in.cols() + col;
      const uint8_t found = s.is_transposed ? out_t.code(col, row) : out.code(row, col);
      uint8_t expected = codes[static_cast<size_t>(index)];
      if (s.rule == OCTAVO_RULE_MX_FLOOR && float_bits(in.get(row, col)) == kMinusZero) {
        expected = 0x80;
      }
      ASSERT_EQ(+found, +expected) << s.codes << " " << row << ", " << col;
    }
  }

  /* Scales of blocks along columns are stored as [row blocks, cols], those of out_t the other way
   * round, except in files that end in _t. */
  const Scales &found = s.is_transposed ? scales_t : scales;
  const bool is_e8m0 = is_mx(s.granularity);
  const VectorFile &file = files.file(s.scales);
  const std::vector<uint8_t> bytes = files.bytes(s.scales);
  const bool swaps = s.is_transposed && !s.codes_t;
  const int64_t repeat = s.repeats_squares ? 32 : 1;
  ASSERT_EQ(file.shape.at(swaps ? 1 : 0), found.rows() * repeat) << s.scales;
  ASSERT_EQ(file.shape.at(swaps ? 0 : 1), found.cols()) << s.scales;
  for (int64_t i = 0; i < file.shape[0]; ++i) {
    for (int64_t j = 0; j < file.shape[1]; ++j) {
      const auto index = static_cast<size_t>(i * file.shape[1] + j);
      float expected = 0;
      if (is_e8m0) {
        expected = decode_e8m0(bytes[index]);
      } else {
        std::memcpy(&expected, bytes.data() + index * sizeof(float), sizeof(float));
      }
      const float value = swaps ? found.block(j / repeat, i) : found.block(i / repeat, j);
      ASSERT_TRUE(same_value(value, expected))
          << s.scales << " " << i << ", " << j << ": " << value << ", expected " << expected;
    }
  }
}

TEST(GoldenBlock, every_case_on_every_level) {
  std::set<std::string> compared;
  const std::vector<std::string> folders = VectorFiles::get().folders("block");
  EXPECT_EQ(folders.size(), 8u);
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const std::string &folder : folders) {
      const Matrix in = input_of(folder);
      compared.insert(folder + "/x.bin");
      for (const Scheme &s : schemes_of(folder)) {
        for (const bool with_other : {false, true}) {
          ASSERT_NO_FATAL_FAILURE(expect_golden(&kernels, in, s, with_other)) << level;
        }
        compared.insert(s.codes);
        compared.insert(s.scales);
      }
    }
  }
  size_t listed = 0;
  for (const VectorFile &file : VectorFiles::get().files()) {
    if (file.path.rfind("block/", 0) != 0) continue;
    EXPECT_EQ(compared.count(file.path), 1u) << file.path << " was compared with nothing";
    ++listed;
  }
  EXPECT_EQ(compared.size(), listed);
}

float format_max(const Csv &table, size_t row) {
  return table.text(row, "fmt") == "e4m3" ? kMaxE4m3 : kMaxE5m2;
}

/* scale_inv of a 1 x 1 input of this value, as quantize writes it. */
float quantized_scale_inv(Kernels *kernels, const Csv &table, size_t row, const Matrix &in,
                          uint32_t granularity) {
  Matrix out(table.text(row, "fmt") == "e4m3" ? OCTAVO_E4M3FN : OCTAVO_E5M2, 1, 1);
  float scale_inv = 0.0f;
  const octavo_scale scale = OCTAVO_SCALE(&scale_inv, 1, OCTAVO_F32, granularity);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_scale_inv = &scale;
  c.rule = table.integer(row, "pow2") == 1 ? OCTAVO_RULE_POW2 : OCTAVO_RULE_QUOTIENT;
  c.format_max = format_max(table, row);
  c.eps = table.real(row, "eps_bits");
  EXPECT_EQ(kernels->quantize(c), OCTAVO_OK) << kernels->host().last_text();
  return scale_inv;
}

/* The tables of amax and eps through quantize, where the input's dtype has a value of that amax. An
 * amax of NaN is none that quantize measures. */
TEST(GoldenBlock, scale_tables_with_eps_through_quantize) {
  Kernels kernels;
  size_t with_eps = 0; /* te_block has none */
  for (const bool is_block : {false, true}) {
    const std::string path = std::string("scale/") + (is_block ? "te_block" : "te_current");
    const Csv table = VectorFiles::get().csv(path + ".csv");
    size_t compared = 0;
    for (size_t row = 0; row < table.rows(); ++row) {
      const float amax = table.real(row, "amax_bits");
      const std::string &dtype = table.text(row, "input_dtype");
      Matrix in(dtype == "fp32" ? OCTAVO_F32 : dtype == "bf16" ? OCTAVO_BF16 : OCTAVO_F16, 1, 1);
      in.set(0, 0, amax);
      if (in.get(0, 0) != amax) continue;
      const uint32_t granularity = is_block ? OCTAVO_BLOCK_1X128 : OCTAVO_PER_TENSOR;
      const float found = quantized_scale_inv(&kernels, table, row, in, granularity);
      EXPECT_TRUE(same_value(found, table.real(row, "scale_inv_bits"))) << path << " row " << row;
      ++compared;
      if (table.real(row, "eps_bits") > 0.0f) ++with_eps;
    }
    EXPECT_GT(compared, table.rows() / 10) << path;
  }
  EXPECT_GT(with_eps, 0u);
}

}  // namespace
}  // namespace octavo::test

/* Golden vectors, nvfp4/: casts to E2M1 against Transformer Engine's own reference, bit-exact on
 * every level of this CPU. Every file that index.csv lists below nvfp4/ is read: the test lists
 * what it compared, so that a file nobody looks at fails.
 */
#include <gtest/gtest.h>

#include <set>

#include "tests/kernels/fp4_case.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

class Golden {
 public:
  explicit Golden(std::string folder) : folder_(std::move(folder)) {}

  Matrix input() {
    const VectorFile &file = take("x");
    Matrix in(file.type == "u16" ? OCTAVO_BF16 : OCTAVO_F32, file.shape.at(0), file.shape.at(1));
    const std::vector<uint8_t> raw = VectorFiles::get().bytes(file.path);
    std::memcpy(in.at(0, 0), raw.data(), raw.size());
    return in;
  }
  bool has(const std::string &way) const {
    return VectorFiles::get().has(folder_ + "/" + way + "_codes.bin");
  }
  /* One form of a matrix, `_t` or not. */
  void expect(const Fp4Codes &found, const std::string &way, const std::string &suffix) {
    const auto codes = VectorFiles::get().array<uint8_t>(take(way + "_codes" + suffix).path);
    const auto scales = VectorFiles::get().array<uint8_t>(take(way + "_scales" + suffix).path);
    const auto amax = VectorFiles::get().array<uint32_t>(take(way + "_amax").path);
    ASSERT_EQ(codes.size() + 1, found.codes.size());
    ASSERT_EQ(static_cast<int64_t>(scales.size()), found.rows * found.cols / 16);
    EXPECT_EQ(static_cast<uint32_t>(float_bits(found.second)), amax.at(suffix.empty() ? 0 : 1));
    for (size_t i = 0; i < codes.size(); ++i)
      ASSERT_EQ(+found.codes[i], +codes[i]) << folder_ << " " << way << suffix << ", byte " << i;
    for (int64_t row = 0; row < found.rows; ++row)
      for (int64_t col = 0; col < found.cols; col += 16)
        ASSERT_EQ(found.scale_code(row, col),
                  scales[static_cast<size_t>((row * found.cols + col) / 16)])
            << folder_ << " " << way << suffix << " [" << row << ", " << col << "]";
  }

  std::set<std::string> compared;

 private:
  const VectorFile &take(const std::string &name) {
    const VectorFile &file = VectorFiles::get().file(folder_ + "/" + name + ".bin");
    compared.insert(file.path);
    return file;
  }
  std::string folder_;
};

TEST(GoldenFp4, every_case_on_every_level) {
  const struct {
    const char *name;
    bool square;
    uint32_t flags;
  } ways[] = {{"plain", false, 0}, {"square", true, 0}, {"hadamard", false, OCTAVO_FP4_HADAMARD}};
  std::set<std::string> compared;
  const std::vector<std::string> folders = VectorFiles::get().folders("nvfp4");
  EXPECT_EQ(folders.size(), 7u);
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const std::string &folder : folders) {
      Golden golden(folder);
      Matrix in = golden.input();
      for (const auto &way : ways) {
        if (!golden.has(way.name)) continue;
        Fp4Codes out(in.rows(), in.cols(), way.square), out_t(in.cols(), in.rows(), way.square);
        ASSERT_EQ((Fp4Cast{*in.tensor(), &out, &out_t, way.flags}.run(&kernels)), OCTAVO_OK);
        ASSERT_NO_FATAL_FAILURE(golden.expect(out, way.name, ""));
        ASSERT_NO_FATAL_FAILURE(golden.expect(out_t, way.name, "_t"));
      }
      compared.merge(golden.compared);
    }
  }
  size_t listed = 0;
  for (const VectorFile &file : VectorFiles::get().files()) {
    if (file.path.rfind("nvfp4/", 0) != 0) continue;
    EXPECT_EQ(compared.count(file.path), 1u) << file.path << " was compared with nothing";
    ++listed;
  }
  EXPECT_EQ(compared.size(), listed);
}

}  // namespace
}  // namespace octavo::test

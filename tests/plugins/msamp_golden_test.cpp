// The derived optimizer vectors of tests/vectors/optim through msamp's own optimizer_step.
//
// Each step starts from the recorded state of the step before, put into the slots. Scales match to
// the bit, codes too, except for neighbours where the recording marks a tie. msamp-fixed stores no
// second moment above 0 as code 0: there, and only there, it has code 1 instead;
// the recordings at hand have no such element. Recorded codes are rounded to nearest even.
#include "tests/kernels/vector_files.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

struct Golden {
  const char *name;
  const char *lines;
};
void PrintTo(const Golden &g, std::ostream *out) {
  *out << g.name;
}
constexpr Golden kGolden[] = {
    {"derived_o2_adamw", "opt_level = \"O2\"\nstate_rounding = \"nearest\""},
    {"derived_o2_adam_l2_fixed",
     "opt_level = \"O2\"\noptimizer = \"adam\"\nstate_rounding = \"nearest\""},
    {"derived_o2_adam_l2_msamp04",
     "opt_level = \"O2\"\noptimizer = \"adam\"\nprofile = \"msamp04\""}};

class MsampGolden : public testing::TestWithParam<Golden> {
 protected:
  static constexpr size_t kCount = 512;
  MsampGolden()
      : m(GetParam().lines),
        folder("optim/" + std::string(GetParam().name)),
        scales(files.csv(folder + "/scales.csv")) {
    const Csv table = files.csv("optim/hyper.csv");
    for (size_t row = 0; row < table.rows(); ++row) {
      if (table.text(row, "case") != GetParam().name) continue;
      EXPECT_EQ(table.integer(row, "elements"), int{kCount});
      steps = static_cast<size_t>(table.integer(row, "steps"));
      const auto real = [&](const char *c) { return std::stof(table.text(row, c)); };
      m.hyper()[OCTAVO_HYPER_LR] = real("lr");
      m.hyper()[OCTAVO_HYPER_BETA1] = real("beta1");
      m.hyper()[OCTAVO_HYPER_BETA2] = real("beta2");
      m.hyper()[OCTAVO_HYPER_EPS] = real("eps");
      m.hyper()[OCTAVO_HYPER_WEIGHT_DECAY] = real("weight_decay");
    }
    m.add_linear(Matrix(16, 32, 1.0f));
    m.seal();
  }

  template <typename Code>
  std::vector<Code> row_of(const char *name, size_t row) const {
    const std::vector<Code> all = files.array<Code>(folder + "/" + name + ".bin");
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * kCount);
    return {begin, begin + static_cast<std::ptrdiff_t>(kCount)};
  }
  // The codes behind step k, and the scale_inv of them.
  template <typename Code>
  void put(const char *slot, const std::vector<Code> &codes, size_t k, const char *column) {
    std::memcpy(m.memory(slot), codes.data(), codes.size() * sizeof(Code));
    *m.floats(std::string(slot) + "/scale_inv") = 1.0f / scales.real(k, column);
  }
  template <typename Code>
  std::vector<Code> get(const char *slot) {
    const auto *codes = static_cast<const Code *>(m.memory(slot));
    return {codes, codes + kCount};
  }
  template <typename Code>
  void expect_codes(const char *slot, const char *codes, const char *ties, size_t k) {
    const std::vector<Code> found = get<Code>(slot), recorded = row_of<Code>(codes, k);
    const std::vector<uint8_t> tie = row_of<uint8_t>(ties, k);
    for (size_t i = 0; i < kCount; ++i) {
      if (is_second_moment(slot) && recorded[i] == 0 && kept_positive(k, i)) {
        ASSERT_EQ(found[i], 1) << slot << " step " << k << " element " << i;
        continue;
      }
      const int off = std::abs(int{found[i]} - int{recorded[i]});
      ASSERT_LE(off, tie[i] == 1 ? 1 : 0) << slot << " step " << k << " element " << i;
    }
  }
  static bool is_second_moment(const std::string &slot) { return slot == "exp_avg_sq"; }
  // Whether msamp-fixed must lift the second moment of step k off code 0: it is above 0 in exact
  // arithmetic, from the recorded state before the step.
  bool kept_positive(size_t k, size_t i) {
    if (std::string(GetParam().lines).find("msamp04") != std::string::npos) return false;
    const bool had = k > 0 && row_of<uint16_t>("v_codes", k - 1)[i] != 0;
    const bool has_gradient = (row_of<uint8_t>("grad_codes", k)[i] & 0x7F) != 0;
    const bool decays = std::string(GetParam().lines).find("\"adam\"") != std::string::npos;
    const std::vector<uint16_t> w =
        k == 0 ? row_of<uint16_t>("w0_codes", 0) : row_of<uint16_t>("w_codes", k - 1);
    const bool has_decay = decays && (w[i] & 0x7FFF) != 0;
    return had || has_gradient || has_decay;
  }

  const VectorFiles &files = VectorFiles::get();
  Msamp m;
  std::string folder;
  Csv scales;
  size_t steps = 0;
};

TEST_P(MsampGolden, every_step) {
  ASSERT_EQ(steps, 12u);
  for (size_t k = 0; k < steps; ++k) {
    const std::vector<uint8_t> zero8(kCount, 0);
    const std::vector<uint16_t> zero16(kCount, 0);
    put("exp_avg", k == 0 ? zero8 : row_of<uint8_t>("m_codes", k - 1), k, "m_scale_bits");
    put("exp_avg_sq", k == 0 ? zero16 : row_of<uint16_t>("v_codes", k - 1), k, "v_scale_bits");
    put("weight", k == 0 ? row_of<uint16_t>("w0_codes", 0) : row_of<uint16_t>("w_codes", k - 1), k,
        "w_scale_bits");
    put("gradient", row_of<uint8_t>("grad_codes", k), k + 1, "grad_scale_bits");
    EXPECT_EQ(*static_cast<int32_t *>(m.memory("step")), static_cast<int32_t>(k));
    ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
    EXPECT_EQ(1.0f / *m.floats("exp_avg/scale_inv"), scales.real(k + 1, "m_scale_bits")) << k;
    EXPECT_EQ(1.0f / *m.floats("exp_avg_sq/scale_inv"), scales.real(k + 1, "v_scale_bits")) << k;
    EXPECT_EQ(1.0f / *m.floats("weight/scale_inv"), scales.real(k + 1, "w_scale_bits")) << k;
    ASSERT_NO_FATAL_FAILURE(expect_codes<uint8_t>("exp_avg", "m_codes", "m_tie", k));
    ASSERT_NO_FATAL_FAILURE(expect_codes<uint16_t>("exp_avg_sq", "v_codes", "v_tie", k));
    ASSERT_NO_FATAL_FAILURE(expect_codes<uint16_t>("weight", "w_codes", "w_tie", k));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MsampGolden, testing::ValuesIn(kGolden),
                         [](const auto &i) { return std::string(i.param.name); });

}  // namespace
}  // namespace octavo::test

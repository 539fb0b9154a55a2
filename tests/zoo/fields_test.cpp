// Every field of a plugin's two tables with 0, 1 and the largest number in it: each answer is
// exact, and none ends the host. The plugin's own process may end; then the probe says so.
#include <cstddef>
#include <string_view>

#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

struct Field {
  const char *name;
  const char *table;
  size_t offset;
  size_t bytes;
  // What the error holds for 0, 1 and the largest number; empty: the plugin opens.
  const char *zero, *one, *largest;
};

void PrintTo(const Field &f, std::ostream *out) {
  *out << f.name;
}

#define PLUGIN(field) #field, "plugin", offsetof(octavo_plugin, field), sizeof(octavo_plugin::field)
#define BACKEND(field) \
#field, "backend", offsetof(octavo_backend, field), sizeof(octavo_backend::field)
#define DATA(field) "data_of_" #field, "plugin", offsetof(octavo_plugin, field.data), 8
#define SIZE(field) "size_of_" #field, "plugin", offsetof(octavo_plugin, field.size), 8

constexpr const char *kNoTable = "its table is not an octavo_plugin: size ";
// A sanitizer in the helper sees some of these accesses before they happen, and exits.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char *kEnded = "the process that tries the plugin first ended ";
#else
constexpr const char *kEnded = "the process that tries the plugin first ended by signal ";
#endif
constexpr const char *kOther = "of its manifest, found \"";
constexpr const char *kNoBackend = "found a table of another kind";
constexpr const char *kOpens = "";

const Field kFields[] = {
    {PLUGIN(size), kNoTable, kNoTable, kOpens},
    {PLUGIN(kind), kNoTable, kNoTable, kNoTable},
    {PLUGIN(abi_major), "needs ABI 0.0", kOpens, "needs ABI 4294967295.0"},
    {PLUGIN(abi_minor), kOpens, "needs ABI 1.1", "needs ABI 1.4294967295"},
    {DATA(id), kOther, kEnded, kEnded},
    {SIZE(id), kOther, kOther, "found \"(a text of 18446744073709551615 bytes"},
    {DATA(version), kOpens, kEnded, kEnded},
    {SIZE(version), kOpens, kOpens, kOpens},
    {PLUGIN(get_interface), "its get_interface is null", kEnded, kEnded},
    {BACKEND(size), "lacks list_options, check_session, ", "lacks list_options, check_session, ",
     kOpens},
    {BACKEND(kind), kNoBackend, kNoBackend, kNoBackend},
    {BACKEND(list_options), "octavo.backend/1 lacks list_options, which", kEnded, kEnded},
    {BACKEND(check_session), "octavo.backend/1 lacks check_session, which", kEnded, kEnded},
    {BACKEND(open_session), "octavo.backend/1 lacks open_session, which", kEnded, kEnded},
    {BACKEND(add_parameter), "octavo.backend/1 lacks add_parameter, which", kEnded, kEnded},
    {BACKEND(add_linear), "octavo.backend/1 lacks add_linear, which", kEnded, kEnded},
    {BACKEND(seal), "octavo.backend/1 lacks seal, which", kEnded, kEnded},
    {BACKEND(linear_plan), "octavo.backend/1 lacks linear_plan, which", kEnded, kEnded},
    {BACKEND(quantize_weight), "quantize_weight, which the backend's table lacks", kEnded, kEnded},
    {BACKEND(linear_forward), "octavo.backend/1 lacks linear_forward, which", kEnded, kEnded},
    // Verbs that the self-test does not call.
    {BACKEND(linear_backward), "octavo.backend/1 lacks linear_backward, which", kOpens, kOpens},
    {BACKEND(end_step), "end_step, which the backend's table lacks", kOpens, kOpens},
    {BACKEND(close_session), "octavo.backend/1 lacks close_session, which", kEnded, kEnded},
};

class ZooField : public Cage, public testing::WithParamInterface<Field> {
 protected:
  // In a directory of its own, since an opened library stays.
  void expect(const char *which, uint64_t number, const std::string &words) {
    const Field &f = GetParam();
    put_fake(dir, which, "field");
    Environment outer;
    outer.set("FAKE_FIELD", std::string(f.table) + " " + std::to_string(f.offset) + " " +
                                std::to_string(f.bytes) + " " + std::to_string(number));
    Request own;
    own.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / which);
    RunPtr run;
    const octavo_status status = own.open(run);
    if (words.empty()) {
      EXPECT_EQ(status, OCTAVO_OK) << which << ": " << own.host.error();
    } else {
      EXPECT_TRUE(status == OCTAVO_UNSUPPORTED) << which << ": " << status;
      EXPECT_THAT(own.host.error(), HasSubstr(words)) << which;
    }
  }
};

TEST_P(ZooField, zero_one_and_largest) {
  const Field &f = GetParam();
  expect("zero", 0, f.zero);
  expect("one", 1, f.one);
  expect("largest", UINT64_MAX, f.largest);
}

INSTANTIATE_TEST_SUITE_P(All, ZooField, testing::ValuesIn(kFields),
                         [](const testing::TestParamInfo<Field> &i) {
                           return std::string(i.param.table) + "_" + i.param.name;
                         });

// ThreadSanitizer's functions for texts do not come back from an address that is no memory.
#ifdef __SANITIZE_THREAD__
constexpr bool kReportsBadTexts = false;
#else
constexpr bool kReportsBadTexts = true;
#endif

class ZooText : public Cage {};

TEST_F(ZooText, option_at_an_address_that_is_no_memory) {
  if (!kReportsBadTexts) GTEST_SKIP() << "ThreadSanitizer hangs in the helper";
  put("wild_option");
  expect_refusal(
      library() + ": the process that tries the plugin first ended by signal 11 (SIGSEGV)",
      "stage describe, " + library(),
      "install a corrected build; octavo doctor --retry tries the same file again");
}

TEST_F(ZooText, text_of_a_gibibyte_that_is_not_there) {
  put("huge_text");
  expect_refusal("backend fake: list_options failed with status 2; this is a defect of the plugin",
                 library(), "install a corrected build of the plugin");
}

TEST_F(ZooText, option_name_with_a_newline) {
  put("option_newline");
  expect_refusal("backend fake: list_options failed with status 2; this is a defect of the plugin",
                 library(), "install a corrected build of the plugin");
}

TEST_F(ZooText, verdict_of_a_tebibyte_prints_no_memory) {
  put("verdict_huge");
  std::string out;
  EXPECT_EQ(request().print(octavo_explain, "text", out), OCTAVO_OK);
  EXPECT_THAT(out, HasSubstr("(a text of 1099511627776 bytes, which is more than 4096)"));
}

// Verdicts, versions and diagnostics: shown, and spelled out.
TEST_F(ZooText, commands_to_a_terminal_are_spelled_out) {
  put("terminal");
  const std::string spelled = "\\x1b[31mred\\nerror: forged\\xc2\\x9b";
  for (const char *format : {"text", "tree"}) {
    std::string out;
    EXPECT_EQ(request().print(octavo_explain, format, out), OCTAVO_OK);
    EXPECT_THAT(out, HasSubstr(spelled));
    EXPECT_EQ(out.find('\x1b'), std::string::npos) << format;
    EXPECT_EQ(out.find("\xc2\x9b"), std::string::npos) << format;
    EXPECT_EQ(out.find("\nerror: forged"), std::string::npos) << format;
  }
  EXPECT_THAT(request().host.texts(OCTAVO_SEVERITY_INFO), testing::Contains(spelled));
}

TEST_F(ZooText, bytes_that_are_no_text_stay_out_of_reports) {
  put("not_utf8");
  for (const char *format : {"text", "tree", "json"}) {
    std::string out;
    EXPECT_EQ(request().print(octavo_explain, format, out), OCTAVO_OK);
    EXPECT_THAT(out, HasSubstr("accepts "));
    EXPECT_EQ(out.find('\xff'), std::string::npos) << format;
  }
}

}  // namespace
}  // namespace octavo::test

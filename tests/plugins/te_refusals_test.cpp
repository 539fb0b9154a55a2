// What te refuses, with the reason, the found value and the nearest legal setting of each.
#include <gmock/gmock.h>

#include <optional>

#include "octavo/draft/rounding.h"
#include "octavo/kernels.h"
#include "tests/plugins/layer.h"
#include "tests/plugins/te_refused.h"
#include "tests/support/abilities.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

// A session's description with other options and kernels than those of the run it is copied from.
class TeRefusals : public testing::Test {
 protected:
  TeRefusals() {
    run_ = request.set("fp8.backend", "te").set("plugins.trust", "dev").opened();
    EXPECT_NE(run_, nullptr) << request.host.error();
    if (run_ == nullptr) return;
    const octavo_session_desc *opened = octavo_run_session_desc(run_.get());
    std::memcpy(&desc, opened, std::min<size_t>(opened->size, sizeof desc));
    options.assign(opened->options, opened->options + opened->option_count);
    desc.options = options.data();
    kernels.emplace(*desc.kernels);
    desc.kernels = &kernels->table;
    backend = octavo_run_backend(run_.get());
  }
  void set(const std::vector<Given> &given) {
    for (const Given &g : given) {
      bool found = false;
      for (octavo_option_value &o : options) {
        if (text_of(o.name) != g.name) continue;
        EXPECT_EQ(o.value.type, g.value.type) << g.name;
        o.value = g.value;
        found = true;
      }
      EXPECT_TRUE(found) << g.name;
    }
  }
  struct Said {
    uint32_t decision;
    uint32_t reason;
    std::string text, evidence, remedy;
  };
  std::vector<Said> check() {
    std::vector<Said> said;
    octavo_verdict_sink sink{};
    sink.size = sizeof sink;
    sink.kind = OCTAVO_KIND_VERDICT_SINK;
    sink.ctx = &said;
    sink.verdict = [](void *ctx, const octavo_verdict *v) {
      static_cast<std::vector<Said> *>(ctx)->push_back(
          {v->decision, v->reason, text_of(v->text), text_of(v->evidence), text_of(v->remedy)});
    };
    EXPECT_EQ(backend->check_session(&desc, &sink), OCTAVO_OK);
    return said;
  }
  static std::vector<Said> declines(const std::vector<Said> &said) {
    std::vector<Said> only;
    for (const Said &s : said)
      if (s.decision == OCTAVO_DECLINE) only.push_back(s);
    return only;
  }
  void expect_not_opened(const std::string &text) {
    octavo_session *s = nullptr;
    EXPECT_EQ(backend->open_session(&desc, &s), OCTAVO_UNSUPPORTED);
    EXPECT_EQ(s, nullptr);
    EXPECT_THAT(request.host.error(), HasSubstr(text));
  }
  void expect_malformed(const std::string &text) {
    const octavo_verdict_sink sink = {sizeof sink, OCTAVO_KIND_VERDICT_SINK, nullptr,
                                      [](void *, const octavo_verdict *) { ADD_FAILURE(); }};
    octavo_session *s = nullptr;
    EXPECT_EQ(backend->check_session(&desc, &sink), OCTAVO_INVALID);
    EXPECT_EQ(backend->open_session(&desc, &s), OCTAVO_INVALID);
    EXPECT_EQ(s, nullptr);
    EXPECT_THAT(request.host.error(), HasSubstr(text));
  }

  Environment environment;
  Request request;
  octavo_session_desc desc{};
  std::optional<LackingKernels> kernels;
  std::vector<octavo_option_value> options;
  const octavo_backend *backend = nullptr;

 private:
  RunPtr run_;
};

TEST_F(TeRefusals, defaults_are_accepted) {
  EXPECT_TRUE(declines(check()).empty());
}

// As a host without liboctavo may pass it.
TEST_F(TeRefusals, an_option_that_is_not_listed) {
  options.push_back({borrow("recipes"), options.front().value});
  desc.options = options.data(), desc.option_count = options.size();
  expect_malformed("option \"recipes\": expected one of list_options, found none");
}

TEST_F(TeRefusals, a_flag_of_a_later_minor) {
  desc.flags |= OCTAVO_SESSION_DETERMINISTIC | uint64_t{2};
  expect_malformed("expected known flags of the session, at most 1, found 3");
}

TEST_F(TeRefusals, hybrid_with_mx_is_accepted_with_a_reason) {
  const auto reasons = [&] {
    std::vector<Said> only;
    for (const Said &s : check())
      if (s.reason != OCTAVO_REASON_NONE) only.push_back(s);
    return only;
  };
  for (const char *format : {"default", "E4M3"}) {
    set({text("recipe", "mx"), text("fp8_format", format)});
    EXPECT_TRUE(reasons().empty()) << format;
  }
  set({text("fp8_format", "HYBRID")});
  const std::vector<Said> said = reasons();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].decision, uint32_t{OCTAVO_ACCEPT});
  EXPECT_EQ(said[0].reason, uint32_t{OCTAVO_REASON_OPTION});
  EXPECT_THAT(said[0].text, HasSubstr("E5M2 with MX scales"));
  EXPECT_THAT(said[0].remedy, HasSubstr("fp8.te.fp8_format = \"E4M3\""));
  for (const char *recipe : {"delayed", "current", "block"}) {
    set({text("recipe", recipe)});
    EXPECT_TRUE(reasons().empty()) << recipe;
  }
}

class EachTeRefusal : public TeRefusals, public testing::WithParamInterface<Refused> {};

TEST_P(EachTeRefusal, says_why_what_and_what_to_do) {
  const Refused &expected = GetParam();
  set(expected.options);
  const std::vector<Said> said = declines(check());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].reason, uint32_t{OCTAVO_REASON_OPTION});
  EXPECT_THAT(said[0].text, HasSubstr(expected.text));
  EXPECT_THAT(said[0].evidence, HasSubstr(expected.evidence));
  EXPECT_THAT(said[0].remedy, HasSubstr(expected.remedy));
  expect_not_opened(expected.text);
}

INSTANTIATE_TEST_SUITE_P(All, EachTeRefusal, testing::ValuesIn(all_refused()),
                         [](const testing::TestParamInfo<Refused> &each) {
                           return std::string(each.param.name);
                         });

TEST_F(TeRefusals, every_fault_is_named) {
  set({number("margin", 3), text("recipe", "mx"), text("fp8_format", "E5M2"), yes("fp8_dpa")});
  EXPECT_EQ(declines(check()).size(), 3u);
}

TEST_F(TeRefusals, kernels_without_the_granularity) {
  const struct {
    const char *recipe;
    bool two_d;
    uint32_t lacking;
    const char *evidence;
    const char *instead;
  } cases[] = {
      {"block", false, OCTAVO_BLOCK_1X128, "1x128", "mx"},
      {"block", false, OCTAVO_BLOCK_128X128, "128x128", "mx"},
      {"nvfp4", false, OCTAVO_BLOCK_1X16, "1x16", "mx"},
      {"nvfp4", false, OCTAVO_BLOCK_16X16, "16x16", "mx"},
      {"mx", false, OCTAVO_BLOCK_1X32, "1x32", "block"},
      {"mx", true, OCTAVO_BLOCK_32X32, "32x32", "block"},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.evidence);
    set({text("recipe", each.recipe)});
    if (each.two_d) set({yes("mxfp8_2d_quantization")});
    LackingKernels::granularities() = {each.lacking};
    const std::vector<Said> said = declines(check());
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].reason, uint32_t{OCTAVO_REASON_KERNEL});
    EXPECT_THAT(said[0].evidence, HasSubstr(each.evidence));
    EXPECT_THAT(said[0].remedy, HasSubstr(std::string("\"") + each.instead + "\""));
    expect_not_opened("lack a product");
    LackingKernels::granularities() = {
        OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32,
        OCTAVO_BLOCK_1X16,  OCTAVO_BLOCK_16X16};  // as of compute capability 8.9
    EXPECT_THAT(declines(check())[0].remedy, HasSubstr("\"current\""));
    LackingKernels::granularities().clear();
    EXPECT_TRUE(declines(check()).empty());
  }
}

TEST_F(TeRefusals, kernels_without_a_format) {
  LackingKernels::dtypes() = {OCTAVO_E5M2};
  const std::vector<Said> said = declines(check());
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].reason, uint32_t{OCTAVO_REASON_DTYPE});
  EXPECT_EQ(said[1].reason, uint32_t{OCTAVO_REASON_KERNEL});  // its product with a weight
  expect_not_opened("float8_e5m2");
}

TEST_F(TeRefusals, kernels_without_stochastic_rounding) {
  set({text("gradient_rounding", "stochastic")});
  for (const uint32_t lacking : {OCTAVO_KIND_ROUND_CODES, OCTAVO_KIND_COUNT}) {
    LackingKernels::calls() = {lacking};
    const std::vector<Said> said = declines(check());
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].reason, uint32_t{OCTAVO_REASON_KERNEL});
    EXPECT_THAT(said[0].remedy, HasSubstr("fp8.te.gradient_rounding = \"nearest\""));
    expect_not_opened("lack stochastic rounding of gradients");
  }
  set({text("gradient_rounding", "nearest")});
  EXPECT_TRUE(declines(check()).empty());
}

}  // namespace
}  // namespace octavo::test

// Options: what a backend declares against what the configuration gives.
#include "sdk/src/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "sdk/src/base/failure.h"
#include "sdk/src/plugin/loader.h"

namespace octavo {
namespace {

DeclaredOption option(const std::string &name, TomlValue initial) {
  return {name, "help", std::move(initial), OtherToml{"nothing"}, OtherToml{"nothing"}, {}};
}

std::vector<DeclaredOption> declared() {
  std::vector<DeclaredOption> all = {option("count", int64_t{4}), option("ratio", 0.5),
                                     option("verbose", false), option("mode", std::string("exact")),
                                     option("note", std::string())};
  all[0].low = int64_t{1};
  all[0].high = int64_t{8};
  all[1].low = 0.0;
  all[3].choices = {"fast", "exact"};
  return all;
}

std::string shown(const TomlValue &given, const std::string &name) {
  for (const EffectiveOption &o :
       effective_options(declared(), "fake", {{name, {given, "octavo.toml:7:1"}}}))
    if (o.name == name) return show(o.setting.value) + " from " + o.setting.origin;
  return "(absent)";
}

std::string failure_of(const TomlValue &given, const std::string &name) {
  try {
    return "accepted: " + shown(given, name);
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_STREQ(f.domain(), "octavo.config");
    return f.text();
  }
}

TEST(Options, defaults_in_the_order_of_declaration) {
  const auto all = effective_options(declared(), "fake", {});
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].name, "count");
  EXPECT_EQ(show(all[0].setting.value), "4");
  EXPECT_EQ(all[0].setting.origin, "default");
  EXPECT_EQ(all[4].name, "note");
}

TEST(Options, every_type_is_taken) {
  EXPECT_EQ(shown(int64_t{8}, "count"), "8 from octavo.toml:7:1");
  EXPECT_EQ(shown(0.25, "ratio"), "0.25 from octavo.toml:7:1");
  EXPECT_EQ(shown(true, "verbose"), "true from octavo.toml:7:1");
  EXPECT_EQ(shown(std::string("fast"), "mode"), "\"fast\" from octavo.toml:7:1");
  EXPECT_EQ(shown(std::string("any text"), "note"), "\"any text\" from octavo.toml:7:1");
}

TEST(Options, integer_where_a_real_is_expected) {
  EXPECT_EQ(shown(int64_t{3}, "ratio"), "3.0 from octavo.toml:7:1");
}

TEST(Options, wrong_type) {
  EXPECT_EQ(failure_of(2.0, "count"),
            "octavo.toml:7:1: fp8.fake.count: expected an integer, found a real number (2.0)");
  EXPECT_EQ(failure_of(std::string("1"), "verbose"),
            "octavo.toml:7:1: fp8.fake.verbose: expected a boolean, found a text (\"1\")");
  EXPECT_EQ(failure_of(true, "mode"),
            "octavo.toml:7:1: fp8.fake.mode: expected a text, found a boolean (true)");
  EXPECT_EQ(failure_of(std::vector<std::string>{"fast"}, "mode"),
            "octavo.toml:7:1: fp8.fake.mode: expected a text, found a list of texts ([\"fast\"])");
  EXPECT_EQ(failure_of(OtherToml{"a date or time"}, "note"),
            "octavo.toml:7:1: fp8.fake.note: expected a text, found a date or time");
}

TEST(Options, out_of_range) {
  EXPECT_EQ(failure_of(int64_t{0}, "count"),
            "octavo.toml:7:1: fp8.fake.count: expected 1 to 8, found 0");
  EXPECT_EQ(failure_of(int64_t{9}, "count"),
            "octavo.toml:7:1: fp8.fake.count: expected 1 to 8, found 9");
  EXPECT_EQ(failure_of(-0.5, "ratio"),
            "octavo.toml:7:1: fp8.fake.ratio: expected at least 0.0, found -0.5");
  EXPECT_EQ(failure_of(std::numeric_limits<double>::infinity(), "ratio"),
            "octavo.toml:7:1: fp8.fake.ratio: expected at least 0.0, found inf");
  EXPECT_THAT(failure_of(std::numeric_limits<double>::quiet_NaN(), "ratio"),
              testing::StartsWith("octavo.toml:7:1: fp8.fake.ratio: expected at least 0.0"));
}

TEST(Options, no_choice) {
  EXPECT_EQ(failure_of(std::string("fsat"), "mode"),
            "octavo.toml:7:1: fp8.fake.mode: expected \"fast\" or \"exact\", found \"fsat\"; did "
            "you mean \"fast\"?");
  EXPECT_EQ(failure_of(std::string("approximately"), "mode"),
            "octavo.toml:7:1: fp8.fake.mode: expected \"fast\" or \"exact\", found "
            "\"approximately\"");
}

TEST(Options, unknown) {
  EXPECT_EQ(failure_of(int64_t{1}, "cuont"),
            "octavo.toml:7:1: unknown key \"fp8.fake.cuont\"; did you mean \"fp8.fake.count\"?");
  EXPECT_EQ(failure_of(int64_t{1}, "granularity"),
            "octavo.toml:7:1: unknown key \"fp8.fake.granularity\"; backend fake knows count, "
            "ratio, verbose, mode and note");
}

TEST(Options, what_crosses_the_border) {
  const auto all = effective_options(declared(), "fake", {{"verbose", {true, "override"}}});
  const auto lent = lend_options(all);
  ASSERT_EQ(lent.size(), 5u);
  EXPECT_EQ(lent[0].value.type, uint32_t{OCTAVO_VALUE_INT});
  EXPECT_EQ(lent[0].value.integer, 4);
  EXPECT_EQ(lent[1].value.type, uint32_t{OCTAVO_VALUE_REAL});
  EXPECT_EQ(lent[1].value.real, 0.5);
  EXPECT_EQ(lent[2].value.type, uint32_t{OCTAVO_VALUE_BOOL});
  EXPECT_EQ(lent[2].value.integer, 1);
  EXPECT_EQ(lent[3].value.type, uint32_t{OCTAVO_VALUE_TEXT});
  EXPECT_EQ(std::string(lent[3].value.text.data, lent[3].value.text.size), "exact");
  EXPECT_EQ(lent[4].value.text.size, 0u);
}

// A backend that declares one option, given by the test.
octavo_option the_option;
std::vector<DeclaredOption> declare(const octavo_option &o) {
  the_option = o;
  octavo_backend backend{};
  backend.size = sizeof(backend);
  backend.kind = OCTAVO_KIND_BACKEND;
  backend.list_options = [](const octavo_option_sink *sink) {
    return sink->option(sink->ctx, &the_option);
  };
  return declared_options(complete(backend), "fake");
}

octavo_option well_formed() {
  octavo_option o{};
  o.size = sizeof(o);
  o.kind = OCTAVO_KIND_OPTION;
  o.name = OCTAVO_STR("ratio");
  o.initial.type = OCTAVO_VALUE_REAL;
  o.high.type = OCTAVO_VALUE_INT;
  o.high.integer = 3;
  return o;
}

TEST(Options, declaration_is_copied_and_bounds_take_the_options_type) {
  const auto found = declare(well_formed());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "ratio");
  EXPECT_EQ(show(found[0].high), "3.0");
  EXPECT_TRUE(std::holds_alternative<OtherToml>(found[0].low));
}

TEST(Options, declarations_that_make_no_sense) {
  octavo_option short_one = well_formed();
  short_one.size = OCTAVO_SIZE_THROUGH(octavo_option, initial);
  octavo_option nameless = well_formed();
  nameless.name = {nullptr, 0};
  octavo_option typeless = well_formed();
  typeless.initial.type = 77;
  octavo_option choiceless = well_formed();
  choiceless.choice_count = 3;
  for (const octavo_option &o : {short_one, nameless, typeless, choiceless}) {
    try {
      declare(o);
      ADD_FAILURE() << "accepted";
    } catch (const Failure &f) {
      EXPECT_EQ(f.status(), OCTAVO_INTERNAL);
      EXPECT_EQ(f.text(),
                "backend fake: list_options failed with status 2; this is a defect of the plugin");
    }
  }
}

TEST(Options, ranges_with_one_end_or_none) {
  DeclaredOption o = option("ratio", 0.5);
  const auto words = [&](double value) -> std::string {
    try {
      effective_options({o}, "fake", {{"ratio", {value, "here"}}});
    } catch (const Failure &f) {
      return f.text();
    }
    return "(accepted)";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(words(nan), "here: fp8.fake.ratio: expected a finite number, found nan");
  o.high = 1.0;
  EXPECT_EQ(words(2), "here: fp8.fake.ratio: expected at most 1.0, found 2.0");
  EXPECT_EQ(words(1), "(accepted)");
  o.low = 0.25;
  EXPECT_EQ(words(0), "here: fp8.fake.ratio: expected 0.25 to 1.0, found 0.0");
  o.high = OtherToml{"nothing"};
  EXPECT_EQ(words(0), "here: fp8.fake.ratio: expected at least 0.25, found 0.0");
  EXPECT_EQ(words(9), "(accepted)");
}

TEST(Options, kind_that_is_wrong_where_the_range_has_one_end) {
  DeclaredOption o = option("ratio", 0.5);
  o.high = 1.0;
  try {
    effective_options({o}, "fake", {{"ratio", {std::string("x"), "here"}}});
    ADD_FAILURE() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.fix().question.rfind("choose a real number, at most 1.0, for fp8.fake.ratio", 0),
              0u)
        << f.fix().question;
  }
}

TEST(Options, value_that_is_none) {
  EXPECT_EQ(failure_of(OtherToml{"a date or time"}, "count"),
            "octavo.toml:7:1: fp8.fake.count: expected an integer, found a date or time");
}

TEST(Options, choice_that_is_near_nothing) {
  EXPECT_EQ(failure_of(std::string("zzzzzz"), "mode"),
            "octavo.toml:7:1: fp8.fake.mode: expected \"fast\" or \"exact\", found \"zzzzzz\"");
}

TEST(Options, declarations_of_every_type) {
  static const octavo_str choices[] = {OCTAVO_STR("a"), OCTAVO_STR("b")};
  octavo_option o = well_formed();
  o.high.type = 0;
  o.initial.type = OCTAVO_VALUE_BOOL;
  o.initial.integer = 5;
  EXPECT_EQ(show(declare(o)[0].initial), "true");
  o.initial.type = OCTAVO_VALUE_INT;
  EXPECT_EQ(show(declare(o)[0].initial), "5");
  o.initial.type = OCTAVO_VALUE_TEXT;
  o.initial.text = choices[1];
  o.choices = choices;
  o.choice_count = 2;
  EXPECT_EQ(show(declare(o)[0].initial), "\"b\"");
  EXPECT_THAT(declare(o)[0].choices, testing::ElementsAre("a", "b"));
}

TEST(Options, declaration_that_is_none) {
  octavo_backend backend{};
  backend.size = sizeof(backend);
  backend.list_options = [](const octavo_option_sink *sink) {
    return sink->option(sink->ctx, nullptr);
  };
  EXPECT_THROW(declared_options(complete(backend), "fake"), Failure);
}

}  // namespace
}  // namespace octavo

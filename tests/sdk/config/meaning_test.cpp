// Values that a key cannot have: what they mean, and the question where they mean nothing.
#include "sdk/src/config/meaning.h"

#include <gmock/gmock.h>

namespace octavo {
namespace {

const TomlValue kInteger = int64_t{0}, kReal = 0.5, kFlag = false, kText = std::string("O2");
const std::vector<std::string> kLevels = {"O1", "O2", "O3"};

std::string shown(const std::optional<TomlValue> &value) {
  return value ? show(*value) : "nothing";
}

TEST(Meaning, a_value_of_another_type_keeps_what_it_says) {
  EXPECT_EQ(shown(meant(kInteger, {}, 5.0)), "5");
  EXPECT_EQ(shown(meant(kInteger, {}, std::string("5"))), "5");
  EXPECT_EQ(shown(meant(kInteger, {}, std::string("-5.0"))), "-5");
  EXPECT_EQ(shown(meant(kReal, {}, std::string("0.25"))), "0.25");
  EXPECT_EQ(shown(meant(kFlag, {}, std::string("Yes"))), "true");
  EXPECT_EQ(shown(meant(kFlag, {}, int64_t{0})), "false");
  EXPECT_EQ(shown(meant(kText, {}, int64_t{7})), "\"7\"");
}

TEST(Meaning, a_choice_is_found_by_its_end_its_case_or_its_letters) {
  EXPECT_EQ(shown(meant(kText, kLevels, int64_t{3})), "\"O3\"");
  EXPECT_EQ(shown(meant(kText, kLevels, std::string("o1"))), "\"O1\"");
  EXPECT_EQ(shown(meant(kText, {"delayed", "current"}, std::string("delayd"))), "\"delayed\"");
  EXPECT_EQ(shown(meant(kText, {"a1", "b1"}, int64_t{1})), "nothing") << "two end so";
}

TEST(Meaning, what_means_nothing_is_asked) {
  EXPECT_EQ(shown(meant(kInteger, {}, 5.5)), "nothing");
  EXPECT_EQ(shown(meant(kInteger, {}, 1e300)), "nothing");
  EXPECT_EQ(shown(meant(kInteger, {}, std::string("one"))), "nothing");
  EXPECT_EQ(shown(meant(kInteger, {}, true)), "nothing");
  EXPECT_EQ(shown(meant(kFlag, {}, int64_t{2})), "nothing");
  EXPECT_EQ(shown(meant(kText, {}, true)), "nothing");
  EXPECT_EQ(shown(meant(kText, kLevels, std::string("banana"))), "nothing");
  EXPECT_EQ(shown(meant(kText, kLevels, std::string())), "nothing");
  EXPECT_EQ(shown(meant(kInteger, {}, OtherToml{"a date"})), "nothing");
  const Fix fix = keep_meaning({.key = "fp8.te.margin"}, {}, "an integer, 0 to 64,", kInteger);
  EXPECT_EQ(fix.question,
            "choose an integer, 0 to 64, for fp8.te.margin, or remove it: then it is 0");
  EXPECT_EQ(fix.value, "");
  EXPECT_EQ(keep_meaning({}, TomlValue(int64_t{5}), "", kInteger).value, "5");
}

}  // namespace
}  // namespace octavo

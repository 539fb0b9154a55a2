// Owners, modes, links, special files and environments: who may have put a plugin there, and that
// not one instruction of it runs before the answer is yes.
#include "tests/zoo/path_policy.h"

#include <functional>
#include <iterator>

#include "sdk/src/file/allowed.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

enum class Needs { kNothing, kRoot, kSetGid };

struct Case {
  const char *name;
  std::function<void(PolicyTree &)> arrange;
  const char *reason;  // of the refusal; null: accepted
  const char *found;   // part of what the refusal says
  Needs needs = Needs::kNothing;
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.name;
}

void mode(const std::string &path, mode_t m) {
  if (chmod(path.c_str(), m) != 0) throw std::runtime_error("cannot chmod " + path);
}

// The plugin comes with a configuration file that names its folder.
void bring_along(PolicyTree &t) {
  t.config = t.dir.write("site/octavo.toml", "[plugins]\npath = [\"plugins\"]\n");
  t.directories.clear();
}

// The canary is in a library that the plugin needs, in the folder `needs` next to it.
std::string need(PolicyTree &t) {
  t.dir.copy(OCTAVO_CANARY_NEEDY_PLUGIN, "site/plugins/fake.so");
  return t.dir.copy(OCTAVO_CANARY_NEED, "site/plugins/needs/octavo_canary_need.so");
}

#include "tests/zoo/path_policy_cases.inc"

class PathPolicy : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Finished first = PolicyTree().look();
    if (first.exit_code != 0) {
      ASSERT_THAT(first.out, testing::HasSubstr("\"reason\": \"trust\""));
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << first.out << first.err;
    }
    const Needs needs = GetParam().needs;
    if (needs != Needs::kNothing && geteuid() != 0)
      GTEST_SKIP() << "only root can give files to other users";
    struct statvfs mount {};
    const std::string base = fs::temp_directory_path().string();
    if (needs == Needs::kSetGid && statvfs(base.c_str(), &mount) == 0 &&
        (mount.f_flag & ST_NOSUID) != 0)
      GTEST_SKIP() << base << " is mounted nosuid; point TMPDIR at a directory that is not";
  }
};

TEST_P(PathPolicy, decides_before_any_code_runs) {
  PolicyTree tree;
  const Case &c = GetParam();
  if (c.needs == Needs::kSetGid) tree.make_set_gid();
  c.arrange(tree);
  const Finished f = tree.look();
  ASSERT_TRUE(f.exit_code == 0 || f.exit_code == 1) << f.exit_code << "\n" << f.out << f.err;
  EXPECT_EQ(f.exit_code, c.reason == nullptr ? 0 : 1) << f.out;
  EXPECT_EQ(tree.sang(), c.reason == nullptr) << f.out;
  if (c.reason == nullptr) return;
  const auto verdicts = nlohmann::json::parse(f.out)["candidates"][0]["verdicts"];
  ASSERT_EQ(verdicts.size(), 1u) << f.out;
  EXPECT_EQ(verdicts[0]["reason"], c.reason) << f.out;
  EXPECT_THAT(verdicts[0].dump(), HasSubstr(c.found));
}

INSTANTIATE_TEST_SUITE_P(All, PathPolicy, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &each) {
                           return std::string(each.param.name);
                         });

// Nobody knows what is in there, so it is no refusal of a plugin.
TEST(PathPolicyShortage, directory_that_a_user_cannot_enter) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  PolicyTree tree;
  mode(tree.dir / "site", 0700);
  tree.user = "4321";
  const Finished f = tree.look();
  EXPECT_EQ(f.exit_code, 2) << f.out << f.err;
  EXPECT_FALSE(tree.sang());
  const auto refusal = nlohmann::json::parse(f.out)["first_refusal"];
  EXPECT_EQ(refusal["reason"], "resource") << f.out;
  EXPECT_THAT(refusal["text"].get<std::string>(), HasSubstr("cannot be read: Permission denied"));
}

TEST(PathPolicyMatrix, has_at_least_forty_cases) {
  EXPECT_GE(std::size(kCases), 40u);
}

}  // namespace
}  // namespace octavo::test

// A thread that exchanges the checked library for another one, again and again, while hosts load
// it.
//
// In the trust modes other than "dev" only root and the user could do that; this thread is the
// user. The file that was hashed is the file that is mapped, or none is: no constructor of the
// other one runs.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "sdk/src/file/privilege_file.h"
#include "tests/zoo/path_policy.h"

namespace octavo::test {
namespace {

int tries() {
  const char *wanted = std::getenv("OCTAVO_SWAP_TRIES");
  return wanted == nullptr ? 200 : std::atoi(wanted);
}

// Exchanges two files at once: either name always leads to one of them.
void exchange(const std::string &a, const std::string &b) {
  if (syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0)
    throw std::runtime_error("cannot exchange " + a + " and " + b);
}

class Swapper {
 public:
  Swapper(const std::string &a, const std::string &b)
      : thread_([this, a, b] {
          while (!stop_) {
            exchange(a, b);
            ++swaps_;
            std::this_thread::yield();
          }
        }) {}
  ~Swapper() { stop(); }
  int64_t stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return swaps_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> swaps_{0};
  std::thread thread_;
};

class PathPolicySwap : public testing::Test {
 protected:
  void SetUp() override {
    // The good library has no canary; the other one has, and is the same otherwise.
    tree.dir.copy(fake_library("good"), "site/plugins/fake.so");
    other = tree.dir.copy(OCTAVO_CANARY_PLUGIN, "site/plugins/other.so");
    const Finished f = tree.look();
    if (f.exit_code != 0) {
      ASSERT_THAT(f.out, testing::HasSubstr("\"reason\": \"trust\""));
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << f.out << f.err;
    }
    good = CheckedFile(tree.library(), "test").sha256();
    tree.names("{ file = \"fake.so\", sha256 = \"" + good + "\" }");
  }
  PolicyTree tree;
  std::string other;
  std::string good;
};

// In the host, or first in the helper, which gets the descriptor that was checked.
class EachProcess : public PathPolicySwap, public testing::WithParamInterface<const char *> {};

TEST_P(EachProcess, uses_what_was_hashed) {
  if (*GetParam() != '\0') tree.environment.set("OCTAVO_PROBE_HELPER", GetParam());
  int accepted = 0, refused = 0;
  Swapper swapper(tree.library(), other);
  for (int i = 0; i < tries(); ++i) {
    std::filesystem::remove(tree.canary());
    const Finished f = tree.look();
    ASSERT_TRUE(f.exit_code == 0 || f.exit_code == 1) << f.exit_code << "\n" << f.out << f.err;
    ASSERT_FALSE(tree.sang()) << "try " << i << ": the other library was mapped\n" << f.out;
    if (f.exit_code == 0) {
      ++accepted;
      continue;
    }
    ++refused;
    const auto verdict = nlohmann::json::parse(f.out)["candidates"][0]["verdicts"][0];
    EXPECT_TRUE(verdict["reason"] == "trust" || verdict["reason"] == "library") << f.out;
  }
  const int64_t swaps = swapper.stop();
  RecordProperty("accepted", accepted);
  RecordProperty("refused", refused);
  std::printf("%lld swaps, %d accepted, %d refused\n", static_cast<long long>(swaps), accepted,
              refused);
  EXPECT_EQ(accepted + refused, tries());
  EXPECT_GT(swaps, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(PathPolicySwap, EachProcess, testing::Values("", OCTAVO_PROBE),
                         [](const auto &one) {
                           return std::string(*one.param == '\0' ? "host" : "helper");
                         });

// A folder that the system's loader would take for another one.
TEST_F(PathPolicySwap, folder_named_like_a_token) {
  for (const char *helper : {"", OCTAVO_PROBE}) {
    if (*helper != '\0') tree.environment.set("OCTAVO_PROBE_HELPER", helper);
    const std::string place = "site/$ORIGIN/plugins";
    tree.dir.copy(fake_library("good"), place + "/fake.so");
    tree.dir.write(place + "/fake.octavo-plugin.toml", fake_manifest());
    tree.directories = {tree.dir / place};
    const Finished f = tree.look();
    EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
    EXPECT_FALSE(tree.sang());
  }
}

// That the test above can fail: the other library is one that would run.
TEST_F(PathPolicySwap, canary_sings_when_the_other_library_is_accepted) {
  tree.names("\"fake.so\"");
  exchange(tree.library(), other);
  EXPECT_EQ(tree.look().exit_code, 0);
  EXPECT_TRUE(tree.sang());
}

}  // namespace
}  // namespace octavo::test

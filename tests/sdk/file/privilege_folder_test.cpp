// Who could put a plugin into a folder: the folder itself, and every one on the way.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/src/file/privilege_path.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

TEST(PrivilegeFolder, is_judged_with_every_folder_on_the_way) {
  const test::TempDir dir;
  Remedy remedy;
  const auto found = [&](const std::string &of) { return folder_problem(of, geteuid(), &remedy); };
  const std::string file = dir.write("a/b/f", "");
  if (const std::string outside = found(dir.path()); !outside.empty())
    GTEST_SKIP() << "the temporary directory is not trusted itself: " << outside;
  EXPECT_EQ(found(dir / "a/b"), "");
  EXPECT_EQ(found(file), file + " is not a directory");
  std::filesystem::create_symlink(dir / "a", dir / "link");
  EXPECT_EQ(found(dir / "link/b"), "");
  ASSERT_EQ(chmod((dir / "a").c_str(), 0777), 0);
  EXPECT_EQ(found(dir / "link/b"), (dir / "a") + " has mode 0777, writable by group or others");
  EXPECT_EQ(remedy.text, "run `chmod go-w " + (dir / "a") + "`");
}

}  // namespace
}  // namespace octavo

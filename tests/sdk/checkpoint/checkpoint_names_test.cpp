// Keys of checkpoints with a backend that takes any names: equal ones, and names with slashes.
#include <gmock/gmock.h>

#include "tests/support/sharded_runs.h"

namespace octavo::test {
namespace {

class CheckpointNamesTest : public ShardedTest {
 protected:
  std::unique_ptr<ShardedRun> sealed(const std::vector<ShardedParameter> &model) {
    auto r = open_run();
    r->seal(model);
    open_store(*r, 0, 1);
    return r;
  }
};

TEST_F(CheckpointNamesTest, slashes_quotes_and_other_scripts_come_back) {
  const std::vector<ShardedParameter> model = {{"a/exp_avg", 2, 2},
                                               {"a", 2, 3},
                                               {"\"q\" \\ \n", 1, 2},
                                               {"\xc3\xa4/\xe5\xb1\xa4", 2, 1},
                                               {"native states", 4, 4}};
  const auto r = sealed(model);
  std::map<uint32_t, int32_t *> steps;
  for (uint32_t p = 0; p < model.size(); ++p) {
    steps[p] = static_cast<int32_t *>(r->address(p, "step"));
    *steps[p] = static_cast<int32_t>(100 + p);
  }
  ASSERT_EQ(octavo_store_save(r->s(), borrow(dir / "c"), 9), OCTAVO_OK) << r->error();
  // The host's own tensor is not in the file.
  const std::string file = read_text(dir / "c/rank-0000-of-0001.safetensors");
  EXPECT_THAT(file, testing::HasSubstr("\"parameter/native states/step\""));
  EXPECT_THAT(file, testing::Not(testing::HasSubstr("\"parameter/native states/exp_avg\"")));
  for (const auto &[p, step] : steps) *step = -1;
  uint64_t saved = 0;
  ASSERT_EQ(octavo_store_load(r->s(), borrow(dir / "c"), &saved), OCTAVO_OK) << r->error();
  EXPECT_EQ(saved, 9u);
  for (const auto &[p, step] : steps) EXPECT_EQ(*step, static_cast<int32_t>(100 + p)) << p;
}

}  // namespace
}  // namespace octavo::test

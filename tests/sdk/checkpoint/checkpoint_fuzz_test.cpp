// Damaged files: every length that a write could stop at, and mutated headers. Whatever happens,
// the store is either as before or holds the content of the file.
#include "tests/sdk/checkpoint/checkpoint_runs.h"

namespace octavo::test {
namespace {

class CheckpointFuzzTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointModel m;
    m.linears = {"a"};
    m.with_bias = false;
    m.numbers = {{"amax_history_len", 3}};  // a small file: most of it is header
    store = open(m);
    store->fill(1);
    expected = store->content(false);
    ASSERT_EQ(store->save(dir / "c", 5), OCTAVO_OK) << store->error();
    file = read_text(dir / name);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    header_end = 8 + length;
    store->fill(2);
    before = store->content(true);
  }
  octavo_status load(const std::string &content) {
    // In place where it fits: some file systems flush what is cut to nothing and written again.
    if (std::filesystem::file_size(dir / name) != content.size()) dir.write(name, content);
    std::fstream(dir / name, std::ios::in | std::ios::out | std::ios::binary) << content;
    return store->load(dir / "c");
  }

  const std::string name = "c/rank-0000-of-0001.safetensors";
  std::unique_ptr<CheckpointRun> store;
  std::map<uint32_t, Bytes> expected, before;
  std::string file;
  size_t header_end = 0;
};

TEST_F(CheckpointFuzzTest, every_length_that_is_too_short_is_refused) {
  for (size_t length = file.size(); length-- > 0;) {
    std::filesystem::resize_file(dir / name, length);
    ASSERT_EQ(store->load(dir / "c"), OCTAVO_INVALID) << length << ": " << store->error();
    ASSERT_TRUE(store->content(true) == before) << "length " << length;
  }
  EXPECT_EQ(load(file + "x"), OCTAVO_INVALID) << "a byte too many";
  ASSERT_TRUE(store->content(true) == before);
  ASSERT_EQ(load(file), OCTAVO_OK) << store->error();
  EXPECT_TRUE(store->content(false) == expected);
}

TEST_F(CheckpointFuzzTest, mutated_headers_never_change_a_store_in_part) {
  std::mt19937 random(7);
  int refused = 0, loaded = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string mutant = file;
    // Most mutants differ in one byte; digits and signs of JSON reach deeper than random bytes.
    const std::string near = "0123456789{}[]\":, -.e\\";
    for (size_t n = 1 + (random() % 4 == 0 ? random() % 8 : 0); n > 0; --n) {
      const size_t at = random() % header_end;
      mutant[at] = random() % 3 == 0 ? static_cast<char>(random()) : near[random() % near.size()];
    }
    const octavo_status status = load(mutant);
    if (status != OCTAVO_OK) {
      ++refused;
      ASSERT_TRUE(status == OCTAVO_INVALID || status == OCTAVO_INCOMPATIBLE) << store->error();
      ASSERT_TRUE(store->content(true) == before) << i << ": " << store->error();
      continue;
    }
    ++loaded;
    ASSERT_TRUE(mutant == file) << i << ": a header with another byte was taken";
    ASSERT_TRUE(store->content(false) == expected) << i;
    store->fill(2);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(loaded, 0) << "every mutant was refused: nothing proves that one is ever loaded";
}

}  // namespace
}  // namespace octavo::test

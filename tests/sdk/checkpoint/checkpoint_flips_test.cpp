// Flipped bits: whatever bit of a checkpoint is another one, loading refuses it by the tensor's
// name, as header or as manifest, and leaves the store alone; or the store is the one that was
// saved.
#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/sealed_checkpoint.h"
#include "tests/support/seed.h"

namespace octavo::test {
namespace {

struct Flips {
  int refused = 0;
  int equal = 0;
};

class CheckpointFlipsTest : public CheckpointTest {
 protected:
  // A checkpoint of two ranks, and what each of them has in it.
  void SetUp() override {
    all = open_world(2);
    for (const auto &r : all) {
      r->fill(1);
      ASSERT_EQ(r->save(dir / "c", 5), OCTAVO_OK) << r->error();
      expected.push_back(r->content(false));
      r->fill(2);
      before.push_back(r->content(true));
    }
  }

  // Which tensor a byte of a rank's file belongs to, in the words of messages.
  static std::string owner_of(const std::string &file, size_t at) {
    const std::string json = header_of(file);
    if (at < 8 + json.size()) return "header: ";
    const auto header = nlohmann::json::parse(json);
    for (const auto &[key, t] : header.items()) {
      if (key == "__metadata__") continue;
      const size_t begin = 8 + json.size() + t["data_offsets"][0].get<size_t>();
      const size_t end = 8 + json.size() + t["data_offsets"][1].get<size_t>();
      if (at >= begin && at < end) return "tensor \"" + key + "\": ";
    }
    return "nothing";
  }

  // One bit of a file. Ranks read what they keep: a bit of another rank's tensor is its matter.
  void flip(const std::string &name, size_t bit, Flips *flips) {
    const std::string path = dir / ("c/" + name);
    const std::string file = whole_file(path);
    std::string other = file;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    put_file(path, other);
    const std::string word = name == "manifest.json" ? "manifest: " : owner_of(file, bit / 8);
    bool is_refused = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const octavo_status status = all[rank]->load(dir / "c");
      if (status == OCTAVO_OK) {
        ASSERT_TRUE(all[rank]->content(false) == expected[rank]) << name << ", bit " << bit;
        all[rank]->fill(2);
        continue;
      }
      is_refused = true;
      ASSERT_EQ(status, OCTAVO_INVALID) << all[rank]->error();
      ASSERT_THAT(all[rank]->error(), testing::HasSubstr(word)) << name << ", bit " << bit;
      ASSERT_THAT(all[rank]->error(), testing::HasSubstr(name));
      ASSERT_TRUE(all[rank]->content(true) == before[rank]) << name << ", bit " << bit;
    }
    ++(is_refused ? flips->refused : flips->equal);
    put_file(path, file);
  }

  // As many bits as the review of c7d3be9 flipped, of which 544 were loaded without a word.
  Flips flip_many(int count, uint64_t seed) {
    std::mt19937_64 random(seed);
    Flips flips;
    const std::vector<std::string> names = {"rank-0000-of-0002.safetensors",
                                            "rank-0001-of-0002.safetensors", "manifest.json"};
    for (int i = 0; i < count && !HasFatalFailure(); ++i) {
      const std::string &name = names[random() % (i % 8 == 0 ? 3 : 2)];
      const size_t bytes = whole_file(dir / ("c/" + name)).size();
      flip(name, random() % (8 * bytes), &flips);
    }
    return flips;
  }

  std::vector<std::unique_ptr<CheckpointRun>> all;
  std::vector<std::map<uint32_t, Bytes>> expected, before;
};

TEST_F(CheckpointFlipsTest, a_sample_of_bits) {
  const Flips flips = flip_many(60, 1);
  EXPECT_EQ(flips.refused, 60);
}

// A bit in every tensor of both files.
TEST_F(CheckpointFlipsTest, a_bit_of_every_tensor) {
  Flips flips;
  int tensors = 0;
  for (const char *name : {"rank-0000-of-0002.safetensors", "rank-0001-of-0002.safetensors"}) {
    const std::string file = whole_file(dir / (std::string("c/") + name));
    const size_t start = 8 + header_of(file).size();
    const auto header = nlohmann::json::parse(header_of(file));
    for (const auto &[key, t] : header.items()) {
      if (key == "__metadata__") continue;
      flip(name, 8 * (start + t["data_offsets"][0].get<size_t>()), &flips);
      flip(name, 8 * (start + t["data_offsets"][1].get<size_t>()) - 1, &flips);
      tensors += 2;
    }
  }
  EXPECT_GT(tensors, 40);
  EXPECT_EQ(flips.refused, tensors);
  EXPECT_EQ(flips.equal, 0);
}

TEST_F(CheckpointFlipsTest, as_many_bits_as_the_review_flipped_with_three_seeds) {
  for (const unsigned seed : {11u, 12u, 13u}) {
    const Flips flips = flip_many(588, seed_or(seed));
    EXPECT_EQ(flips.refused, 588) << "seed " << seed;
    EXPECT_EQ(flips.equal, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace octavo::test

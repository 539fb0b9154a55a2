// octavo_store_save and octavo_store_load: what comes back, on how many ranks, and what is refused.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <nlohmann/json.hpp>
#include <set>

#include "octavo/hpp/roles.hpp"
#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/sealed_checkpoint.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;

// The header and the data of a file, by the format's own rules and nobody's code.
struct File {
  explicit File(const std::string &path) {
    const std::string all = read_text(path);
    uint64_t length = 0;
    std::memcpy(&length, all.data(), 8);  // this test runs on little-endian machines only
    header = nlohmann::ordered_json::parse(all.substr(8, length));
    data = all.substr(8 + length);
    data_start = 8 + length;
  }
  nlohmann::ordered_json header;
  std::string data;
  uint64_t data_start = 0;
};

// The hash of a tensor as a file of this schema has it.
std::string tensor_hash(const std::string &hash, const std::string &bytes) {
  if (hash == "blake2b") return blake2b_hex(bytes);
  XXH128_canonical_t found;
  XXH128_canonicalFromHash(&found, XXH3_128bits(bytes.data(), bytes.size()));
  char hex[2 * sizeof(found) + 1];
  return sodium_bin2hex(hex, sizeof(hex), found.digest, sizeof(found));
}

// By checkpoint.hash: the schema, and where the hash of a tensor is.
struct HashCase {
  const char *hash, *schema, *key;
};
class CheckpointHashTest : public CheckpointTest, public testing::WithParamInterface<HashCase> {};
INSTANTIATE_TEST_SUITE_P(All, CheckpointHashTest,
                         testing::Values(HashCase{"xxh3", "3", "octavo.xxh3_128."},
                                         HashCase{"blake2b", "2", "octavo.blake2b."}),
                         [](const auto &all) { return all.param.hash; });

TEST_P(CheckpointHashTest, file_follows_the_rules_of_the_format) {
  CheckpointModel m;
  m.hash = GetParam().hash;
  const auto r = open(m);
  r->fill(3);
  ASSERT_EQ(r->save(dir / "c", 7), OCTAVO_OK) << r->error();
  const File file(dir / "c/rank-0000-of-0001.safetensors");
  EXPECT_EQ(file.data_start % 8, 0u);

  const auto &texts = file.header["__metadata__"];
  EXPECT_EQ(texts["octavo.schema"], GetParam().schema);
  EXPECT_EQ(texts["octavo.version"], text_of(octavo_version()));
  EXPECT_EQ(texts["octavo.backend"], "msamp");
  EXPECT_EQ(texts["octavo.option.opt_level"], "O3");
  EXPECT_EQ(texts["octavo.rank"], "0");
  EXPECT_EQ(texts["octavo.world"], "1");
  EXPECT_EQ(texts["octavo.step"], "7");
  EXPECT_EQ(texts["octavo.labels.session/x/scale"], R"(["up","down","out"])");

  const std::map<uint32_t, std::string> names = {
      {OCTAVO_F32, "F32"}, {OCTAVO_I32, "I32"}, {OCTAVO_F16, "F16"}, {OCTAVO_E4M3FN, "F8_E4M3"}};
  std::set<std::string> expected = {"__metadata__"}, found, dtypes;
  uint64_t next = 0, total = 0;
  for (const auto &[key, tensor] : file.header.items()) found.insert(key);
  for (uint32_t id = 0; id < r->count(); ++id) {
    if (!r->is_saved(id)) continue;
    const octavo_slot &s = r->slot(id);
    const char *owners[] = {"up.weight", "down.weight", "out.weight", "bias"};
    const std::string key =
        (s.owner_kind == OCTAVO_OWNER_SESSION ? std::string("session/")
                                              : std::string("parameter/") + owners[s.owner] + "/") +
        text_of(s.name);
    EXPECT_EQ(text_of(octavo_run_slot_key(r->r(), id)), key);
    expected.insert(key);
    ASSERT_TRUE(file.header.contains(key)) << key;
    const auto &tensor = file.header[key];
    dtypes.insert(tensor["dtype"]);
    EXPECT_EQ(tensor["dtype"], names.at(s.dtype)) << key;
    EXPECT_EQ(tensor["shape"], nlohmann::ordered_json({s.rows, s.cols})) << key;
    const uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    EXPECT_EQ(begin % (OCTAVO_DTYPE_BITS(s.dtype) / 8), 0u) << key << " is not aligned";
    ASSERT_EQ(end - begin, CheckpointRun::bytes_of(s)) << key;
    EXPECT_EQ(std::memcmp(file.data.data() + begin, octavo_store_address(r->s(), id), end - begin),
              0)
        << key;
    EXPECT_EQ(texts[GetParam().key + key],
              tensor_hash(m.hash, file.data.substr(begin, end - begin)))
        << key;
    EXPECT_EQ(texts["octavo.role." + key], role_name(s.role)) << key;
    total += end - begin;
    next = std::max(next, end);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(dtypes.size(), 4u) << "a dtype of O3 is missing";
  EXPECT_EQ(next, file.data.size());
  EXPECT_EQ(total, file.data.size()) << "gaps or overlaps";
  EXPECT_THAT(files_in(dir / "c"),
              testing::ElementsAre("lock", "manifest.json", "rank-0000-of-0001.safetensors"));
}

// Whatever this run would write.
TEST_P(CheckpointHashTest, loads_and_is_refused_with_a_flipped_bit) {
  CheckpointModel m;
  m.hash = GetParam().hash;
  const std::string directory = saved("c", 1, 7, 1, m);
  const auto source = open(m), r = open();
  source->fill(1);
  ASSERT_EQ(r->load(directory), OCTAVO_OK) << r->error();
  EXPECT_TRUE(r->content(false) == source->content(false));
  const std::string path = directory + "/rank-0000-of-0001.safetensors";
  std::string file = whole_file(path);
  file.back() = static_cast<char>(file.back() ^ 1);
  put_file(path, file);
  expect_refused(*r, directory, OCTAVO_INVALID,
                 {"tensor \"", m.hash == "xxh3" ? "the XXH3 hash " : "the BLAKE2b hash "});
}

TEST_F(CheckpointTest, every_byte_comes_back_and_the_rest_is_fresh) {
  const auto r = open();
  const auto fresh = r->content(true);
  r->fill(4);
  const auto before = r->content(false);
  ASSERT_EQ(r->save(dir / "c", 5), OCTAVO_OK) << r->error();
  r->fill(5);
  uint64_t step = 0;
  ASSERT_EQ(r->load(dir / "c", &step), OCTAVO_OK) << r->error();
  EXPECT_EQ(step, 5u);
  EXPECT_TRUE(r->content(false) == before);
  for (const auto &[id, bytes] : r->content(true)) {
    if (!r->is_saved(id)) {
      EXPECT_TRUE(bytes == fresh.at(id)) << "slot " << id;
    }
  }
  ASSERT_EQ(r->load(dir / "c"), OCTAVO_OK) << "without a place for the step";
}

// The slots of a store as the host's own memory; nothing in it moves.
TEST_F(CheckpointTest, the_hosts_own_memory_is_saved_and_loaded_with_its_bytes) {
  const auto mine = open(), other = open();
  const auto fresh = other->content(true);
  mine->fill(4);
  std::vector<void *> slots;
  for (uint32_t id = 0; id < mine->count(); ++id)
    slots.push_back(octavo_store_address(mine->s(), id));
  const std::string bytes("model\0optimizer", 15);
  octavo_str more = borrow(bytes);
  const auto over = [&](const CheckpointRun &r, octavo_str *given) {
    octavo_store *raw = nullptr;
    EXPECT_EQ(octavo_store_over(r.r(), slots.data(), given, &raw), OCTAVO_OK) << r.error();
    return StorePtr(raw);
  };
  const auto expected = mine->content(false);
  {
    const StorePtr store = over(*mine, &more);
    EXPECT_EQ(octavo_store_bytes(store.get(), 0), 0u);
    for (uint32_t id = 0; id < mine->count(); ++id)
      EXPECT_EQ(octavo_store_address(store.get(), id), slots[id]);
    ASSERT_EQ(octavo_store_save(store.get(), borrow(dir / "c"), 5), OCTAVO_OK) << mine->error();
  }
  const File file(dir / "c/rank-0000-of-0001.safetensors");
  EXPECT_EQ(file.header["host"]["dtype"], "U8");
  EXPECT_EQ(file.header["host"]["shape"].dump(), "[15]");
  // A host that asks for no bytes takes the slots.
  ASSERT_EQ(other->load(dir / "c"), OCTAVO_OK) << other->error();
  EXPECT_TRUE(other->content(false) == expected);

  mine->fill(6);
  more = {nullptr, 0};
  const StorePtr store = over(*mine, &more);
  ASSERT_EQ(octavo_store_load(store.get(), borrow(dir / "c"), nullptr), OCTAVO_OK) << mine->error();
  EXPECT_EQ(text_of(more), bytes);
  EXPECT_TRUE(mine->content(false) == expected);
  for (const auto &[id, found] : mine->content(true)) {
    if (mine->is_saved(id)) continue;
    EXPECT_TRUE(found == fresh.at(id)) << "slot " << id;
  }
  ASSERT_EQ(other->save(dir / "none", 6), OCTAVO_OK) << other->error();
  ASSERT_EQ(octavo_store_load(store.get(), borrow(dir / "none"), nullptr), OCTAVO_OK);
  EXPECT_EQ(more.size, 0u);
}

TEST_F(CheckpointTest, bytes_of_the_host_are_refused_with_a_flipped_bit) {
  const auto r = open();
  std::vector<void *> slots;
  for (uint32_t id = 0; id < r->count(); ++id) slots.push_back(octavo_store_address(r->s(), id));
  octavo_str more = OCTAVO_STR("model");
  octavo_store *raw = nullptr;
  ASSERT_EQ(octavo_store_over(r->r(), slots.data(), &more, &raw), OCTAVO_OK);
  const StorePtr store(raw);
  ASSERT_EQ(octavo_store_save(raw, borrow(dir / "c"), 1), OCTAVO_OK) << r->error();
  const std::string path = dir / "c/rank-0000-of-0001.safetensors";
  std::string file = whole_file(path);
  file[file.rfind("model")] ^= 1;
  put_file(path, file);
  const auto before = r->content(true);
  EXPECT_EQ(octavo_store_load(raw, borrow(dir / "c"), nullptr), OCTAVO_INVALID);
  EXPECT_THAT(r->error(), testing::HasSubstr("tensor \"host\": expected bytes with the XXH3 hash"));
  EXPECT_TRUE(r->content(true) == before);
  EXPECT_EQ(text_of(more), "model");
}

TEST_F(CheckpointTest, a_slot_of_the_host_without_memory_is_refused) {
  const auto r = open();
  const std::vector<void *> slots(r->count(), nullptr);
  octavo_store *raw = nullptr;
  EXPECT_EQ(octavo_store_over(r->r(), slots.data(), nullptr, &raw), OCTAVO_INVALID);
  EXPECT_EQ(raw, nullptr);
  EXPECT_THAT(r->error(),
              testing::HasSubstr("expected an address of a slot that checkpoints have"));
}

TEST_F(CheckpointTest, an_old_file_is_replaced_and_foreign_files_are_left_alone) {
  const auto r = open();
  for (unsigned seed : {1u, 2u}) {
    r->fill(seed);
    ASSERT_EQ(r->save(dir / "a/b", seed), OCTAVO_OK) << r->error();
    for (const char *name : {"notes.txt", "rank-1.safetensors", "rank-0000-of-0000.safetensors",
                             "rank-00000-of-0001.safetensors", "rank-0003-of-0002.safetensors"})
      dir.write(std::string("a/b/") + name, "mine");
  }
  const auto expected = r->content(false);
  r->fill(3);
  uint64_t step = 0;
  ASSERT_EQ(r->load(dir / "a/b", &step), OCTAVO_OK) << r->error();
  EXPECT_EQ(step, 2u);
  EXPECT_TRUE(r->content(false) == expected);
  EXPECT_EQ(read_text(dir / "a/b/notes.txt"), "mine");
}

TEST_F(CheckpointTest, any_number_of_ranks_loads_what_any_other_saved) {
  const auto whole = open();
  whole->fill(6);
  const auto expected = whole->content(false);
  for (uint32_t from : {1u, 2u, 3u, 4u}) {
    const std::string directory = saved("from" + std::to_string(from), from, 9, 6);
    for (uint32_t to : {1u, 2u, 4u, 5u}) {
      std::set<uint32_t> held;
      for (const auto &r : open_world(to)) {
        uint64_t step = 0;
        ASSERT_EQ(r->load(directory, &step), OCTAVO_OK) << from << " to " << to << r->error();
        EXPECT_EQ(step, 9u);
        for (const auto &[id, bytes] : r->content(false)) {
          EXPECT_TRUE(bytes == expected.at(id)) << from << " to " << to << ", slot " << id;
          held.insert(id);
        }
      }
      EXPECT_EQ(held.size(), expected.size());
    }
  }
}

// What every rank keeps comes from a rank's own file while the world stays the same.
TEST_F(CheckpointTest, replicated_slots_come_from_the_own_file) {
  const auto all = open_world(2);
  for (uint32_t rank : {0u, 1u}) {
    all[rank]->fill(10 + rank);
    ASSERT_EQ(all[rank]->save(dir / "c", 1), OCTAVO_OK);
  }
  for (uint32_t rank : {0u, 1u}) {
    const auto expected = all[rank]->content(false);
    all[rank]->fill(20);
    ASSERT_EQ(all[rank]->load(dir / "c"), OCTAVO_OK) << all[rank]->error();
    EXPECT_TRUE(all[rank]->content(false) == expected);
  }
}

TEST_F(CheckpointTest, pools_of_a_later_seal_have_keys_of_their_own) {
  const auto build = [&] {
    auto r = open();
    CheckpointModel more;
    more.linears = {"late"};
    more.with_bias = false;
    add(*r, more);
    return r;
  };
  const auto r = build();
  EXPECT_EQ(r->save(dir / "c", 1), OCTAVO_WRONG_STATE);
  EXPECT_THAT(r->error(), testing::HasSubstr("octavo_store_extend"));
  EXPECT_EQ(r->load(dir / "c"), OCTAVO_WRONG_STATE);
  ASSERT_EQ(octavo_store_extend(r->s()), OCTAVO_OK);
  std::vector<std::string> keys;
  for (uint32_t id = 0; id < r->count(); ++id)
    if (text_of(r->slot(id).name) == "x/scale")
      keys.push_back(text_of(octavo_run_slot_key(r->r(), id)));
  EXPECT_THAT(keys, testing::ElementsAre("session/x/scale", "session/x/scale@2"));
  EXPECT_EQ(text_of(octavo_run_slot_key(r->r(), r->count())), "");
  r->fill(8);
  const auto expected = r->content(false);
  ASSERT_EQ(r->save(dir / "c", 1), OCTAVO_OK) << r->error();
  const File file(dir / "c/rank-0000-of-0001.safetensors");
  EXPECT_EQ(file.header["__metadata__"]["octavo.labels.session/x/scale@2"], R"(["late"])");
  const auto again = build();
  ASSERT_EQ(octavo_store_extend(again->s()), OCTAVO_OK);
  ASSERT_EQ(again->load(dir / "c"), OCTAVO_OK) << again->error();
  EXPECT_TRUE(again->content(false) == expected);
  // The same layers in one seal are other pools.
  CheckpointModel once;
  once.linears.push_back("late");
  expect_refused(*open(once), dir / "c", OCTAVO_INVALID, {"labels"});
}

TEST_F(CheckpointTest, a_run_without_a_backend_has_an_empty_checkpoint) {
  Request request;
  RunPtr run;
  ASSERT_EQ(request.set("mixed_precision", "bf16").open(run), OCTAVO_OK) << request.host.error();
  octavo_store *raw = nullptr;
  ASSERT_EQ(octavo_store_open(run.get(), &raw), OCTAVO_OK);
  const StorePtr store(raw);
  const std::string path = dir / "c";
  ASSERT_EQ(octavo_store_save(raw, borrow(path), 3), OCTAVO_OK) << request.host.error();
  uint64_t step = 0;
  EXPECT_EQ(octavo_store_load(raw, borrow(path), &step), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(step, 3u);
  expect_refused(*open(), path, OCTAVO_INVALID, {"backend \"msamp\"", "one of \"\""});
}

TEST_F(CheckpointTest, nothing_to_save_from_or_to) {
  const auto r = open();
  EXPECT_EQ(octavo_store_save(nullptr, OCTAVO_STR("x"), 1), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_load(nullptr, OCTAVO_STR("x"), nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_save(r->s(), octavo_str{nullptr, 0}, 1), OCTAVO_INVALID);
  EXPECT_THAT(r->error(), testing::HasSubstr("expected the path of a directory, found no text"));
  EXPECT_EQ(octavo_store_load(r->s(), octavo_str{"a\0b", 3}, nullptr), OCTAVO_INVALID);
  EXPECT_THAT(r->error(), testing::HasSubstr("a zero byte"));
}

}  // namespace
}  // namespace octavo::test

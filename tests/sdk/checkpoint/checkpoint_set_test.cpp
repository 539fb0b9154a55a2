// The files of a checkpoint belong together: what the manifest lists is loaded, and nothing else.
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "sdk/src/base/descriptor.h"
#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/sealed_checkpoint.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const char *const kZero = "rank-0000-of-0002.safetensors";
const char *const kOne = "rank-0001-of-0002.safetensors";

class CheckpointSetTest : public CheckpointTest {
 protected:
  std::vector<std::unique_ptr<CheckpointRun>> open_as(const std::string &run_id, uint32_t world) {
    CheckpointModel m;
    m.run_id = run_id;
    return open_world(world, m);
  }
  // A checkpoint of another run than that of this process.
  std::string saved_as(const std::string &name, const std::string &run_id, uint64_t step,
                       unsigned seed = 1) {
    CheckpointModel m;
    m.run_id = run_id;
    return saved(name, 2, step, seed, m);
  }
  void copy(const std::string &from, const std::string &to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
  Json manifest(const std::string &directory) {
    return Json::parse(whole_file(directory + "/manifest.json"));
  }
};

TEST_F(CheckpointSetTest, manifest_lists_the_files_with_their_hashes) {
  const std::string directory = saved_as("c", "run-1", 7);
  const Json m = manifest(directory);
  EXPECT_EQ(m["schema"], 1);
  EXPECT_EQ(m["run_id"], "run-1");
  EXPECT_EQ(m["step"], 7);
  EXPECT_EQ(m["world"], 2);
  ASSERT_EQ(m["files"].size(), 2u);
  for (size_t rank = 0; rank < 2; ++rank) {
    const Json &entry = m["files"][rank];
    EXPECT_EQ(entry["name"], rank == 0 ? kZero : kOne);
    const std::string file = whole_file(directory + "/" + entry["name"].get<std::string>());
    EXPECT_EQ(entry["bytes"], file.size());
    const Json texts = Json::parse(header_of(file))["__metadata__"];
    EXPECT_EQ(texts["octavo.header_blake2b"], entry["blake2b"]);
    EXPECT_EQ(texts["octavo.run_id"], "run-1");
    // The hash is that of length and header with zeros in its place.
    EXPECT_EQ(with_header(file, header_of(file)), file);
  }
  EXPECT_EQ(sealed_again(whole_file(directory + "/manifest.json"), kManifestSealMark),
            whole_file(directory + "/manifest.json"));
}

TEST_F(CheckpointSetTest, runs_without_an_id_draw_one_a_process) {
  const std::string first = manifest(saved("a", 2, 1))["run_id"];
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(manifest(saved("b", 1, 1))["run_id"], first);
}

// Files of the right name, rank, world and step.
TEST_F(CheckpointSetTest, a_file_of_another_run) {
  const std::string ours = saved_as("a", "run-1", 7), theirs = saved_as("b", "run-2", 7, 2);
  copy(theirs + "/" + kOne, ours + "/" + kOne);
  for (const auto &r : open_world(2))
    expect_refused(*r, ours, OCTAVO_INVALID,
                   {kOne, "step 7 of run run-1", "step 7 of run run-2", "put back the file"});
}

TEST_F(CheckpointSetTest, an_older_file) {
  const std::string now = saved_as("a", "run-1", 7), before = saved_as("b", "run-1", 6, 2);
  copy(before + "/" + kZero, now + "/" + kZero);
  for (const auto &r : open_world(2))
    expect_refused(*r, now, OCTAVO_INVALID, {kZero, "step 7 of run", "step 6 of run"});
}

// The same run and step, other bytes.
TEST_F(CheckpointSetTest, a_file_of_another_save) {
  const std::string one = saved_as("a", "run-1", 7), other = saved_as("b", "run-1", 7, 2);
  copy(other + "/" + kZero, one + "/" + kZero);
  for (const auto &r : open_world(2))
    expect_refused(*r, one, OCTAVO_INVALID,
                   {kZero, "with the header's BLAKE2b hash", "found rank 0"});
}

TEST_F(CheckpointSetTest, exchanged_files) {
  const std::string directory = saved("a", 2, 7);
  fs::rename(directory + "/" + kZero, directory + "/x");
  fs::rename(directory + "/" + kOne, directory + "/" + kZero);
  fs::rename(directory + "/x", directory + "/" + kOne);
  for (const auto &r : open_world(2))
    expect_refused(*r, directory, OCTAVO_INVALID,
                   {kZero, "expected rank 0 of 2", "found rank 1 of 2"});
}

// Another file takes the name again and again, also between the check and the use.
TEST_F(CheckpointSetTest, a_file_that_is_exchanged_while_it_is_read) {
  const std::string directory = saved("a", 1, 7), other = saved("b", 1, 8, 2);
  const std::string name = "/rank-0000-of-0001.safetensors";
  const std::string mine = whole_file(directory + name), theirs = whole_file(other + name);
  const auto r = open();
  ASSERT_EQ(r->load(directory), OCTAVO_OK) << r->error();
  const auto expected = r->content(false);
  const pid_t exchange = fork();
  if (exchange == 0)
    for (int i = 0;; ++i) {
      put_file(dir / "next", i % 2 == 0 ? theirs : mine);
      fs::rename(dir / "next", directory + name);
    }
  int loaded = 0, refused = 0;
  for (int i = 0; i < 200 || ((loaded == 0 || refused == 0) && i < 20000); ++i) {
    const octavo_status status = r->load(directory);
    ++(status == OCTAVO_OK ? loaded : refused);
    EXPECT_TRUE(r->content(false) == expected) << "load " << i;
    EXPECT_TRUE(status == OCTAVO_OK || status == OCTAVO_INVALID) << r->error();
  }
  kill(exchange, SIGKILL);
  waitpid(exchange, nullptr, 0);
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(CheckpointSetTest, missing_files) {
  const std::string directory = saved("a", 2, 7);
  fs::rename(directory + "/" + kOne, directory + "/x");
  for (const auto &r : open_world(2))
    expect_refused(*r, directory, OCTAVO_NO_RESOURCE,
                   {"the files of 2 ranks", "no " + std::string(kOne)});
  fs::rename(directory + "/x", directory + "/" + kOne);
  fs::remove(directory + "/manifest.json");
  expect_refused(*open(), directory, OCTAVO_NO_RESOURCE,
                 {"expected manifest.json", "the files of 2 ranks without it"});
}

TEST_F(CheckpointSetTest, a_manifest_of_another_checkpoint) {
  const std::string ours = saved_as("a", "run-1", 7), theirs = saved_as("b", "run-2", 7, 2);
  copy(theirs + "/manifest.json", ours + "/manifest.json");
  expect_refused(*open(), ours, OCTAVO_INVALID, {kZero, "of run run-2", "of run run-1"});
}

TEST_F(CheckpointSetTest, manifests_that_no_save_writes) {
  const std::string directory = saved("a", 2, 7), path = directory + "/manifest.json";
  const Json good = manifest(directory);
  const auto r = open();
  const auto refused = [&](const Json &m, octavo_status status, const std::string &word) {
    put_file(path, sealed_again(m.dump(2) + "\n", kManifestSealMark));
    expect_refused(*r, directory, status, {"manifest.json", word});
  };
  const auto changed = [&](const char *key, const Json &value) {
    Json m = good;
    m[key] = value;
    return m;
  };
  refused(changed("schema", 2), OCTAVO_INCOMPATIBLE, "schema 1");
  refused(changed("schema", "1"), OCTAVO_INVALID, "no schema");
  for (const char *key : {"run_id", "step", "files"})
    refused(changed(key, nullptr), OCTAVO_INVALID, "no run_id, step and files");
  refused(changed("files", Json::array()), OCTAVO_INVALID, "no run_id, step and files");
  refused(changed("files", {1, 2}), OCTAVO_INVALID, "no name, bytes and blake2b for rank 0");
  for (const char *name : {"../x/rank-0000-of-0002.safetensors", kOne, "x", ""}) {
    Json m = good;
    m["files"][0]["name"] = name;
    refused(m, OCTAVO_INVALID, "for rank 0 of 2");
  }
  put_file(path, "{}");
  expect_refused(*r, directory, OCTAVO_INVALID, {"manifest.json", "no hash of itself"});
  put_file(path, "");
  expect_refused(*r, directory, OCTAVO_INVALID, {"manifest.json", "no hash of itself"});
  fs::resize_file(path, 64 << 20);
  expect_refused(*r, directory, OCTAVO_INVALID, {"manifest.json", "no hash of itself"});
  fs::resize_file(path, (64 << 20) + 1);
  expect_refused(*r, directory, OCTAVO_INVALID, {"manifest.json", "more than 64 MiB"});
  fs::remove(path);
  fs::create_directory(path);
  expect_refused(*r, directory, OCTAVO_NO_RESOURCE, {"manifest.json", "a file that can be read"});
}

// Until every rank has saved, the directory holds what it held.
TEST_F(CheckpointSetTest, the_old_checkpoint_stays_until_the_last_rank_has_saved) {
  const std::string directory = saved("a", 2, 1, 1);
  for (uint64_t step = 2; step < 6; ++step) {
    const auto world = open_world(2), reader = open_world(2);
    const auto loads = [&](uint64_t expected) {
      uint64_t found = 0;
      ASSERT_EQ(reader[1]->load(directory, &found), OCTAVO_OK) << reader[1]->error();
      EXPECT_EQ(found, expected);
      reader[0]->fill(static_cast<unsigned>(expected));
      const auto wanted = reader[0]->content(false);
      ASSERT_EQ(reader[0]->load(directory), OCTAVO_OK) << reader[0]->error();
      EXPECT_TRUE(reader[0]->content(false) == wanted) << "step " << expected;
    };
    for (const auto &r : world) r->fill(static_cast<unsigned>(step));
    ASSERT_EQ(world[step % 2]->save(directory, step), OCTAVO_OK);
    loads(step - 1);
    ASSERT_EQ(world[1 - step % 2]->save(directory, step), OCTAVO_OK);
    loads(step);
  }
  EXPECT_EQ(files_in(directory).size(), 6u) << "two names a rank, the manifest, the lock";
}

TEST_F(CheckpointSetTest, a_save_that_was_cut_off) {
  const auto world = open_world(3);
  ASSERT_EQ(world[0]->save(dir / "c", 3), OCTAVO_OK);
  ASSERT_EQ(world[2]->save(dir / "c", 4), OCTAVO_OK);
  expect_refused(*world[0], dir / "c", OCTAVO_NO_RESOURCE,
                 {"expected manifest.json", "no rank-0001-of-0003.safetensors", "steps 3 and 4"});
}

// Ranks of other processes: each would draw an id of its own.
TEST_F(CheckpointSetTest, a_rank_alone_needs_the_id_of_its_run) {
  CheckpointModel m;
  const auto alone = open(m, 1, 7);
  EXPECT_EQ(alone->save(dir / "c", 1), OCTAVO_INVALID);
  for (const char *word : {"all 7 ranks in this process", "checkpoint.run_id", "found neither"})
    EXPECT_THAT(alone->error(), testing::HasSubstr(word));
  EXPECT_FALSE(fs::exists(dir / "c"));
  m.run_id = "job-12.Z_";
  for (uint32_t rank = 0; rank < 7; ++rank) {
    const auto r = open(m, rank, 7);
    r->fill(1);
    ASSERT_EQ(r->save(dir / "c", 1), OCTAVO_OK) << r->error();
  }
  EXPECT_EQ(manifest(dir / "c")["run_id"], m.run_id);
  for (const std::string &wrong : {std::string("a b"), std::string("\n"), std::string(65, 'x')}) {
    m.run_id = wrong;
    const auto r = open(m);
    EXPECT_EQ(r->save(dir / "d", 1), OCTAVO_INVALID);
    EXPECT_THAT(r->error(), testing::HasSubstr("checkpoint.run_id: expected 1 to 64 letters"));
  }
}

TEST_F(CheckpointSetTest, what_dead_writers_left_goes) {
  const std::string directory = saved("c", 1, 1);
  for (const char *name : {"rank-0000-of-0001.safetensors.tmp.1.0", "manifest.json.tmp.123.4",
                           "rank-0000-of-0001.b.safetensors.tmp.9.9", "mine.tmp.1.0"})
    dir.write(std::string("c/") + name, "x");
  saved("c", 1, 2);
  EXPECT_THAT(files_in(directory), testing::ElementsAre("lock", "manifest.json", "mine.tmp.1.0",
                                                        "rank-0000-of-0001.b.safetensors",
                                                        "rank-0000-of-0001.safetensors"));
}

// Another process holds the lock while it writes: 100 tries, 100 refusals, and the one after the
// end of that process is fine.
TEST_F(CheckpointSetTest, a_second_run_is_refused_by_process_and_host) {
  const std::string directory = saved("c", 1, 1);
  put_file(directory + "/lock", "run other\nprocess 4711\nhost far\n");
  const auto r = open();
  r->fill(1);
  const auto before = r->content(false);
  {
    const Descriptor held(::open((directory + "/lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(held.get(), LOCK_SH), 0);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(r->save(directory, 2), OCTAVO_WRONG_STATE) << i;
      for (const char *word : {"found host far, process 4711, run other", "its own directory"})
        ASSERT_THAT(r->error(), testing::HasSubstr(word)) << i;
    }
    uint64_t step = 0;
    ASSERT_EQ(r->load(directory, &step), OCTAVO_OK) << r->error();
    EXPECT_EQ(step, 1u);
    EXPECT_TRUE(r->content(false) == before);
  }
  EXPECT_EQ(r->save(directory, 2), OCTAVO_OK) << r->error();
  EXPECT_THAT(whole_file(directory + "/lock"),
              testing::HasSubstr("\nprocess " + std::to_string(getpid()) + "\nhost "));
}

// The version before hashes and manifests.
TEST_F(CheckpointSetTest, files_of_schema_1) {
  const std::string directory = saved("c", 1, 1),
                    path = directory + "/rank-0000-of-0001.safetensors";
  fs::remove(directory + "/manifest.json");
  const std::string file = whole_file(path);
  Json header = Json::parse(header_of(file));
  Json texts = header["__metadata__"];
  for (const auto &[key, text] : header["__metadata__"].items())
    if (key == "octavo.header_blake2b" || key.find("xxh3") != std::string::npos ||
        key == "octavo.run_id")
      texts.erase(key);
  texts["octavo.schema"] = "1";
  header["__metadata__"] = texts;
  put_file(path, with_header(file, header.dump()));
  expect_refused(*open(), directory, OCTAVO_INCOMPATIBLE,
                 {"schema 2 or 3", "found \"1\", whose tensors have no hashes", "0.1.0"});
}

}  // namespace
}  // namespace octavo::test

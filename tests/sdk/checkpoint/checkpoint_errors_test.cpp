// What octavo_store_load refuses, with which words; and saves that the system refuses.
#include <sys/resource.h>

#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/sealed_checkpoint.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;

class CheckpointErrorsTest : public CheckpointTest {
 protected:
  // A checkpoint of one rank with one piece of its header replaced, and hashes that fit it.
  std::string edited(const std::string &from, const std::string &to) {
    fs::remove_all(dir / "edited");
    const std::string directory = saved("edited", 1, 7);
    edit_header(directory, "rank-0000-of-0001.safetensors", from, to);
    return directory;
  }
};

TEST_F(CheckpointErrorsTest, files_that_are_missing) {
  const auto r = open();
  expect_refused(*r, dir / "nowhere", OCTAVO_NO_RESOURCE, {"nowhere", "No such file"});
  dir.make_directory("empty");
  expect_refused(*r, dir / "empty", OCTAVO_NO_RESOURCE,
                 {"rank-0000-of-0001.safetensors", "found none"});
  const std::string three = saved("three", 3, 1);
  fs::remove(three + "/rank-0001-of-0003.safetensors");
  expect_refused(*r, three, OCTAVO_NO_RESOURCE,
                 {"files of 3 ranks", "no rank-0001-of-0003.safetensors"});
}

TEST_F(CheckpointErrorsTest, files_without_a_header) {
  const auto r = open();
  const std::string directory = saved("short", 1, 1);
  const std::string path = directory + "/rank-0000-of-0001.safetensors";
  put_file(path, std::string(7, '\0'));
  expect_refused(*r, directory, OCTAVO_INVALID, {"expected at least 8 bytes, found 7"});
  put_file(path, std::string(8, '\0'));
  expect_refused(*r, directory, OCTAVO_INVALID, {"expected a header that starts with {"});
}

TEST_F(CheckpointErrorsTest, files_of_several_checkpoints) {
  const auto r = open();
  const std::string two = saved("two", 2, 1), three = saved("three", 3, 1);
  const std::string name = "/rank-0002-of-0003.safetensors";
  fs::copy_file(three + name, two + name);
  expect_refused(*r, two, OCTAVO_INVALID, {"worlds of 2 and 3", "remove"});
}

TEST_F(CheckpointErrorsTest, another_backend_or_option) {
  const std::string directory = saved("c", 1, 1);
  CheckpointModel te;
  te.backend = "te";
  te.texts.clear();
  expect_refused(*open(te), directory, OCTAVO_INVALID,
                 {"backend \"te\"", "found one of \"msamp\"", "fp8.backend"});
  CheckpointModel o2;
  o2.texts["opt_level"] = "O2";
  expect_refused(*open(o2), directory, OCTAVO_INVALID,
                 {"fp8.msamp.opt_level", "\"O2\" (override)", "found \"O3\""});
  const auto r = open();
  expect_refused(*r, edited("octavo.option.opt_level", "octavo.option.opt_levex"), OCTAVO_INVALID,
                 {"fp8.msamp.opt_level", "does not name it"});
  expect_refused(*r, edited("\"octavo.version\":\"0.1.0\"", "\"octavo.option.x\":\"0.1.\""),
                 OCTAVO_INVALID, {"options of backend msamp", "found \"x\""});
}

TEST_F(CheckpointErrorsTest, other_options_of_a_layer) {
  CheckpointModel m;
  m.backend = "te";
  m.texts = {{"recipe", "current"}};
  m.rules = {{"0.match", "down"}, {"0.fp8.te.recipe", "block"}};
  const std::string directory = saved("c", 1, 1, 1, m);
  EXPECT_EQ(open(m)->load(directory), OCTAVO_OK);
  CheckpointModel other = m;
  other.rules["0.fp8.te.recipe"] = "mx";
  expect_refused(*open(other), directory, OCTAVO_INVALID,
                 {"option of a layer \"down.recipe\"", "this session, \"mx\"", "found \"block\"",
                  "[[layers.rule]]"});
  other.rules["0.match"] = "up";
  other.rules["0.fp8.te.recipe"] = "block";
  expect_refused(*open(other), directory, OCTAVO_INVALID,
                 {"option of a layer \"up.recipe\"", "found no value for this layer"});
  other.rules.clear();
  expect_refused(*open(other), directory, OCTAVO_INVALID,
                 {"option of a layer \"down.recipe\"", "this session, no value for this layer",
                  "found \"block\""});
}

// Two pools of one name, of the session's history and of the rule's.
TEST_F(CheckpointErrorsTest, mixed_histories_come_back_and_others_are_refused) {
  CheckpointModel m;
  m.backend = "te";
  m.texts.clear();
  m.numbers["amax_history_len"] = 4;
  m.rules = {{"0.match", "down"}, {"0.fp8.te.amax_compute_algo", "most_recent"}};
  const auto saver = open(m);
  saver->fill(3);
  ASSERT_EQ(saver->save(dir / "m", 5), OCTAVO_OK) << saver->error();
  const auto loader = open(m);
  ASSERT_EQ(loader->load(dir / "m"), OCTAVO_OK) << loader->error();
  EXPECT_EQ(loader->content(false), saver->content(false));
  EXPECT_EQ(loader->content(false).size(), 18u);
  m.rules["0.match"] = "*";
  expect_refused(*open(m), dir / "m", OCTAVO_INVALID,
                 {"option of a layer \"out.amax_compute_algo\""});
}

// No pool names them, and random numbers follow the ids.
TEST_F(CheckpointErrorsTest, another_order_of_linears) {
  CheckpointModel m;
  m.backend = "te";
  m.texts = {{"recipe", "current"}, {"gradient_rounding", "stochastic"}};
  const std::string directory = saved("c", 1, 1, 1, m);
  m.linears = {"down", "up", "out"};
  expect_refused(*open(m), directory, OCTAVO_INVALID,
                 {"the 3 linears of this model", "linear 0 with \"up\" instead of \"down\""});
}

TEST_F(CheckpointErrorsTest, another_model) {
  const std::string directory = saved("c", 1, 1);
  CheckpointModel m;
  m.width = 16;
  expect_refused(*open(m), directory, OCTAVO_INVALID,
                 {"expected F8_E4M3 [1, 16]", "found F8_E4M3 [1, 8]"});
  m = {};
  m.linears = {"up", "down", "in"};
  expect_refused(*open(m), directory, OCTAVO_INVALID,
                 {"labels of 3 columns", "column 2 with \"out\" instead of \"in\""});
  m.linears = {"up", "down"};
  expect_refused(*open(m), directory, OCTAVO_INVALID, {"labels of 2 columns", "found 3 names"});
  m = {};
  m.with_bias = false;
  expect_refused(*open(m), directory, OCTAVO_INVALID,
                 {"found \"parameter/bias/", "which it does not have"});
  const std::string without = saved("without", 1, 1, 1, m);
  expect_refused(*open(), without, OCTAVO_INVALID,
                 {"expected tensor \"parameter/bias/exp_avg\" in the file of one rank"});
  expect_refused(*open(), edited("session/dy/scale\":{", "session/dy/scalx\":{"), OCTAVO_INVALID,
                 {"session/dy/scalx"});
}

TEST_F(CheckpointErrorsTest, other_metadata) {
  const auto r = open();
  expect_refused(*r, edited("\"octavo.schema\":\"3\"", "\"octavo.schema\":\"4\""),
                 OCTAVO_INCOMPATIBLE, {"schema 2 or 3", "found \"4\"", "0.1.0"});
  // Of the other hash.
  expect_refused(*r, edited("\"octavo.schema\":\"3\"", "\"octavo.schema\":\"2\""), OCTAVO_INVALID,
                 {"expected \"octavo.blake2b.", "octavo_store_save"});
  for (const char *key : {"octavo.schema", "octavo.backend", "octavo.header_blake2b",
                          "octavo.xxh3_128.session/x/scale"}) {
    std::string other = key;
    other.back() = 'x';
    expect_refused(*r, edited(std::string("\"") + key, "\"" + other), OCTAVO_INVALID,
                   {std::string("expected \"") + key, "octavo_store_save"});
  }
  expect_refused(*r,
                 edited("\"octavo.labels.session/x/scale\"", "\"octavo.labels.session/x/scalx\""),
                 OCTAVO_INVALID, {"session/x/scale", "labels of 3 columns", "found none"});
  const std::string place = R"("octavo.labels.session/x/scale":")";
  expect_refused(
      *r, edited(place + R"([\"up\",\"down\",\"out\"]")", place + R"({\"up\":\"down\",\"o\":1}")"),
      OCTAVO_INVALID, {"session/x/scale", "labels of 3 columns", "found other ones"});
}

TEST_F(CheckpointErrorsTest, names_that_are_not_utf_8) {
  CheckpointModel m;
  m.linears = {"\xff"};
  const auto r = open(m);
  EXPECT_EQ(r->save(dir / "c", 1), OCTAVO_INVALID);
  EXPECT_THAT(r->error(), testing::HasSubstr("UTF-8"));
  m.linears = {"up"};
  const auto good = open(m);
  EXPECT_EQ(good->save(dir / "c", 1), OCTAVO_OK) << good->error();
}

TEST_F(CheckpointErrorsTest, a_directory_that_cannot_take_the_files) {
  const auto r = open();
  dir.write("file", "x");
  EXPECT_EQ(r->save(dir / "file", 1), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(r->error(), testing::HasSubstr("expected a directory"));
  EXPECT_EQ(r->save(dir / "file/below", 1), OCTAVO_NO_RESOURCE);
  // The name is taken by something that a file cannot replace; no other file is left.
  dir.make_directory("taken/rank-0000-of-0001.safetensors/x");
  EXPECT_EQ(r->save(dir / "taken", 1), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(r->error(), testing::HasSubstr("a name that a file can take"));
  EXPECT_THAT(files_in(dir / "taken"),
              testing::ElementsAre("lock", "rank-0000-of-0001.safetensors"));
  expect_refused(*r, dir / "taken", OCTAVO_INVALID, {"a regular file", "another kind"});
  // Ranks of another world stay: two checkpoints in one directory could not be distinguished.
  const std::string two = saved("two", 2, 1);
  EXPECT_EQ(r->save(two, 1), OCTAVO_WRONG_STATE);
  EXPECT_THAT(r->error(), testing::HasSubstr("ranks of 2"));
  EXPECT_THAT(r->error(), testing::HasSubstr("its own directory"));
}

// A limit on the size of files answers a write as a full disk does, in the middle, and sends
// SIGXFSZ, which would end this process.
TEST_F(CheckpointErrorsTest, a_disk_that_is_full_leaves_the_old_file) {
  const auto r = open();
  const std::string directory = saved("c", 1, 1);
  const std::string path = directory + "/rank-0000-of-0001.safetensors";
  const std::string before = read_text(path);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {4096, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  r->fill(9);
  const octavo_status status = r->save(directory, 2);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(status, OCTAVO_NO_RESOURCE);
  EXPECT_THAT(r->error(), testing::HasSubstr("a file that can be written"));
  EXPECT_EQ(read_text(path), before);
  EXPECT_THAT(files_in(directory),
              testing::ElementsAre("lock", "manifest.json", "rank-0000-of-0001.safetensors"));
}

}  // namespace
}  // namespace octavo::test

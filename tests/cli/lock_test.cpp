// octavo plugin lock, and what --locked and plugins.locked refuse afterwards.
#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliLock : public Cli {
 protected:
  CliLock() {
    environment.set("XDG_DATA_HOME", dir / "data");
    EXPECT_EQ(octavo({"plugin", "allow", dir / "plugins"}).exit_code, 0);
    config =
        dir.write("octavo.toml",
                  "[fp8]\nbackend = \"fake\"\n[plugins]\ntrust = \"dev\"\npath = [\"plugins\"]\n");
  }
  std::string lock() const { return dir / "octavo.lock"; }
  void write_lock() {
    const Finished f = octavo({"plugin", "lock", config});
    ASSERT_EQ(f.exit_code, 0) << f.err;
    ASSERT_EQ(octavo({"check", "--locked", config}).exit_code, 0);
  }
  // The lock refuses, for this reason.
  void expect_drift(const std::string &found) {
    const Finished f = octavo({"check", "--json", "--locked", config});
    EXPECT_EQ(f.exit_code, 1) << f.out << f.err;
    const json j = json::parse(f.out);
    const json verdict = j["candidates"][0]["verdicts"].back();
    EXPECT_EQ(verdict["reason"], "lock");
    EXPECT_THAT(verdict["evidence"], HasSubstr(found));
    EXPECT_EQ(verdict["remedy"], "run `octavo plugin lock " + config + "` if the change is wanted");
    EXPECT_EQ(octavo({"check", config}).exit_code, 0);  // nobody asked for the lock
  }
  std::string config;
};

TEST_F(CliLock, writes_the_file_and_says_so) {
  const Finished f = octavo({"plugin", "lock", config});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out, HasSubstr(std::string("fake 1.2.3, ABI 1.0, ") + kTuple + "\n  sha256 "));
  EXPECT_THAT(f.out, HasSubstr("written to " + lock() + "\n"));
  const std::string text = read_text(lock());
  for (const char *line :
       {"lock_version = 1\n", "name = \"fake\"\n", "version = \"1.2.3\"\n", "abi = \"1.0\"\n",
        "\nsha256 = \"", "\nmanifest_sha256 = \"", "\nverdict = \""})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_EQ(octavo({"plugin", "lock", config}).exit_code, 0);
  EXPECT_EQ(read_text(lock()), text);  // again, and nothing differs
  EXPECT_EQ(octavo({"check", "--locked", config}).exit_code, 0);
  EXPECT_EQ(octavo({"check", config, "--set", "plugins.locked=true"}).exit_code, 0);
  EXPECT_EQ(octavo({"plugin", "list", "--locked", config}).exit_code, 0);
}

TEST_F(CliLock, as_json) {
  write_lock();
  const std::string text = read_text(lock());
  std::string other = text.substr(text.find("[[plugin]]"));
  other.replace(other.find(kTuple), std::string(kTuple).size(), "plan9-mips");
  dir.write("octavo.lock", text + "\n" + other);
  Finished f = octavo({"plugin", "lock", config, "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  const json j = by_schema("lock", f);
  EXPECT_EQ(j["file"], lock());
  EXPECT_THAT(read_text(lock()), HasSubstr("plan9-mips"));
  ASSERT_FALSE(j["plugins"].empty());
  bool has_fake = false;
  for (const json &plugin : j["plugins"]) {
    EXPECT_EQ(plugin["platform"], kTuple) << "of other platforms nothing was locked";
    for (const auto &[key, value] : plugin.items())
      EXPECT_THAT(text, HasSubstr(key + " = " + value.dump() + "\n"));
    has_fake |= plugin["name"] == "fake";
  }
  EXPECT_TRUE(has_fake);
  f = octavo({"plugin", "lock", config, "--json", "--set", "fp8.backend=absent"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_EQ(f.out, "");
}

TEST_F(CliLock, without_a_lock_file) {
  const Finished f = octavo({"check", "--json", "--locked", config});
  EXPECT_EQ(f.exit_code, 1);
  const json verdict = json::parse(f.out)["candidates"][0]["verdicts"][0];
  EXPECT_EQ(verdict["reason"], "lock");
  EXPECT_THAT(verdict["evidence"], HasSubstr(lock() + ": cannot be read: No such file"));
}

TEST_F(CliLock, another_library) {
  write_lock();
  dir.copy(fake_library("query_speaks"), "plugins/fake.so");
  expect_drift("sha256: locked ");
  EXPECT_EQ(octavo({"plugin", "lock", config}).exit_code, 0);
  EXPECT_EQ(octavo({"check", "--locked", config}).exit_code, 0);
}

TEST_F(CliLock, another_manifest) {
  write_lock();
  std::string text = fake_manifest();
  text.replace(text.find("1.2.3"), 5, "1.2.4");
  dir.write("plugins/fake.octavo-plugin.toml", text);
  expect_drift("version: locked 1.2.3, found 1.2.4 and manifest_sha256: locked ");
}

TEST_F(CliLock, another_answer) {
  write_lock();
  std::string text = read_text(lock());
  const size_t at = text.find("verdict = \"") + 11;
  text[at] = text[at] == '0' ? '1' : '0';
  dir.write("octavo.lock", text);
  expect_drift("verdict: locked ");
}

TEST_F(CliLock, damaged_lock_file) {
  write_lock();
  dir.write("octavo.lock", "lock_version = 7\n");
  const Finished f = octavo({"check", "--json", "--locked", config});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(json::parse(f.out)["candidates"][0]["verdicts"][0]["evidence"],
              HasSubstr("lock_version: expected 1, found 7"));
  EXPECT_EQ(octavo({"plugin", "lock", config}).exit_code, 0);
  EXPECT_EQ(octavo({"check", "--locked", config}).exit_code, 0);
}

TEST_F(CliLock, backend_that_the_lock_does_not_name) {
  write_lock();
  const Finished f =
      octavo({"check", config, "--json", "--locked", "--set", "fp8.backend=reference"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_EQ(json::parse(f.out)["candidates"][0]["verdicts"][0]["text"],
            "plugins.locked refuses reference: the lock file does not name it");
}

TEST_F(CliLock, every_backend_that_the_file_names) {
  config = dir.write("octavo.toml",
                     "[fp8]\npreference = [\"te\", \"absent\"]\nfallback = [\"fake\", \"bf16\"]\n"
                     "[fp8.reference]\n[plugins]\ntrust = \"dev\"\npath = [\"plugins\"]\n");
  const Finished f = octavo({"plugin", "lock", config});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.err, HasSubstr("warning: absent is not locked: "));
  const std::string text = read_text(lock());
  for (const char *name : {"te", "fake", "reference"})
    EXPECT_THAT(text, HasSubstr(std::string("name = \"") + name + "\"\n"));
  EXPECT_EQ(octavo({"check", "--locked", config}).exit_code, 0);
  EXPECT_EQ(octavo({"config", "show", "--locked", config}).exit_code, 0);
}

TEST_F(CliLock, entries_of_other_platforms_stay) {
  write_lock();
  std::string text = read_text(lock());
  std::string other = text.substr(text.find("[[plugin]]"));
  other.replace(other.find(kTuple), std::string(kTuple).size(), "plan9-mips");
  dir.write("octavo.lock", text + "\n" + other);
  write_lock();
  EXPECT_THAT(read_text(lock()), HasSubstr("platform = \"plan9-mips\"\n"));
}

TEST_F(CliLock, locked_hash_is_a_pin) {
  const Finished owner = octavo({"check", config, "--set", "plugins.trust=owner"});
  if (owner.exit_code != 0)
    GTEST_SKIP() << "the temporary directory is not trusted itself: " << owner.out;
  EXPECT_EQ(octavo({"check", config, "--set", "plugins.trust=pinned"}).exit_code, 1);
  EXPECT_EQ(octavo({"plugin", "lock", config, "--set", "plugins.trust=pinned"}).exit_code, 0);
  EXPECT_EQ(octavo({"check", config, "--set", "plugins.trust=pinned"}).exit_code, 0);
  dir.copy(fake_library("query_speaks"), "plugins/fake.so");
  EXPECT_EQ(octavo({"check", config, "--set", "plugins.trust=pinned"}).exit_code, 1);
}

TEST_F(CliLock, nothing_to_lock) {
  Finished f = octavo({"plugin", "lock"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err,
              HasSubstr("expected a configuration file, since octavo.lock is written next to it"));
  f = octavo({"plugin", "lock", config, "--set", "fp8.backend=absent"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.err, HasSubstr("none of the backends that it names can be loaded here"));
  EXPECT_FALSE(std::filesystem::exists(lock()));
}

}  // namespace
}  // namespace octavo::test

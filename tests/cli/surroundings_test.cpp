// What surrounds the program may be bare or broken: no home, closed descriptors, a deleted folder,
// files of another century. Each command ends with a documented exit code, and what it writes is
// whole.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

struct Surroundings {
  const char *name;
  const char *before;  // a line of the shell that ends before the command
  const char *behind;  // redirections
  int exit_code;       // of a command that prints something and is content
};

void PrintTo(const Surroundings &s, std::ostream *out) {
  *out << s.name;
}

// The last one has a reader that went away: as any filter, the program then ends by SIGPIPE.
const Surroundings kAll[] = {
    {"no_variables", "exec env -i", "", 0},
    {"folders_that_are_not_there", "HOME=/nowhere TMPDIR=/nowhere XDG_CACHE_HOME=/nowhere exec", "",
     0},
    {"folders_that_nobody_can_write", "HOME=/proc XDG_CACHE_HOME=/proc exec", "", 0},
    {"a_home_that_is_no_folder", "HOME=/dev/null exec", "", 0},
    {"a_relative_home", "HOME=. XDG_CACHE_HOME=. exec", "", 0},
    {"a_deleted_folder", "mkdir gone && cd gone && rmdir ../gone && exec", "", 0},
    {"no_file_may_grow", "ulimit -f 0; HOME=\"$PWD\" exec", ">/dev/null 2>&1", 0},
    {"closed_input", "exec", "<&-", 0},
    {"closed_errors", "exec", "2>&-", 0},
    {"closed_output", "exec", ">&-", 3},
    {"nothing_open", "exec", "<&- >&- 2>&-", 3},
    {"full_output", "exec", ">/dev/full", 3},
    {"no_reader", "rm -f f && mkfifo f && exec 4<>f && exec 1>f && exec 4<&- && exec", "", -13},
};

class CliSurroundings : public Cli {
 protected:
  CliSurroundings() {
    std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
    environment.unset("XDG_CACHE_HOME");
  }
  Finished run(const std::string &command, const Surroundings &s) {
    return run_program({"/bin/sh", "-c",
                        "cd '" + dir.path() + "' && " + s.before + " '" OCTAVO_CLI "' " + command +
                            " " + s.behind});
  }
};

class EachSurroundings : public CliSurroundings,
                         public testing::WithParamInterface<Surroundings> {};

TEST_P(EachSurroundings, end_every_command_with_a_documented_code) {
  const Surroundings &s = GetParam();
  const std::string fake = " --set plugins.trust=dev --plugin-dir '" + (dir / "plugins") + "'";
  for (const std::string command :
       {"plugin list", "check", "doctor", "doctor --anonymous", "config show"})
    EXPECT_EQ(run(command + fake, s).exit_code, s.exit_code) << command;
  for (const char *command :
       {"--help", "--version", "man", "completion bash", "plugin manifest a --version 1",
        "plugin verify reference --only load"})
    EXPECT_EQ(run(command, s).exit_code, s.exit_code) << command;
}

INSTANTIATE_TEST_SUITE_P(All, EachSurroundings, testing::ValuesIn(kAll),
                         [](const auto &each) { return std::string(each.param.name); });

// A descriptor that is free becomes that of the next file: what is printed must not get into it.
TEST_F(CliSurroundings, closed_descriptors_leave_written_files_alone) {
  const std::string config = dir.write("octavo.toml", "[fp8]\nbackend = \"reference\"\n");
  const Surroundings open{"", "exec", "", 0}, closed{"", "exec", "<&- >&- 2>&-", 3};
  ASSERT_EQ(run("plugin lock octavo.toml", open).exit_code, 0);
  const std::string lock = read_text(dir / "octavo.lock");
  std::filesystem::remove(dir / "octavo.lock");
  EXPECT_EQ(run("plugin lock octavo.toml", closed).exit_code, 3);
  EXPECT_EQ(read_text(dir / "octavo.lock"), lock);
}

// The kernel's signal for it would end the program.
TEST_F(CliSurroundings, a_file_that_may_not_grow_is_an_error_and_leaves_the_old_one) {
  dir.write("octavo.toml", "[fp8]\nbackend = \"reference\"\n");
  const Surroundings free{"", "exec", "", 0};
  const Surroundings limited{"", "{ (ulimit -f 0; exec", "); echo \"exit $?\"; } 2>&1 | cat", 0};
  ASSERT_EQ(run("plugin lock octavo.toml", free).exit_code, 0);
  const std::string lock = read_text(dir / "octavo.lock");
  const std::string text = run("plugin lock octavo.toml", limited).out;
  EXPECT_THAT(text, HasSubstr("File too large"));
  EXPECT_THAT(text, HasSubstr("\nexit 3\n"));
  EXPECT_EQ(read_text(dir / "octavo.lock"), lock);
}

TEST_F(CliSurroundings, a_relative_file_in_a_deleted_folder_is_named) {
  const Surroundings deleted{"", "mkdir gone && cd gone && rmdir ../gone && exec", "", 2};
  for (const char *command : {"check a.toml", "config show a.toml", "plugin lock a.toml"}) {
    const Finished f = run(command, deleted);
    EXPECT_EQ(f.exit_code, 2) << command;
    EXPECT_THAT(f.out + f.err,
                HasSubstr("a.toml: expected a current directory for a relative path, found none"))
        << command;
  }
}

// As after a jump of the clock: a result is known by the file's time, whichever it is, and never by
// today's.
TEST_F(CliSurroundings, files_of_other_centuries_are_remembered) {
  const std::string fake = " --set plugins.trust=dev --plugin-dir '" + (dir / "plugins") + "'";
  for (const std::string time : {"2100-01-01", "1970-01-02"}) {
    const Surroundings at{"", "HOME=\"$PWD\" exec", "", 0};
    run_program({"/bin/sh", "-c",
                 "touch -d " + time + " '" + (dir / "plugins/fake.so") + "' '" + dir.path() + "'"});
    EXPECT_THAT(run("doctor" + fake, at).out,
                HasSubstr("fake          1.2.3   accepted, probed in "))
        << time;
    EXPECT_THAT(run("doctor" + fake, at).out,
                HasSubstr("fake          1.2.3   accepted, remembered\n"))
        << time;
  }
}

// A FIFO would be waited for, a device never ends.
TEST_F(CliSurroundings, what_is_no_regular_file_is_refused_at_once) {
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string &path : {pipe, std::string("/dev/zero"), std::string("/dev/tty")})
    for (const std::vector<std::string> &command :
         std::vector<std::vector<std::string>>{{"check"},
                                               {"config", "show"},
                                               {"plugin", "lock"},
                                               {"doctor"},
                                               {"init", "--dry-run", "--from"},
                                               {"report"},
                                               {"estimate"}}) {
      std::vector<std::string> whole = command;
      whole.push_back(path);
      const Finished f = octavo(whole);
      EXPECT_GT(f.exit_code, 0) << command[0] << path;
      EXPECT_THAT(f.out + f.err, HasSubstr("expected a regular file, found")) << command[0] << path;
    }
}

// Code that walks over nested values calls itself for each level.
TEST_F(CliSurroundings, nested_files_are_refused) {
  std::string deep = "{\"a\": ";
  for (int i = 0; i < 1000000; ++i) deep += '[';
  const std::string closed = deep + std::string(1000000, ']') + "}";
  for (const std::string &text : {deep, closed})
    for (const std::vector<std::string> &command : std::vector<std::vector<std::string>>{
             {"report", dir.write("a.jsonl", text)},
             {"report", dir.write("trainer_state.json", text)},
             {"estimate", dir.write("config.json", text)},
             {"init", "--from", dir.write("ds.json", text), "--dry-run"},
             {"check", dir.write("octavo.toml", text)}})
      EXPECT_EQ(octavo(command).exit_code, 2) << command[0] << command[1];
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Nobody could catch what an initialiser throws. liboctavo and the helper ask for nothing there; of
// the libraries of octavo some do, and then it says what is short.
TEST_F(CliSurroundings, memory_that_is_short_before_main) {
  environment.set("LD_PRELOAD", OCTAVO_HEAP_BEFORE_MAIN);
  EXPECT_EQ(run_program({OCTAVO_EARLY_ALLOCATION}).exit_code, -SIGABRT);
  const Finished f = octavo({"--version"});
  EXPECT_EQ(f.exit_code, 3);
  EXPECT_EQ(f.err, "error: out of memory\n");
  EXPECT_EQ(run_program({OCTAVO_PROBE}).exit_code, 2);  // it has no arguments
  environment.set("HEAP_OF", "octavo");
  EXPECT_EQ(run_program({OCTAVO_EARLY_ALLOCATION}).exit_code, 97);
  EXPECT_EQ(run_program({OCTAVO_PROBE}).exit_code, 2);
  environment.set("HEAP_OF", "liboctavo");
  EXPECT_EQ(octavo({"--version"}).exit_code, 0);
}
#endif

}  // namespace
}  // namespace octavo::test

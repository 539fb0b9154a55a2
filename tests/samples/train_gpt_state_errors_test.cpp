// Checkpoints that the program refuses before any training, and one that an interrupt leaves.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/samples/program_run.h"
#include "tests/support/seed.h"

namespace gpt_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string saved() {
  return test_directory() + "/saved";
}

// A checkpoint of 3 of 12 steps.
void save(const std::string &run_name) {
  const Finished finished = run(small({"--run", run_name, "--save", saved(), "--stop-after", "3"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  fs::remove_all(test_directory() + "/out");
}

std::vector<std::string> resumed(const std::string &run_name,
                                 const std::vector<std::string> &more = {}) {
  std::vector<std::string> all = small({"--run", run_name, "--resume", saved()});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string step_file(const std::string &run_name, const std::string &name) {
  return saved() + "/" + run_name + "/step-00000003/" + name;
}

TEST(StateErrors, a_run_that_was_not_saved) {
  expect_refused(run(resumed("fp32")), {"--resume", "fp32/latest", "No such file"});
  save("fp32");
  expect_refused(run(resumed("bf16")), {"bf16/latest", "No such file"});
  write_text(saved() + "/fp32/latest", "../fp32/step-00000003\n");
  expect_refused(run(resumed("fp32")), {"the name of a checkpoint", "../fp32"});
  write_text(saved() + "/fp32/latest", "step-00000004\n");
  expect_refused(run(resumed("fp32")), {"step-00000004", "no file that can be read"});
}

TEST(StateErrors, another_command_line) {
  save("fp32");
  for (const auto &[option, value, key] :
       std::vector<std::array<std::string, 3>>{{"--width", "64", "width 64"},
                                               {"--heads", "4", "heads 4"},
                                               {"--layers", "2", "layers 2"},
                                               {"--context", "8", "context 8"},
                                               {"--batch", "8", "batch 8"},
                                               {"--steps", "13", "steps 13"}}) {
    expect_refused(run(replaced(resumed("fp32"), option, value)), {key + " as on this command"});
  }
  expect_refused(run(resumed("fp32", {"--seed", "2"})), {"seed 2 as on", "seed 1"});
  expect_refused(run(resumed("fp32", {"--rate", "0.25"})), {"rate 0.25 as on"});
  expect_refused(run(resumed("fp32", {"--end-rate", "0"})), {"end_rate 0.0 as on"});
  expect_refused(run(resumed("fp32", {"--nudge"})), {"nudge true as on"});
  write_text(test_directory() + "/text", some_text(7000));
  expect_refused(run(resumed("fp32")), {"text "});
}

TEST(StateErrors, nothing_left_to_train) {
  save("fp32");
  expect_refused(run(resumed("fp32", {"--stop-after", "3"})), {"fewer than 3 steps", "stop-after"});
  expect_refused(run(resumed("fp32", {"--stop-after", "13"})), {"--stop-after", "0 to 12"});
}

std::string text_of(const nlohmann::json &file) {
  std::string text;
  nlohmann::json::to_cbor(file, text);
  return text;
}

TEST(StateErrors, damaged_files) {
  save("te");
  const std::string own = step_file("te", "train_gpt.cbor");
  const std::string content = read_text(own);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{100}, content.size() - 1}) {
    write_text(own, content.substr(0, length));
    expect_refused(run(resumed("te")), {own, "cut off"});
  }
  for (const std::string &other : {"x" + content.substr(1), content + "x"}) {
    write_text(own, other);
    expect_refused(run(resumed("te")), {own, "damaged"});
  }

  // These are found when the run begins: tensors and slots are read then.
  const auto late = [&](const std::vector<std::string> &words) {
    const Finished finished = run(resumed("te"));
    EXPECT_EQ(finished.exit_code, 2) << finished.errors;
    for (const std::string &word : words) EXPECT_THAT(finished.errors, HasSubstr(word));
    EXPECT_FALSE(fs::exists(test_directory() + "/out/report.html"));
  };
  nlohmann::json other = nlohmann::json::from_cbor(content);
  other["tensors"]["norm.gain/value"].get_binary().pop_back();
  write_text(own, text_of(other));
  late({own, "norm.gain/value of 128 bytes", "127"});
  other["tensors"].erase("norm.gain/value");
  write_text(own, text_of(other));
  late({own, "tensors of this model"});
  write_text(own, content);
  fs::remove(step_file("te", "rank-0000-of-0001.safetensors"));
  late({"found no rank-0000-of-0001.safetensors"});
}

// Programs that read them would wait for ever, read without end, or call themselves for each level.
TEST(StateErrors, files_that_are_no_files_of_a_save) {
  save("te");
  const std::string own = step_file("te", "train_gpt.cbor"), latest = saved() + "/te/latest";
  for (const std::string &path : {own, latest}) {
    const std::string content = read_text(path);
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    expect_refused(run(resumed("te")), {path, "found:    a FIFO"});
    for (const auto &[target, found] :
         {std::pair("/dev/zero", "no regular file"), {"/", "a dir"}}) {
      fs::remove(path);
      fs::create_symlink(target, path);
      expect_refused(run(resumed("te")), {path, found});
    }
    fs::remove(path);
    write_text(path, content);
    fs::resize_file(path, uint64_t{1} << 37);
    expect_refused(run(resumed("te")), {path, "137438953472 bytes, where at most"});
    fs::remove(path);
    write_text(path, content);
  }
  // Arrays, maps, tags, and texts and bytes of pieces, one in the other; lengths that are not
  // there.
  for (const int head : {0x81, 0xA1, 0x9F, 0xBF, 0xC1, 0x5F, 0x7F, 0x9B, 0xBB, 0x5B, 0x7B, 0xD8}) {
    write_text(own, std::string(1000000, static_cast<char>(head)));
    expect_refused(run(resumed("te")), {own, "cut off or damaged"});
  }
}

TEST(StateErrors, a_save_that_cannot_be_written) {
  write_text(saved(), "a file");
  expect_refused(run(small({"--run", "fp32", "--save", saved()})),
                 {"--save", "a directory that can be created"});
}

// A limit on the size of files answers a write as a full disk does: in the middle. The last
// checkpoint stays, and the next run goes on from it.
TEST(StateErrors, a_disk_that_is_full) {
  save("te");
  const std::string before = read_text(step_file("te", "train_gpt.cbor"));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small_files = {4096, old.rlim_max};  // less than the states of te, which are first
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small_files), 0);
  const Finished finished = run(resumed("te", {"--save", saved(), "--stop-after", "5"}));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(finished.exit_code, 2) << finished.errors;
  for (const char *part : {"--save: ", "File too large", "the checkpoint before is as it was"})
    EXPECT_THAT(finished.errors, HasSubstr(part));
  EXPECT_TRUE(read_text(step_file("te", "train_gpt.cbor")) == before);
  EXPECT_EQ(read_text(saved() + "/te/latest"), "step-00000003\n");
  EXPECT_EQ(run(resumed("te", {"--save", saved()})).exit_code, 0);
  EXPECT_EQ(read_text(saved() + "/te/latest"), "step-00000012\n");
  EXPECT_FALSE(fs::exists(saved() + "/te/step-00000005")) << "what the failed save left";
}

TEST(StateErrors, options_that_need_a_directory) {
  for (const char *option : {"--save-every", "--keep"})
    expect_refused(run(small({"--run", "fp32", option, "2"})),
                   {option, "--save", "add --save DIR"});
  expect_refused(run(small({"--run", "fp32", "--save", saved(), "--keep", "0"})),
                 {"--keep", "1 to"});
}

// The bytes of the tensors, which no id of a process is in: the program's own file, and the data
// of each file of slots.
std::map<std::string, std::string> tensors_of(const std::string &step) {
  std::map<std::string, std::string> all;
  for (const auto &entry : fs::directory_iterator(step)) {
    const std::string name = entry.path().filename().string();
    const std::string content = read_text(entry.path().string());
    if (entry.path().extension() == ".cbor") all[name] = content;
    if (entry.path().extension() != ".safetensors") continue;
    uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    all[name] = content.substr(8 + length);
  }
  return all;
}
std::string newest(const std::string &directory) {
  const std::string names = read_text(directory + "/latest");
  return directory + "/" + names.substr(0, names.find('\n'));
}

std::vector<std::string> long_run(const std::vector<std::string> &more) {
  std::vector<std::string> all = {"--run", "te", "--ranks", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return replaced(small(all), "--steps", "100000");
}

class StateInterrupt : public testing::TestWithParam<int> {};

TEST_P(StateInterrupt, saves_and_the_rest_equals_the_unbroken_run) {
  const std::string metrics = test_directory() + "/out/metrics.jsonl";
  ChildProgram child(long_run({"--save", saved()}));
  wait_for_lines(metrics, 5);
  child.send(GetParam());
  const Finished finished = child.wait();
  ASSERT_EQ(finished.exit_code, 128 + GetParam()) << finished.errors;
  const int64_t taken = count_lines(metrics);
  ASSERT_GE(taken, 5) << "the training did not start";

  const std::string end = std::to_string(taken + 2);
  const Finished rest =
      run(long_run({"--resume", saved(), "--save", saved(), "--stop-after", end}));
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_EQ(count_lines(metrics), 2);
  EXPECT_THAT(read_text(metrics), HasSubstr("\"step\":" + end));
  const std::string whole = test_directory() + "/whole";
  ASSERT_EQ(run(long_run({"--save", whole, "--stop-after", end})).exit_code, 0);
  const auto expected = tensors_of(newest(whole + "/te"));
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_TRUE(tensors_of(newest(saved() + "/te")) == expected);
}

INSTANTIATE_TEST_SUITE_P(Signal, StateInterrupt, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto &case_) {
                           return std::string(case_.param == SIGINT    ? "SIGINT"
                                              : case_.param == SIGTERM ? "SIGTERM"
                                                                       : "SIGHUP");
                         });

TEST(StateLock, a_second_run_is_refused_100_times_by_process_and_host) {
  ChildProgram first(long_run({"--save", saved()}));
  wait_for_lines(test_directory() + "/out/metrics.jsonl", 1);
  const std::string holder = read_text(saved() + "/te/lock");
  EXPECT_THAT(holder, testing::MatchesRegex("process [0-9]+ on host .+\n"));
  const auto second = replaced(long_run({"--save", saved()}), "--out", test_directory() + "/out2");
  for (int i = 0; i < 100; ++i) {
    const Finished finished = run(second);
    ASSERT_EQ(finished.exit_code, 2) << finished.errors;
    ASSERT_THAT(finished.errors, HasSubstr("a directory that no other run writes"));
    ASSERT_THAT(finished.errors, HasSubstr(holder.substr(0, holder.size() - 1)));
    ASSERT_FALSE(fs::exists(test_directory() + "/out2")) << "something was written";
  }
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGTERM);
  auto third = second;
  third.insert(third.end(), {"--stop-after", "2"});
  EXPECT_EQ(run(third).exit_code, 0) << "the lock ends with its program";
}

// A chain of programs, each of which is killed at some time and saves after every step.
// By run: weights in the program, and in slots.
class StateKill : public testing::TestWithParam<const char *> {};

TEST_P(StateKill, whenever_a_program_is_killed_the_next_one_goes_on) {
  const std::string name = GetParam(), of_run = "/" + name;
  const auto part = [&](const std::string &directory) {
    std::vector<std::string> all = {"--run",   name,           "--ranks", "2",      "--save",
                                    directory, "--save-every", "1",       "--keep", "2"};
    if (fs::exists(directory + of_run + "/latest")) all.insert(all.end(), {"--resume", directory});
    return replaced(small(all), "--steps", "60");
  };
  std::mt19937_64 random(octavo::test::seed_or(5));
  // Killed between the last save and its end, a program leaves nothing to train.
  const auto is_over = [&] {
    return fs::exists(saved() + of_run + "/latest") &&
           fs::path(newest(saved() + of_run)).filename().string().starts_with("step-00000060");
  };
  int killed = 0, exit_code = -SIGKILL;
  for (int i = 0; i < 200 && exit_code != 0 && !is_over(); ++i) {
    ChildProgram child(part(saved()));
    usleep(40'000 + random() % 60'000);
    child.send(SIGKILL);
    const Finished finished = child.wait();
    exit_code = finished.exit_code;
    ASSERT_TRUE(exit_code == 0 || exit_code == -SIGKILL) << exit_code << finished.errors;
    killed += exit_code != 0;
    if (i > 40 && !is_over()) {  // a slow machine: the rest without kills
      exit_code = run(part(saved())).exit_code;
      ASSERT_EQ(exit_code, 0);
    }
  }
  EXPECT_GE(killed, 3);
  const std::string whole = test_directory() + "/whole";
  ASSERT_EQ(run(part(whole)).exit_code, 0);
  EXPECT_EQ(fs::path(newest(saved() + of_run)).filename().string().substr(0, 13), "step-00000060");
  EXPECT_TRUE(tensors_of(newest(saved() + of_run)) == tensors_of(newest(whole + of_run)));
}

INSTANTIATE_TEST_SUITE_P(All, StateKill, testing::Values("te", "msamp"));

}  // namespace
}  // namespace gpt_test

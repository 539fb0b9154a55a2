// Checkpoints that the program refuses before any training, and one that an interrupt leaves.
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/samples/program_run.h"

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
  expect_refused(run(resumed("fp32")), {"--resume", "fp32/latest", "no such file"});
  save("fp32");
  expect_refused(run(resumed("bf16")), {"bf16/latest", "no such file"});
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
  late({"rank-0000-of-0001.safetensors", "found none"});
}

TEST(StateErrors, a_save_that_cannot_be_written) {
  write_text(saved(), "a file");
  expect_refused(run(small({"--run", "fp32", "--save", saved()})),
                 {"--save", "a directory that can be created"});
}

TEST(StateInterrupt, leaves_a_checkpoint_that_can_be_resumed) {
  const std::string metrics = test_directory() + "/out/metrics.jsonl";
  const auto long_run = [&](const std::string &option, const std::string &value) {
    return replaced(small({"--run", "te", option, value, "--ranks", "2"}), "--steps", "100000");
  };
  ChildProgram child(long_run("--save", saved()));
  wait_for_lines(metrics, 5);
  child.send(SIGINT);
  const Finished finished = child.wait();
  ASSERT_EQ(finished.exit_code, 130) << finished.errors;
  const int64_t taken = count_lines(metrics);
  ASSERT_GE(taken, 5) << "the training did not start";

  std::vector<std::string> arguments = long_run("--resume", saved());
  arguments.insert(arguments.end(), {"--stop-after", std::to_string(taken + 2)});
  const Finished rest = run(arguments);
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_EQ(count_lines(metrics), 2);
  EXPECT_THAT(read_text(metrics), HasSubstr("\"step\":" + std::to_string(taken + 2)));
}

}  // namespace
}  // namespace gpt_test

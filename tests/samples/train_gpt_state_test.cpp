// --save and --resume: a run in two parts computes what it computes in one, bit for bit.
#include "samples/train_gpt/run/state.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "host_adapters/standalone/error.h"
#include "tests/samples/replica_group.h"
#include "tests/support/param_name.h"
#include "tests/support/seed.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 12, kFirst = 5;
constexpr size_t kFilesOfRun = 3;  // lock, manifest.json, train_gpt.cbor

Options few_steps(uint32_t ranks) {
  Options options = tiny();
  options.steps = kSteps;
  options.sample_bytes = 4;
  options.ranks = ranks;
  options.threads = 1;
  return options;
}

std::string directory(const std::string &name) {
  return gpt_test::test_directory() + "/" + name;
}

// Every file of the one checkpoint that a run has, by name.
std::map<std::string, std::string> checkpoint(const std::string &saved, const std::string &run) {
  std::map<std::string, std::string> files;
  for (const auto &step : fs::directory_iterator(run_directory(saved, run))) {
    if (!step.is_directory()) continue;
    for (const auto &file : fs::directory_iterator(step.path())) {
      files[step.path().filename().string() + "/" + file.path().filename().string()] =
          gpt_test::read_text(file.path().string());
    }
  }
  return files;
}

std::vector<std::string> names(const std::map<std::string, std::string> &files) {
  std::vector<std::string> all;
  for (const auto &[name, content] : files) all.push_back(name);
  return all;
}

// The last `count` numbers.
std::vector<double> tail(const std::vector<double> &all, size_t count) {
  return {all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end()};
}

struct Case {
  const char *run;
  uint32_t ranks;
};

class EveryResumedRun : public testing::TestWithParam<Case> {};

TEST_P(EveryResumedRun, computes_what_it_computes_in_one_go) {
  const auto [run, ranks] = GetParam();
  Options options = few_steps(ranks);
  if (run == std::string("config")) options.config = mixed_recipes();
  options.save = directory("whole");
  const RunResult whole = train_once(options, run, 1);

  options.save = directory("parts");
  options.stop_after = kFirst;
  const RunResult first = train_once(options, run, 1);
  EXPECT_EQ(first.steps.size(), static_cast<size_t>(kFirst));
  EXPECT_FALSE(first.validation_loss.has_value());
  // Saving in the place that was resumed from replaces the checkpoint.
  options.resume = options.save;
  options.stop_after = 0;
  const RunResult second = train_once(options, run, 1);
  ASSERT_EQ(second.steps.size(), static_cast<size_t>(kSteps - kFirst));
  EXPECT_EQ(second.steps.front().step, kFirst + 1);

  const std::vector<double> numbers_of_second = numbers(second);
  EXPECT_EQ(numbers_of_second, tail(numbers(whole), numbers_of_second.size()));
  EXPECT_EQ(second.validation_loss, whole.validation_loss);
  EXPECT_EQ(second.sample, whole.sample);

  // Weights, moments and slots of every rank, to the last bit.
  const auto expected = checkpoint(directory("whole"), run);
  const auto found = checkpoint(directory("parts"), run);
  EXPECT_EQ(names(found), names(expected));
  for (const auto &[name, content] : expected) EXPECT_TRUE(found.at(name) == content) << name;
  const bool sharded = std::string(run).rfind("msamp", 0) == 0;
  const bool has_slots =
      run == std::string("config") || sharded || std::string(run).rfind("te", 0) == 0;
  EXPECT_EQ(expected.size(), has_slots ? (sharded ? ranks : 1) + kFilesOfRun : 1);
}

INSTANTIATE_TEST_SUITE_P(
    TrainGpt, EveryResumedRun,
    testing::Values(Case{"fp32", 1}, Case{"fp32", 2}, Case{"bf16", 1}, Case{"te:recipe=delayed", 1},
                    Case{"te:recipe=delayed", 2}, Case{"te:recipe=current", 1}, Case{"config", 1},
                    Case{"config", 2}, Case{"msamp:opt_level=O1", 1}, Case{"msamp:opt_level=O2", 1},
                    Case{"msamp:opt_level=O2", 2}, Case{"msamp:opt_level=O3", 1},
                    Case{"msamp:opt_level=O3", 2}),
    [](const auto &case_) {
      return octavo::test::name_of_text(case_.param.run) + "_ranks_" +
             std::to_string(case_.param.ranks);
    });

// One step of a rank that takes the whole batch, so that nothing is averaged and the number of
// ranks decides about nothing but who keeps which states.
void whole_step(Group &group, Replica &replica, const Options &options, int64_t step) {
  const Batch batch = training_batch(group.corpus, options.batch, 16, 1, step);
  replica.model().weights_changed();
  replica.model().forward(batch.tokens.data(), batch.targets.data(), options.batch, 16, true);
  replica.model().backward();
  const double norm = replica.optimizer().gradient_norm();
  replica.optimizer().step(1e-3, norm, false);
  replica.octavo().end_step();
}

// Trains from `begin` to `end` on this many ranks, between two checkpoints; an empty name: none.
std::vector<unsigned char> part(uint32_t ranks, int64_t begin, int64_t end,
                                const std::string &resume, const std::string &save) {
  const Options options = few_steps(1);
  Options larger = options;
  larger.batch = options.batch * ranks;  // the share of a rank is the batch of one
  Group group("msamp:opt_level=O3", larger, ranks);
  group.ranks.run([&](uint32_t rank) {
    Replica &replica = *group.replicas[rank];
    replica.start();
    if (!resume.empty()) {
      EXPECT_EQ(load_state(replica, resume, {}), begin);
    }
    for (int64_t step = begin; step < end; ++step) whole_step(group, replica, options, step);
    if (!save.empty()) save_state(replica, save, {}, end);
  });
  for (const auto &replica : group.replicas) {
    EXPECT_TRUE(weight_bytes(*replica) == weight_bytes(*group.replicas[0])) << "ranks differ";
  }
  return weight_bytes(*group.replicas[0]);
}

TEST(Resume, on_another_number_of_ranks_gives_the_weights_of_one_go) {
  const std::string at = directory("two");
  const std::vector<unsigned char> expected = part(1, 0, 8, "", "");
  part(2, 0, 4, "", at);
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    EXPECT_TRUE(part(ranks, 4, 8, at, "") == expected) << "2 ranks, then " << ranks;
  }
  EXPECT_FALSE(part(1, 0, 4, "", "") == expected) << "nothing was trained";
}

// Through files of four ranks and of one, without a step between: nothing is lost on the way.
TEST(Resume, resharding_there_and_back_changes_no_bit) {
  const char *run = "msamp:opt_level=O3";
  Options options = few_steps(2);
  options.save = directory("a");
  options.stop_after = kFirst;
  train_once(options, run, 1);
  const auto original = checkpoint(options.save, run);
  const nlohmann::json key = run_key(parse_run(run), options, tiny_corpus(options));
  std::string from = options.save;
  for (const auto &[ranks, to] : {std::pair(4u, "b"), std::pair(1u, "c"), std::pair(2u, "d")}) {
    Group group(run, few_steps(ranks), ranks);
    group.ranks.run([&, from, to = to](uint32_t rank) {
      group.replicas[rank]->start();
      const int64_t steps = load_state(*group.replicas[rank], run_directory(from, run), key);
      save_state(*group.replicas[rank], run_directory(directory(to), run), key, steps);
    });
    from = directory(to);
    EXPECT_EQ(checkpoint(from, run).size(), ranks + kFilesOfRun);
  }
  const auto back = checkpoint(from, run);
  EXPECT_EQ(names(back), names(original));
  for (const auto &[name, content] : original) EXPECT_TRUE(back.at(name) == content) << name;
}

TEST(Resume, training_goes_on_with_one_rank_and_with_four) {
  const char *run = "msamp:opt_level=O3";
  Options options = few_steps(2);
  options.save = directory("a");
  const RunResult whole = train_once(options, run, 1);
  options.stop_after = kFirst;
  train_once(options, run, 1);
  options.resume = options.save;
  options.save.clear();
  options.stop_after = 0;
  for (const uint32_t ranks : {1u, 4u}) {
    options.ranks = ranks;
    const RunResult rest = train_once(options, run, 1);
    ASSERT_EQ(rest.steps.size(), static_cast<size_t>(kSteps - kFirst));
    // The sums of another number of ranks differ by what train_gpt_ranks_test.cpp allows.
    for (size_t i = 0; i < rest.steps.size(); ++i) {
      EXPECT_NEAR(rest.steps[i].loss / whole.steps[kFirst + i].loss, 1.0, 1e-2) << ranks;
    }
  }
}

TEST(Resume, older_checkpoints_go_and_the_same_step_is_saved_again) {
  Options options = few_steps(1);
  options.save = directory("a");
  options.stop_after = 3;
  train_once(options, "fp32", 1);
  const auto first = checkpoint(options.save, "fp32");
  EXPECT_THAT(names(first), testing::ElementsAre("step-00000003/train_gpt.cbor"));
  train_once(options, "fp32", 1);
  const auto again = checkpoint(options.save, "fp32");
  EXPECT_THAT(names(again), testing::ElementsAre("step-00000003.1/train_gpt.cbor"));
  EXPECT_TRUE(first.begin()->second == again.begin()->second);
  EXPECT_EQ(gpt_test::read_text(run_directory(options.save, "fp32") + "/latest"),
            "step-00000003.1\n");
}

TEST(Resume, save_every_and_keep_leave_the_last_checkpoints) {
  const char *run = "te:recipe=delayed";
  Options options = few_steps(2);
  const RunResult plain = train_once(options, run, 1);
  options.save = directory("a");
  options.save_every = 4;
  options.keep = 3;
  options.stop_after = kSteps - 1;
  const RunResult saved = train_once(options, run, 1);
  const std::vector<double> all = numbers(plain);
  EXPECT_EQ(
      numbers(saved),
      std::vector<double>(all.begin(), all.begin() + static_cast<long>(numbers(saved).size())));
  const std::string at = run_directory(options.save, run);
  EXPECT_EQ(gpt_test::read_text(at + "/latest"), "step-00000011\nstep-00000008\nstep-00000004\n");
  // Each of them goes on as the whole run does.
  options.resume = options.save;
  options.save.clear();
  options.save_every = options.stop_after = 0;
  options.keep = 1;
  for (const int64_t step : {11, 8, 4}) {
    const RunResult rest = train_once(options, run, 1);
    ASSERT_EQ(rest.steps.size(), static_cast<size_t>(kSteps - step));
    EXPECT_EQ(numbers(rest), tail(all, numbers(rest).size())) << step;
    std::string names = gpt_test::read_text(at + "/latest");
    gpt_test::write_text(at + "/latest", names.substr(names.find('\n') + 1));
  }
  // The next save knows the last ones only; what a program that died has left goes.
  options.save = options.resume;
  options.resume.clear();
  options.stop_after = 2;
  gpt_test::write_text(at + "/latest.tmp.1", "step-");
  fs::create_directories(at + "/step-00000099");
  train_once(options, run, 1);
  std::vector<std::string> left;
  for (const auto &entry : fs::directory_iterator(at))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, testing::UnorderedElementsAre("latest", "step-00000002"));
}

// One bit of one file is another one: refused, or what is loaded is what was saved.
void flip(int count, const char *run, uint64_t seed) {
  Options options = few_steps(1);
  options.save = directory("a");
  options.save_every = 2;
  options.keep = 2;
  options.stop_after = kFirst;
  train_once(options, run, 1);
  const std::string at = run_directory(options.save, run);
  const nlohmann::json key = run_key(parse_run(run), options, tiny_corpus(options));
  Group group(run, options, 1);
  Replica &replica = *group.replicas[0];
  replica.start();
  ASSERT_EQ(load_state(replica, at, key), kFirst);
  const std::vector<unsigned char> expected = weight_bytes(replica);
  std::vector<std::string> paths = {at + "/latest"};
  for (const char *name : {"train_gpt.cbor", "rank-0000-of-0001.safetensors", "manifest.json"})
    if (fs::exists(at + "/step-00000005/" + name)) paths.push_back(at + "/step-00000005/" + name);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string &path = paths[random() % paths.size()];
    const std::string content = gpt_test::read_text(path);
    std::string other = content;
    // Of `latest` the first line is read.
    const size_t bytes = path == paths[0] ? content.find('\n') + 1 : content.size();
    const size_t bit = random() % (8 * bytes);
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    gpt_test::write_text(path, other);
    try {
      const int64_t steps = load_state(replica, at, key);
      EXPECT_TRUE(steps == kFirst && weight_bytes(replica) == expected) << path << ", bit " << bit;
    } catch (const UserError &e) {
      ++refused;
      EXPECT_THAT(e.what(), testing::HasSubstr("--resume: "));
    }
    gpt_test::write_text(path, content);
  }
  EXPECT_EQ(refused, count);
  ASSERT_EQ(load_state(replica, at, key), kFirst) << "the files are whole again";
}

TEST(Resume, flipped_bits_of_a_sample) {
  flip(40, "te:recipe=delayed", 1);
  flip(40, "msamp:opt_level=O2", 1);
}

// As many as the review of c7d3be9 flipped, of which 544 were trained on.
TEST(ResumeRest, flipped_bits_588_times) {
  flip(588, "te:recipe=delayed", octavo::test::seed_or(2));
}
TEST(ResumeRest, flipped_bits_588_times_in_slots_with_weights) {
  flip(588, "msamp:opt_level=O2", octavo::test::seed_or(4));
}
TEST(ResumeRest, flipped_bits_588_times_in_what_the_program_keeps) {
  flip(588, "fp32", octavo::test::seed_or(3));
}

}  // namespace
}  // namespace gpt

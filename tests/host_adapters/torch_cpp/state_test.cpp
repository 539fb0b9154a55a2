// Checkpoints and the Accelerator.
#include <gtest/gtest.h>
#include <octavo/octavo.h>
#include <octavo/torch/accelerator.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "transformer.h"

namespace {
bool in_other_words = false;
}  // namespace

octavo_status octavo_report(const octavo_run *r, octavo_str format, octavo_line line, void *ctx) {
  static const auto plain =
      reinterpret_cast<decltype(&octavo_report)>(dlsym(RTLD_NEXT, "octavo_report"));
  if (!in_other_words) return plain(r, format, line, ctx);
  line(ctx, OCTAVO_STR("other words"));
  return OCTAVO_OK;
}

namespace {

using octavo::torch::Accelerator;
using octavo::torch::Config;
using octavo::torch::Error;
using octavo::torch::Prepared;
using testing_torch::all_parameters;
using testing_torch::batch_of;
using testing_torch::config_of;
using testing_torch::loss_of;
using testing_torch::Transformer;
namespace fs = std::filesystem;
namespace nn = torch::nn;

std::string directory_of(const std::string &name) {
  const fs::path path = fs::temp_directory_path() / ("octavo_torch_" + std::to_string(getpid()));
  fs::create_directories(path);
  return path / name;
}

struct Training {
  explicit Training(const Config &config, uint64_t seed = 1)
      : model((torch::manual_seed(seed), 0.1)),
        plain(model->parameters(), torch::optim::AdamWOptions(3e-3)),
        optimizer(octavo::torch::prepare(*model, plain, config)) {}

  double step(int64_t index) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, batch_of(4, index));
    loss.backward();
    optimizer.step();
    return loss.item<double>();
  }
  at::Tensor parameters() {
    at::Tensor flat;
    optimizer.with_plain_weights([&] { flat = all_parameters(*model); });
    return flat;
  }

  Transformer model;
  torch::optim::AdamW plain;
  Prepared optimizer;
};

class States : public ::testing::TestWithParam<std::pair<const char *, const char *>> {
 protected:
  static Config config() { return config_of(GetParam().first, GetParam().second); }
};

TEST_P(States, ANewTrainingGoesOnBitForBit) {
  const std::string directory = directory_of("resume");
  Training first(config());
  for (int i = 0; i < 4; ++i) first.step(i);
  first.optimizer.save_state(directory);
  Training second(config(), 99);
  second.step(7);  // its own moments and scales must not shine through
  second.optimizer.load_state(directory);
  EXPECT_TRUE(torch::equal(first.parameters(), second.parameters()));
  // Dropout draws from the saved generator: the two go on one after the other from the same state.
  std::vector<double> losses;
  for (int i = 4; i < 7; ++i) losses.push_back(second.step(i));
  const at::Tensor parameters = second.parameters();
  Training third(config(), 98);
  third.optimizer.load_state(directory);
  for (int i = 4; i < 7; ++i)
    EXPECT_EQ(third.step(i), losses[static_cast<size_t>(i - 4)]) << "step " << i;
  EXPECT_TRUE(torch::equal(third.parameters(), parameters));
  first.optimizer.load_state(directory);
  for (int i = 4; i < 7; ++i)
    EXPECT_EQ(first.step(i), losses[static_cast<size_t>(i - 4)]) << "step " << i;
  EXPECT_TRUE(torch::equal(first.parameters(), parameters));
}

TEST_P(States, PlainWeightsLoadIntoAPlainModel) {
  const std::string file = directory_of("plain.pt");
  Training training(config());
  training.step(0);
  training.optimizer.with_plain_weights([&] { torch::save(training.model, file); });
  Transformer plain;
  torch::load(plain, file);
  EXPECT_TRUE(torch::equal(all_parameters(*plain), training.parameters()));
}

TEST_P(States, ABadCheckpointChangesNothing) {
  const std::string directory = directory_of("bad");
  fs::remove_all(directory);  // a second save there takes the rank's other name
  Training training(config());
  training.step(0);
  training.optimizer.save_state(directory);
  training.step(1);
  const at::Tensor parameters = training.parameters();
  const auto refuses = [&](octavo_status status, const std::string &found) {
    try {
      training.optimizer.load_state(directory);
      ADD_FAILURE() << "expected a refusal";
    } catch (const Error &e) {
      EXPECT_EQ(e.status(), status) << e.what();
      EXPECT_NE(std::string(e.what()).find(found), std::string::npos) << e.what();
    }
    EXPECT_TRUE(torch::equal(training.parameters(), parameters));
  };
  const std::string file = directory + "/rank-0000-of-0001.safetensors";
  fs::rename(file, directory + "/kept");
  refuses(OCTAVO_NO_RESOURCE, "found no rank-0000-of-0001.safetensors");
  fs::rename(directory + "/kept", file);
  const auto flip = [&](const std::string &tensor) {
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    const std::string all{std::istreambuf_iterator<char>(bytes), {}};
    const size_t entry = all.find("\"" + tensor + "\":{");
    const size_t offsets = all.find("\"data_offsets\":[", entry) + 16;
    uint64_t header = 0;
    std::memcpy(&header, all.data(), sizeof(header));
    const size_t at = 8 + header + std::stoull(all.substr(offsets));
    bytes.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(all[at] ^ 1));
  };
  std::map<uint32_t, std::string> tensors = {{0, "host"}};  // by role
  for (const octavo::torch::Slot &slot : training.optimizer.session().slots())
    if ((slot.flags & OCTAVO_SLOT_CHECKPOINT) != 0 && slot.tensor.defined())
      tensors.emplace(slot.role, slot.key);
  for (const auto &[role, tensor] : tensors) {
    flip(tensor);
    refuses(OCTAVO_INVALID, "tensor \"" + tensor + "\": expected bytes with the XXH3 hash");
    flip(tensor);
  }
  training.model->register_buffer("unknown", torch::zeros({3}));
  refuses(OCTAVO_INVALID, "unknown");
  training.step(2);  // still usable
}

INSTANTIATE_TEST_SUITE_P(Backends, States,
                         ::testing::Values(std::pair("te", "delayed"), std::pair("te", "block"),
                                           std::pair("msamp", "O2"), std::pair("msamp", "O3")),
                         [](const auto &given) {
                           return std::string(given.param.first) + "_" + given.param.second;
                         });

// Block scaling has no state, so that only the rule itself tells the trainings apart.
TEST(MixedRecipes, LayersNameTheirsAndOtherRulesAreRefused) {
  const auto config = [](const char *recipe) {
    return config_of("te", "current")
        .set("layers.rule.0.match", "*.fc?")
        .set("layers.rule.0.fp8.te.recipe", recipe);
  };
  const std::string directory = directory_of("mixed");
  Training training(config("block"));
  training.step(0);
  for (const octavo::torch::Layer &layer : training.optimizer.layers())
    EXPECT_EQ(layer.recipe, layer.name.find(".fc") != std::string::npos ? "block" : "current")
        << layer.name;
  training.optimizer.save_state(directory);
  Training again(config("block"), 7);
  again.optimizer.load_state(directory);
  const double loss = again.step(1);
  training.optimizer.load_state(directory);  // dropout draws from the saved generator
  EXPECT_EQ(training.step(1), loss);
  Training other(config("mx"), 7);
  try {
    other.optimizer.load_state(directory);
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error &e) {
    EXPECT_NE(std::string(e.what()).find(".fc1.recipe\" as in this session, \"mx\""),
              std::string::npos)
        << e.what();
  }
}

TEST(SlotKeys, AreThoseOfEveryHost) {
  const auto keys = [](const Config &config) {
    std::set<std::string> found;
    for (const octavo::torch::Slot &slot : Training(config).optimizer.session().slots())
      found.insert(slot.key);
    return found;
  };
  const std::set<std::string> te = keys(config_of("te", "delayed"));
  for (const char *key : {"session/x/scale", "session/dy/amax_history"})
    EXPECT_EQ(te.count(key), 1U) << key;
  const std::set<std::string> msamp = keys(config_of("msamp", "O2"));
  EXPECT_EQ(msamp.count("parameter/blocks.0.fc1.weight/exp_avg"), 1U);
}

// A program's own functions come before those of the library that octavo::torch calls.
TEST(MixedRecipes, ReportsInOtherWordsChangeNothing) {
  const Config config = config_of("te", "current")
                            .set("layers.rule.0.match", "*.fc?")
                            .set("layers.rule.0.fp8.te.recipe", "block");
  const std::string directory = directory_of("words");
  Training training(config);
  training.step(0);
  training.optimizer.save_state(directory);
  const double loss = training.step(1);
  in_other_words = true;
  Training again(config, 7);
  for (const octavo::torch::Layer &layer : again.optimizer.layers())
    EXPECT_EQ(layer.recipe, layer.name.find(".fc") != std::string::npos ? "block" : "current");
  EXPECT_EQ(again.optimizer.report(), "other words\n");
  again.optimizer.load_state(directory);
  EXPECT_EQ(again.step(1), loss);
  in_other_words = false;
}

// What Resume.AnotherProcessGoesOn starts; without its directory there is nothing to do.
TEST(Resume, ChildProcess) {
  const char *directory = std::getenv("OCTAVO_TORCH_TEST_RESUME");
  if (directory == nullptr) GTEST_SKIP() << "runs as the child of Resume.AnotherProcessGoesOn";
  Training training(config_of("msamp", "O2"), 97);
  training.optimizer.load_state(directory);
  training.step(2);
  torch::save(training.parameters(), std::string(directory) + "/child.pt");
}

TEST(Resume, AnotherProcessGoesOn) {
  const std::string directory = directory_of("process");
  Training training(config_of("msamp", "O2"));
  training.step(0);
  training.step(1);
  training.optimizer.save_state(directory);
  training.step(2);
  const std::string command = "OCTAVO_TORCH_TEST_RESUME=" + directory + " " +
                              fs::read_symlink("/proc/self/exe").string() +
                              " --gtest_filter=Resume.ChildProcess > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  at::Tensor child;
  torch::load(child, directory + "/child.pt");
  EXPECT_TRUE(torch::equal(training.parameters(), child));
}

// The part of LibTorch in tests/host_adapters/python/jax_checkpoints_test.py: "CONFIG FROM TO",
// with the model of samples/c_host.
TEST(Ring, ChildProcess) {
  const char *given = std::getenv("OCTAVO_TORCH_TEST_RING");
  if (given == nullptr) GTEST_SKIP() << "runs as a child of jax_checkpoints_test.py";
  std::istringstream words(given);
  std::string config, from, to;
  words >> config >> from >> to;
  nn::Sequential model;
  model->push_back("fc1", nn::Linear(nn::LinearOptions(32, 64).bias(false)));
  model->push_back("fc2", nn::Linear(nn::LinearOptions(64, 16).bias(false)));
  torch::optim::AdamW adamw(model->parameters());
  Prepared prepared = octavo::torch::prepare(*model, adamw, config);
  prepared.load_state(from);
  prepared.save_state(to);
}

TEST(Accelerators, AccumulateEqualsTheSumOfMicroBatches) {
  const auto train = [](bool accumulate) {
    torch::manual_seed(2);
    nn::Linear model(32, 48);
    torch::optim::AdamW plain(model->parameters(), torch::optim::AdamWOptions(1e-2));
    Accelerator accelerator(config_of("te", "current"), accumulate ? 2 : 1);
    Prepared &optimizer = accelerator.prepare(*model, plain);
    for (int batch = 0; batch < 4; ++batch) {
      const at::Tensor x = torch::randn({4, 32});
      if (accumulate) {
        auto scope = accelerator.accumulate();
        EXPECT_EQ(accelerator.sync_gradients(), batch % 2 == 1);
        accelerator.backward(model(x).pow(2).mean());
        optimizer.step();
        optimizer.zero_grad();
      } else {
        (model(x).pow(2).mean() / 2).backward();
        if (batch % 2 == 0) continue;
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    return all_parameters(*model);
  };
  EXPECT_TRUE(torch::equal(train(true), train(false)));
}

// torch's own data loader: batches that two worker threads make are those of a plain loop.
TEST(Accelerators, WorkersOfADataLoaderChangeNothing) {
  const auto train = [](size_t workers) {
    torch::manual_seed(4);
    nn::Linear model(32, 48);
    torch::optim::AdamW plain(model->parameters(), torch::optim::AdamWOptions(1e-2));
    Accelerator accelerator(config_of("te"));
    Prepared &optimizer = accelerator.prepare(*model, plain);
    torch::manual_seed(5);
    auto data = torch::data::datasets::TensorDataset(torch::randn({40, 32}))
                    .map(torch::data::transforms::Stack<torch::data::TensorExample>());
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        std::move(data), torch::data::DataLoaderOptions(8).workers(workers).enforce_ordering(true));
    int64_t batches = 0;
    for (const auto &batch : *loader) {
      optimizer.zero_grad();
      accelerator.backward(model(batch.data).pow(2).mean());
      optimizer.step();
      ++batches;
    }
    EXPECT_EQ(batches, 5);
    return all_parameters(*model);
  };
  EXPECT_TRUE(torch::equal(train(0), train(2)));
}

TEST(Accelerators, VerbsOfOneProcess) {
  torch::manual_seed(3);
  nn::Linear model(32, 48);
  torch::optim::AdamW plain(model->parameters());
  Accelerator accelerator(config_of("te"));
  EXPECT_THROW(accelerator.backward(torch::zeros({})), Error);
  Prepared &optimizer = accelerator.prepare(*model, plain);
  EXPECT_THROW(accelerator.prepare(*model, plain), Error);
  EXPECT_THROW(accelerator.set_averaging({}), Error);
  EXPECT_THROW(Accelerator().set_averaging({.bucket_bytes = 0}), Error);
  EXPECT_TRUE(accelerator.is_main_process());
  EXPECT_EQ(accelerator.num_processes(), 1);
  {
    auto autocast = accelerator.autocast();
    EXPECT_EQ(model(torch::randn({2, 32})).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(model(torch::randn({2, 32})).scalar_type(), torch::kFloat);
  accelerator.backward(model(torch::randn({2, 32})).sum());
  EXPECT_GT(accelerator.clip_grad_norm_(0.1), 0.1);
  optimizer.step();
  EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
  EXPECT_TRUE(torch::equal(accelerator.gather(torch::ones({})), torch::ones({1})));
  EXPECT_TRUE(torch::equal(accelerator.reduce(torch::ones({2}), "mean"), torch::ones({2})));
  EXPECT_THROW(accelerator.reduce(torch::ones({2}), "max"), Error);
  ::testing::internal::CaptureStdout();
  accelerator.print("hello");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello\n");
  accelerator.wait_for_everyone();
  accelerator.free_memory();
  const at::Tensor x = torch::randn({2, 32});
  EXPECT_TRUE(torch::equal(model(x), at::linear(x, model->weight, model->bias)));
}

}  // namespace

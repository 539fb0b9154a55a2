// An Accelerator in several processes: one model, and averages that overlap with backward passes.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <octavo/torch/accelerator.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "transformer.h"
#include "two_processes.h"

namespace {

using octavo::torch::Accelerator;
using octavo::torch::Error;
using octavo::torch::Prepared;
using testing_torch::all_parameters;
using testing_torch::batch_of;
using testing_torch::config_of;
using testing_torch::in_two_processes;
using testing_torch::loss_of;
using testing_torch::Transformer;
namespace fs = std::filesystem;

// What a backward pass did, in order, by torch's own records: gradients that autograd has
// accumulated and collectives that gloo has begun.
class Order {
 public:
  Order() {
    events().clear();
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction &fn) {
          static std::mutex mutex;
          const std::lock_guard<std::mutex> lock(mutex);
          events().emplace_back(fn.name());
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  ~Order() { at::removeCallback(handle_); }

  int64_t first_collective() const {
    for (size_t i = 0; i < events().size(); ++i)
      if (events()[i].find("gloo:") == 0) return static_cast<int64_t>(i);
    ADD_FAILURE() << "no collective of gloo";
    return -1;
  }
  int64_t last_gradient() const {
    for (size_t i = events().size(); i-- > 0;)
      if (events()[i].find("AccumulateGrad") != std::string::npos) return static_cast<int64_t>(i);
    ADD_FAILURE() << "no gradient";
    return -1;
  }

 private:
  static std::vector<std::string> &events() {
    static std::vector<std::string> all;
    return all;
  }
  at::CallbackHandle handle_;
};

// What Ranks.* start, one process each.
TEST(Ranks, ChildProcess) {
  const char *directory = std::getenv("OCTAVO_TORCH_TEST_RANKS");
  if (directory == nullptr) GTEST_SKIP() << "runs as the child of Ranks.TwoProcessesTrainOneModel";
  octavo::torch::Config config = config_of(std::getenv("OCTAVO_TORCH_TEST_BACKEND"));
  // Also small buckets in two exchanges, as large ones are.
  if (config.overrides[0].second == octavo::torch::Value("msamp"))
    config.set("fp8.msamp.one_shot_bytes", 0);
  Accelerator accelerator(config);
  ASSERT_EQ(accelerator.num_processes(), 2);
  const bool overlaps = std::getenv("OCTAVO_TORCH_TEST_OVERLAP") == std::string("1");
  accelerator.set_averaging({.bucket_bytes = 1, .overlap = overlaps});
  torch::manual_seed(static_cast<uint64_t>(10 + accelerator.process_index()));
  Transformer model;
  torch::optim::AdamW plain(model->parameters(), torch::optim::AdamWOptions(3e-3));
  Prepared &optimizer = accelerator.prepare(*model, plain);
  double first = 0.0;
  double last = 0.0;
  for (int step = 0; step < 12; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, batch_of(4, 2 * step + accelerator.process_index()));
    Order order;
    accelerator.backward(loss);
    // The first pass counts; from the second on collectives begin before the last gradient exists.
    EXPECT_EQ(order.first_collective() < order.last_gradient(), overlaps && step > 0) << step;
    optimizer.step();
    last = accelerator.reduce(loss, "mean").item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.9 * first);
  at::Tensor flat;
  optimizer.with_plain_weights([&] { flat = all_parameters(*model); });
  const at::Tensor all = accelerator.gather(flat.unsqueeze(0));
  EXPECT_TRUE(torch::equal(all[0], all[1]));
  if (accelerator.is_main_process()) torch::save(flat, std::string(directory) + ".pt");
  // A pass that fails on every rank leaves nothing behind: one on rank 0 alone exchanges nothing.
  optimizer.zero_grad();
  at::Tensor failing = loss_of(model, batch_of(4, 0)) * 1.0;
  failing.register_hook([](at::Tensor) { throw std::runtime_error("a hook that fails"); });
  EXPECT_ANY_THROW(accelerator.backward(failing * 1.0));
  if (accelerator.is_main_process()) loss_of(model, batch_of(4, 0)).backward();
  // One process with an infinite gradient makes both skip.
  optimizer.zero_grad();
  const double factor =
      accelerator.is_main_process() ? std::numeric_limits<double>::infinity() : 1.0;
  accelerator.backward(loss_of(model, batch_of(4, 0)) * factor);
  optimizer.step();
  EXPECT_TRUE(accelerator.optimizer_step_was_skipped());
  accelerator.save_state(directory);
  accelerator.load_state(directory);
}

TEST(Ranks, TwoProcessesTrainOneModel) {
  const fs::path folder =
      fs::temp_directory_path() / ("octavo_torch_ranks_" + std::to_string(getpid()));
  fs::create_directories(folder);
  for (const std::string backend : {"te", "msamp"}) {
    std::vector<at::Tensor> results;
    for (const std::string overlap : {"1", "0"}) {
      const std::string directory = folder.string() + "/" + backend + overlap;
      ASSERT_EQ(in_two_processes("Ranks.ChildProcess", "OCTAVO_TORCH_TEST_BACKEND=" + backend +
                                                           " OCTAVO_TORCH_TEST_OVERLAP=" + overlap +
                                                           " OCTAVO_TORCH_TEST_RANKS=" + directory),
                "")
          << backend << " " << overlap;
      torch::load(results.emplace_back(), directory + ".pt");
    }
    EXPECT_TRUE(torch::equal(results[0], results[1])) << backend;
  }
  fs::remove_all(folder);
}

// Rank 1 differs in one thing; both processes say in what.
TEST(Ranks, ChildThatDiffers) {
  const char *given = std::getenv("OCTAVO_TORCH_TEST_DIFFERS");
  if (given == nullptr) GTEST_SKIP() << "runs as the child of Ranks.ThatDifferAreRefused";
  const std::string what = given;
  octavo::torch::Config config = config_of("te");
  torch::nn::Sequential model(torch::nn::Linear(32, 48));
  const bool differs = std::getenv("RANK") == std::string("1");
  if (differs && what == "layers") model->push_back(torch::nn::Linear(48, 16));
  if (differs && what == "options") config.set("fp8.te.recipe", "current");
  if (differs && what == "backend") config.set("fp8.backend", "msamp");
  if (differs && what == "failure") config.set("fp8.backend", "no_such_backend");
  torch::optim::AdamW plain = testing_torch::adamw(*model);
  Accelerator accelerator(config);
  const std::map<std::string, std::string> said = {{"layers", "the parameters and buffers"},
                                                   {"options", "the options of rank 0"},
                                                   {"backend", "the backend and the plugin file"},
                                                   {"failure", "the outcome of prepare()"}};
  const bool own = differs && what == "failure";
  EXPECT_EQ(testing_torch::status_of([&] { accelerator.prepare(*model, plain); },
                                     own ? "no_such_backend" : said.at(what)),
            own ? OCTAVO_UNSUPPORTED : OCTAVO_WRONG_STATE);
  const at::Tensor x = torch::randn({4, 32});
  EXPECT_FALSE(model->forward(x).isnan().any().item<bool>());  // plain again
}

TEST(Ranks, ThatDifferAreRefused) {
  for (const std::string what : {"layers", "options", "backend", "failure"})
    EXPECT_EQ(in_two_processes("Ranks.ChildThatDiffers", "OCTAVO_TORCH_TEST_DIFFERS=" + what), "")
        << what;
}

TEST(Ranks, AnIncompleteEnvironmentIsRefused) {
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_THROW(Accelerator accelerator, Error);
  setenv("WORLD_SIZE", "two", 1);
  EXPECT_THROW(Accelerator accelerator, Error);
  unsetenv("WORLD_SIZE");
}

TEST(Ranks, APortThatAnotherProgramHasIsRefused) {
  const octavo::test::HeldPort port;
  port.occupy();
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "0", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.text().c_str(), 1);
  EXPECT_EQ(testing_torch::status_of([] { Accelerator accelerator; },
                                     "MASTER_PORT to a port that no other program has"),
            OCTAVO_FAILED_DEVICE);
  for (const char *name : {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
}

}  // namespace

// An Accelerator in two processes on the fake device: its bits are those of two on the CPU, and
// no gradient passes through the host.
#include <dlfcn.h>
#include <octavo/torch/accelerator.h>

#include <filesystem>

#include "device_model.h"
#include "staged_group.h"
#include "two_processes.h"

namespace {

using octavo::torch::Accelerator;
using octavo::torch::Prepared;
using testing_torch::config_on;
using testing_torch::copies_to_cpu;
using testing_torch::fake_device;
using testing_torch::in_two_processes;
using testing_torch::staged_group;
using testing_torch::status_of;
namespace fs = std::filesystem;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class DeviceRanks : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("octavo_device_ranks_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

// What the tests below start, one process each.
TEST(DeviceRanksChild, Trains) {
  const std::string out = variable("OCTAVO_TORCH_TEST_OUT");
  if (out.empty()) GTEST_SKIP() << "runs as the child of DeviceRanks.*";
  const at::Device device =
      variable("OCTAVO_TORCH_TEST_DEVICE") == "cpu" ? at::Device(at::kCPU) : fake_device();
  const std::string backend = variable("OCTAVO_TORCH_TEST_BACKEND");
  octavo::torch::Config config = config_on(device, backend, backend == "te" ? "delayed" : "O2");
  // Also small buckets in two exchanges, as large ones are.
  if (backend == "msamp") config.set("fp8.msamp.one_shot_bytes", 0);
  Accelerator accelerator(config);
  const auto rank = static_cast<int>(accelerator.process_index());
  EXPECT_EQ(accelerator.local_process_index(), rank);
  if (!device.is_cpu()) accelerator.set_group(staged_group(out + ".meeting", rank, 2, "staged"));
  accelerator.set_averaging({.bucket_bytes = 1});
  testing_torch::Model model(device);
  if (rank == 1)  // it gets rank 0's
    for (at::Tensor &p : model.parameters()) p.detach().fill_(0.5);
  torch::optim::AdamW plain = testing_torch::adamw(model);
  Prepared &optimizer = accelerator.prepare(model, plain);
  std::vector<at::Tensor> all;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = testing_torch::inputs(2 * step + rank).to(device);
    const at::Tensor loss = (model.forward(x) - 0.5).square().mean();
    const int64_t copies = copies_to_cpu();
    accelerator.backward(loss);
    EXPECT_EQ(copies_to_cpu(), copies);
    optimizer.step();
    all.push_back(accelerator.reduce(loss, "mean").cpu());
  }
  at::Tensor flat;
  optimizer.with_plain_weights([&] { flat = testing_torch::all_parameters(model); });
  const at::Tensor both = accelerator.gather(flat.unsqueeze(0)).cpu();
  EXPECT_TRUE(torch::equal(both[0], both[1]));
  all.push_back(both[0]);
  if (accelerator.is_main_process()) torch::save(all, out);
  accelerator.wait_for_everyone();
}

TEST_F(DeviceRanks, TrainAsOnTheCpu) {
  for (const std::string backend : {"te", "msamp"}) {
    std::vector<std::vector<at::Tensor>> found;
    for (const std::string device : {"cpu", "fake_device"}) {
      const std::string out = (folder_ / (backend + device)).string();
      ASSERT_EQ(in_two_processes("DeviceRanksChild.Trains",
                                 "OCTAVO_TORCH_TEST_OUT=" + out + " OCTAVO_TORCH_TEST_DEVICE=" +
                                     device + " OCTAVO_TORCH_TEST_BACKEND=" + backend),
                "");
      torch::load(found.emplace_back(), out);
    }
    ASSERT_EQ(found[0].size(), 5u);
    for (size_t i = 0; i < found[0].size(); ++i)
      EXPECT_TRUE(torch::equal(found[0][i], found[1].at(i))) << backend << " " << i;
    EXPECT_FALSE(torch::equal(found[0][0], found[0][3])) << backend;
  }
}

TEST(DeviceRanksChild, IsRefused) {
  const std::string what = variable("OCTAVO_TORCH_TEST_REFUSED");
  if (what.empty()) GTEST_SKIP() << "runs as the child of DeviceRanks.*";
  dlopen("libcuda.so.1", RTLD_NOW);  // as torch's CUDA would have loaded it
  testing_torch::Model model(fake_device());
  torch::optim::AdamW plain = testing_torch::adamw(model);
  Accelerator accelerator(config_on(fake_device(), "te", "delayed"));
  const auto rank = static_cast<int>(accelerator.process_index());
  const auto prepare = [&] { accelerator.prepare(model, plain); };
  if (what == "none") {
    EXPECT_EQ(status_of(prepare,
                        "found none; give it one with set_group() before prepare(), such as "
                        "c10d::ProcessGroupNCCL"),
              OCTAVO_UNSUPPORTED);
  } else if (what == "null") {
    EXPECT_EQ(
        status_of([&] { accelerator.set_group({}); }, "as RANK and WORLD_SIZE say, found none"),
        OCTAVO_INVALID);
  } else {
    accelerator.set_group(staged_group(variable("OCTAVO_TORCH_TEST_MEETING"), rank, 2, "nccl"));
    if (what == "gpu") {
      EXPECT_EQ(status_of(prepare, "found ranks 0 and 1 on one; call module->to("),
                OCTAVO_FAILED_DEVICE);
    } else {
      prepare();  // nothing says that they share one
    }
  }
  EXPECT_FALSE(
      model.forward(testing_torch::inputs(0).to(fake_device())).isnan().any().item<bool>());
}

TEST_F(DeviceRanks, AreRefused) {
  const std::string gpu = " OCTAVO_FAKE_GPU='cuda=13000 driver=580.65.06 uuid=7'";
  for (const std::string what : {"none", "null", "gpu", "unknown"})
    EXPECT_EQ(in_two_processes("DeviceRanksChild.IsRefused",
                               "OCTAVO_TORCH_TEST_REFUSED=" + what + (what == "gpu" ? gpu : "") +
                                   " OCTAVO_TORCH_TEST_MEETING=" + (folder_ / what).string()),
              "")
        << what;
}

}  // namespace

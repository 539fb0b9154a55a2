// Each allocation of octavo::torch::prepare fails once, in a process of its own: an exception that
// says so, or the same weights after three steps as without the failure; then the next model of the
// process trains as ever. Not those of the steps: torch's autograd, libgomp and the C library's
// thread-local variables end the process where one of theirs fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "tests/support/failing_heap.h"
#include "tests/support/seed.h"
#include "transformer.h"

namespace {

using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::all_parameters;
using testing_torch::config_of;
namespace heap = octavo::test;
namespace nn = torch::nn;

// What a training said, without an allocation of its own.
struct Said {
  octavo_status status = OCTAVO_INTERNAL;
  double sum = 0.0;  // over the weights, in their order
  char text[300] = {};

  void keep(octavo_status s, const char *what) {
    status = s;
    std::strncpy(text, what, sizeof(text) - 1);
  }
};

struct Trial {
  Said said;
  int64_t asked = 0;
  Said again;
};

struct Scenario {
  const char *backend;
  const char *what;  // the recipe or level
};

void PrintTo(const Scenario &s, std::ostream *out) {
  *out << s.backend;
}

class TorchOutOfMemory : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    shared_ = static_cast<Trial *>(
        mmap(nullptr, sizeof(Trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared_, MAP_FAILED);
    // Operators are registered once for a process, and torch's dispatcher ends it where that fails.
    nn::Sequential model(nn::Linear(32, 16));
    torch::optim::AdamW plain = adamw(*model, 1e-2);
    const Prepared prepared =
        octavo::torch::prepare(*model, plain, config_of(GetParam().backend, GetParam().what));
  }
  void TearDown() override { munmap(shared_, sizeof(Trial)); }

  // The allocation `which` fails, 0: none. The model is torch's own, so it is made before.
  int64_t train(int64_t which, Said *said) {
    torch::manual_seed(21);
    nn::Sequential model(nn::Linear(32, 48), nn::Tanh(), nn::Linear(48, 16));
    torch::optim::AdamW plain = adamw(*model, 1e-2);
    const at::Tensor x = torch::randn({32, 32});
    const octavo::torch::Config config = config_of(GetParam().backend, GetParam().what);
    int64_t asked = 0;
    heap::arm_heap(which);
    try {
      Prepared prepared = octavo::torch::prepare(*model, plain, config);
      asked = heap::disarm_heap();
      for (int step = 0; step < 3; ++step) {
        model->forward(x).square().mean().backward();
        prepared.step();
        prepared.zero_grad();
      }
      at::Tensor flat;
      prepared.with_plain_weights([&] { flat = all_parameters(*model); });
      said->sum =
          (flat.to(at::kDouble) * torch::arange(1.0, 1.0 + flat.numel())).sum().item<double>();
      said->status = OCTAVO_OK;
    } catch (const octavo::torch::Error &e) {
      said->keep(e.status(), e.what());
    } catch (const std::bad_alloc &e) {
      said->keep(OCTAVO_NO_RESOURCE, e.what());
    } catch (const std::exception &e) {
      // Torch's own. Its stable ABI keeps the reason for standard error.
      const bool is_torch = std::strstr(e.what(), "can't allocate memory") != nullptr ||
                            std::strstr(e.what(), "API call failed") != nullptr;
      said->keep(is_torch ? OCTAVO_NO_RESOURCE : OCTAVO_INTERNAL, e.what());
    }
    heap::disarm_heap();
    return asked;
  }

  std::string attempt(int64_t which, Trial *trial) {
    *shared_ = Trial();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      shared_->asked = train(which, &shared_->said);
      train(0, &shared_->again);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    *trial = *shared_;
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : "exit code " + std::to_string(WEXITSTATUS(status));
  }

  void sweep(int64_t trials) {
    Trial whole;
    ASSERT_EQ(attempt(0, &whole), "");
    ASSERT_EQ(whole.said.status, OCTAVO_OK) << whole.said.text;
    ASSERT_EQ(whole.said.sum, whole.again.sum);
    RecordProperty("allocations", static_cast<int>(whole.asked));
    const int64_t step = std::max<int64_t>(1, whole.asked / trials);
    int64_t failed = 0;
    for (int64_t k = 1 + static_cast<int64_t>(heap::seed_or(0)) % step; k <= whole.asked;
         k += step) {
      Trial trial;
      const std::string where =
          "allocation " + std::to_string(k) + " of " + std::to_string(whole.asked) + ": ";
      EXPECT_EQ(attempt(k, &trial), "") << where;
      if (trial.said.status == OCTAVO_OK) {
        EXPECT_EQ(trial.said.sum, whole.said.sum) << where << "other weights";
      } else {
        ++failed;
        EXPECT_EQ(trial.said.status, OCTAVO_NO_RESOURCE) << where << trial.said.text;
      }
      EXPECT_EQ(trial.again.status, OCTAVO_OK) << where << "afterwards: " << trial.again.text;
      EXPECT_EQ(trial.again.sum, whole.said.sum) << where << "afterwards other weights";
    }
    EXPECT_GT(failed, 0);
  }

 private:
  Trial *shared_ = nullptr;
};

TEST_P(TorchOutOfMemory, a_sample_of_allocations_fails) {
  sweep(50);
}

TEST_P(TorchOutOfMemory, every_allocation_fails_once) {
  sweep(INT64_MAX);
}

INSTANTIATE_TEST_SUITE_P(All, TorchOutOfMemory,
                         testing::Values(Scenario{"te", "delayed"}, Scenario{"msamp", "O2"}),
                         [](const auto &one) { return std::string(one.param.backend); });

}  // namespace

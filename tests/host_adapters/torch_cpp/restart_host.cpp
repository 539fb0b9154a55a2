// A program that trains on several ranks and goes on from its last checkpoint, and a fault to try
// it.
//
//   restart_host FOLDER [RANK STEP (kill | stop | late | less)]     the fault happens once
//   restart_host --config TOML
#include <octavo/torch/accelerator.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "transformer.h"

namespace {

namespace fs = std::filesystem;
using octavo::torch::Accelerator;
using octavo::torch::Config;
using octavo::torch::Prepared;

constexpr int64_t kSteps = 6;

struct Fault {
  int64_t rank = -1, step = 0;
  std::string kind, done;
};

// Each rank's part of the data.
class Batches {
 public:
  Batches(const Accelerator &accelerator, Fault fault)
      : rank_(accelerator.process_index()),
        ranks_(accelerator.num_processes()),
        fault_(std::move(fault)) {}

  // Where the fault happens: at the begin of a step.
  bool has(int64_t step) const {
    if (rank_ == fault_.rank && step == fault_.step && !fs::exists(fault_.done)) {
      std::ofstream(fault_.done).put('1');
      if (fault_.kind == "kill") kill(getpid(), SIGKILL);
      if (fault_.kind == "stop") kill(getpid(), SIGSTOP);
      if (fault_.kind == "late") sleep(6);
      if (fault_.kind == "less") return false;
    }
    return step <= kSteps;
  }
  at::Tensor at(int64_t step) const { return testing_torch::batch_of(4, ranks_ * step + rank_); }

 private:
  int64_t rank_, ranks_;
  Fault fault_;
};

// The step of the last checkpoint that every rank has whole; 0: none.
int64_t last_step(Accelerator &accelerator, const std::string &folder) {
  int64_t step = kSteps;
  while (step > 0 && !accelerator.has_state(folder + "/" + std::to_string(step))) --step;
  return accelerator.gather(torch::tensor(step)).min().item<int64_t>();
}

void train(const Config &config, const std::string &folder, const Fault &fault) {
  Accelerator accelerator(config);
  if (accelerator.num_processes() > 1) raise(SIGPIPE);  // as gloo's write to a rank that has ended
  torch::manual_seed(7);
  testing_torch::Transformer model;
  torch::optim::AdamW adamw = testing_torch::adamw(*model);
  const Batches batches(accelerator, fault);
  Prepared &optimizer = accelerator.prepare(*model, adamw);
  const int64_t done = last_step(accelerator, folder);
  if (done > 0) accelerator.load_state(folder + "/" + std::to_string(done));
  for (int64_t step = done + 1; batches.has(step); ++step) {
    optimizer.zero_grad();
    accelerator.backward(testing_torch::loss_of(model, batches.at(step)));
    optimizer.step();
    accelerator.save_state(folder + "/" + std::to_string(step));
  }
  if (accelerator.is_main_process())
    optimizer.with_plain_weights([&] { torch::save(model, folder + "/model.pt"); });
  accelerator.print("steps " + std::to_string(done + 1) + " to " + std::to_string(kSteps));
}

}  // namespace

int main(int argc, char **argv) {
  try {
    Config config = testing_torch::config_of("te", "delayed");
    config.set("distributed.timeout_s", 3);
    Fault fault;
    if (argc == 3) config = Config::from_text(argv[2]);
    if (argc == 5)
      fault = {std::atoll(argv[2]), std::atoll(argv[3]), argv[4], std::string(argv[1]) + "/struck"};
    train(config, argv[1], fault);
  } catch (const std::exception &e) {
    std::cerr << "restart_host: " << e.what() << std::endl;
    std::_Exit(octavo::torch::exit_code(e));
  }
}

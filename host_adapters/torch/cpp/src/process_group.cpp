// The one file that sees c10d. FP8 codes cross as bytes, since gloo refuses their dtypes.
#include "process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <signal.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <charconv>
#include <cstdlib>
#include <string>

#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

int64_t number(const char *name, int64_t unset, int64_t least, int64_t most) {
  const std::string value = variable(name);
  if (value.empty()) return unset;
  int64_t parsed = 0;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (result.ec != std::errc() || result.ptr != value.data() + value.size() || parsed < least ||
      parsed > most)
    throw Error(OCTAVO_INVALID, std::string("environment ") + name + ": expected a number from " +
                                    std::to_string(least) + " to " + std::to_string(most) +
                                    ", found \"" + value + "\"; start the program with torchrun");
  return parsed;
}

// gloo writes to a rank that may just have ended (writev in gloo/transport/tcp/pair.cc): the signal
// would end this process before the error reaches its caller. A handler of the program stays.
void ignore_broken_connections() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL)
    signal(SIGPIPE, SIG_IGN);
}

}  // namespace

struct ProcessGroup::Backends {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;  // null in a world of 1
  c10::intrusive_ptr<c10d::Backend> device;         // null: none was given
};

void ProcessGroup::fail(const char *what, const std::string &found) const {
  throw Error(OCTAVO_FAILED_DEVICE,
              std::string(what) + ", in step " + std::to_string(step_) +
                  " of this process: expected an answer of all " + std::to_string(world_) +
                  " ranks within the timeout of " + std::to_string(timeout_.count()) +
                  " s, found: " + found +
                  "; a rank has ended or hangs: see what it printed last, then start every rank "
                  "again from a checkpoint");
}

// Calls, or waits: an exception of torch's transport becomes an Error that says what to do.
template <class Fn>
auto ProcessGroup::answered(const char *what, Fn call) const {
  try {
    return call();
  } catch (const Error &) {
    throw;
  } catch (const c10::Error &e) {
    fail(what, e.what_without_backtrace());
  } catch (const std::exception &e) {
    fail(what, e.what());
  }
}

ProcessGroup::ProcessGroup(std::chrono::seconds timeout)
    : timeout_(timeout),
      world_(number("WORLD_SIZE", 1, 1, 65536)),
      backends_(std::make_unique<Backends>()) {
  rank_ = number("RANK", 0, 0, world_ - 1);
  local_rank_ = number("LOCAL_RANK", 0, 0, world_ - 1);
  if (world_ == 1) return;
  const std::string address = variable("MASTER_ADDR");
  if (variable("RANK").empty() || address.empty() || variable("MASTER_PORT").empty())
    throw Error(OCTAVO_INVALID,
                "environment: expected RANK, MASTER_ADDR and MASTER_PORT next to "
                "WORLD_SIZE=" +
                    std::to_string(world_) +
                    ", found one of them unset; start the program with torchrun");
  ignore_broken_connections();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(number("MASTER_PORT", 0, 1, 65535));
  // torchrun may serve the store itself.
  options.isServer = rank_ == 0 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True";
  options.timeout = timeout_;
  auto gloo = c10d::ProcessGroupGloo::Options::create();
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(
      address == "localhost" || address == "127.0.0.1" ? "127.0.0.1" : ""));
  gloo->timeout = timeout_;
  const auto of_all = answered("meeting of the ranks", [&] {
    try {
      return c10::make_intrusive<c10d::TCPStore>(address, options);
    } catch (const c10::Error &e) {
      if (!options.isServer) throw;
      throw Error(OCTAVO_FAILED_DEVICE, "the store of the ranks: expected to listen at " + address +
                                            ":" + std::to_string(options.port) +
                                            ", found: " + e.what_without_backtrace() +
                                            "; start rank 0 on the machine of MASTER_ADDR, and set "
                                            "MASTER_PORT to a port that no other program has");
    }
  });
  answered("meeting of the ranks", [&] {
    // torchrun keeps its store from one start of the ranks to the next.
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        "octavo/" + variable("TORCHELASTIC_RESTART_COUNT"), of_all);
    backends_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank_),
                                                                  static_cast<int>(world_), gloo);
  });
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::use(const c10::intrusive_ptr<c10d::Backend> &backend) {
  if (!backend || backend->getRank() != rank_ || backend->getSize() != world_)
    throw Error(OCTAVO_INVALID, "the process group: expected a backend of rank " +
                                    std::to_string(rank_) + " of " + std::to_string(world_) +
                                    ", as RANK and WORLD_SIZE say, found " +
                                    (backend ? "rank " + std::to_string(backend->getRank()) +
                                                   " of " + std::to_string(backend->getSize())
                                             : "none"));
  backends_->device = backend;
}

std::string ProcessGroup::device_backend() const {
  return backends_->device ? backends_->device->getBackendName() : std::string();
}

c10d::Backend &ProcessGroup::backend_of(const at::Tensor &tensor) {
  if (tensor.is_cpu()) return *backends_->gloo;
  if (!backends_->device)
    throw Error(OCTAVO_UNSUPPORTED,
                "Accelerator: expected a backend of c10d that exchanges tensors on " +
                    tensor.device().str() + " between " + std::to_string(world_) +
                    " processes, found none; give it one with set_group() before prepare(), such "
                    "as c10d::ProcessGroupNCCL, or call module->to(torch::kCPU)");
  return *backends_->device;
}

void ProcessGroup::broadcast(at::Tensor &tensor, int64_t root, const char *what) {
  if (world_ == 1) return;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors = {tensor};
  answered(what, [&] { backend_of(tensor).broadcast(tensors, options)->wait(); });
}

std::vector<at::Tensor> ProcessGroup::all_gather(const at::Tensor &tensor, const char *what) {
  if (world_ == 1) return {tensor};
  std::vector<std::vector<at::Tensor>> outputs(1);
  std::vector<at::Tensor> inputs = {tensor.contiguous()};
  for (int64_t i = 0; i < world_; ++i) outputs[0].push_back(at::empty_like(inputs[0]));
  answered(what, [&] { backend_of(tensor).allgather(outputs, inputs)->wait(); });
  return outputs[0];
}

void ProcessGroup::barrier(const char *what) {
  if (world_ > 1) answered(what, [&] { backends_->gloo->barrier()->wait(); });
}

ProcessGroup::Wait ProcessGroup::start(uint32_t collective, const at::Tensor &send,
                                       const at::Tensor &recv, const char *what) {
  return answered(what, [&]() -> Wait {
    return [this, what, wait = begin(collective, send, recv)] { answered(what, wait); };
  });
}

ProcessGroup::Wait ProcessGroup::begin(uint32_t collective, const at::Tensor &send,
                                       const at::Tensor &recv) {
  at::Tensor in = send;
  at::Tensor out = recv;
  c10d::Backend &backend = backend_of(in);
  // The tensors live until the collective has ended.
  const auto waiting = [](c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors) {
    return [work = std::move(work), tensors = std::move(tensors)] { work->wait(); };
  };
  c10d::AllreduceOptions options;
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
    case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM: {
      options.reduceOp = collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ? c10d::ReduceOp::MAX
                                                                        : c10d::ReduceOp::SUM;
      if (!in.is_same(out)) out.copy_(in);
      std::vector<at::Tensor> tensors = {out};
      return waiting(backend.allreduce(tensors, options), tensors);
    }
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: {
      std::vector<int64_t> even;
      return waiting(backend.alltoall_base(out, in, even, even), {in, out});
    }
    case OCTAVO_COLLECTIVE_ALL_GATHER: return waiting(backend._allgather_base(out, in), {in, out});
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: {
      options.reduceOp = c10d::ReduceOp::SUM;
      std::vector<at::Tensor> all = {in.clone()};
      auto work = backend.allreduce(all, options);
      return [work = std::move(work), sum = all[0], out, rank = rank_] {
        work->wait();
        out.copy_(sum.narrow(0, rank * out.numel(), out.numel()));
      };
    }
    default:
      throw Error(OCTAVO_UNSUPPORTED,
                  "a stage of the reduction: expected a known collective, found " +
                      std::to_string(collective) +
                      "; choose another backend, or a later octavo::torch");
  }
}

}  // namespace octavo::torch

// Each collective copies there, runs, and copies back before it returns.
#include "staged_group.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "fake_device.h"

namespace testing_torch {
namespace {

using Tensors = std::vector<at::Tensor>;

class Done : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return true; }
};

Tensors to_cpu(const Tensors &tensors) {
  Tensors copies;
  for (const at::Tensor &t : tensors) copies.push_back(t.cpu());
  return copies;
}

void copy_back(const Tensors &from, const Tensors &to) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

class Staged : public c10d::Backend {
 public:
  Staged(const std::string &file, int rank, int world, std::string name)
      : Backend(rank, world), name_(std::move(name)) {
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::FileStore>(file, world), rank, world, options);
  }

  const std::string getBackendName() const override { return name_; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors &tensors,
                                           const c10d::AllreduceOptions &options) override {
    return run(tensors, {},
               [&](Tensors &out, Tensors &) { return gloo_->allreduce(out, options); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors &tensors,
                                           const c10d::BroadcastOptions &options) override {
    return run(tensors, {},
               [&](Tensors &out, Tensors &) { return gloo_->broadcast(out, options); });
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &options) override {
    return run(outputs.at(0), inputs, [&](Tensors &out, Tensors &in) {
      std::vector<Tensors> all = {out};
      return gloo_->allgather(all, in, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor &output, at::Tensor &input,
                                                 const c10d::AllgatherOptions &options) override {
    return run({output}, {input}, [&](Tensors &out, Tensors &in) {
      return gloo_->_allgather_base(out[0], in[0], options);
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor &output, at::Tensor &input,
                                               std::vector<int64_t> &output_sizes,
                                               std::vector<int64_t> &input_sizes,
                                               const c10d::AllToAllOptions &options) override {
    return run({output}, {input}, [&](Tensors &out, Tensors &in) {
      return gloo_->alltoall_base(out[0], in[0], output_sizes, input_sizes, options);
    });
  }

 private:
  template <class Call>
  c10::intrusive_ptr<c10d::Work> run(const Tensors &outputs, const Tensors &inputs,
                                     const Call &call) {
    const Uncounted scope;
    Tensors out = to_cpu(outputs), in = to_cpu(inputs);
    call(out, in)->wait();
    copy_back(out, outputs);
    return c10::make_intrusive<Done>();
  }

  std::string name_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> staged_group(const std::string &file, int rank, int world,
                                               const std::string &name) {
  return c10::make_intrusive<Staged>(file, rank, world, name);
}

}  // namespace testing_torch

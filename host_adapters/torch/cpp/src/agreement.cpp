// Processes compare hashes, so what they exchange has one size whatever they hold.
#include "agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <octavo/hpp/text.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "device.h"
#include "host_adapters/torch/core/driver.h"
#include "host_adapters/torch/core/hash.h"
#include "prepared.h"

namespace octavo::torch {
namespace {

int64_t hash_of(const std::string &text) {
  core::Hash hash;
  hash.add(text.data(), text.size());
  return static_cast<int64_t>(hash.value());
}

// Something that must be equal everywhere, and what to do when it is not.
struct Shared {
  std::string what, value, remedy;
};

// Throws Error in every process unless all values are equal. Each process gives the same list of
// names. One all-gather of 8 bytes a value.
void check_equal(ProcessGroup &group, const std::vector<Shared> &values) {
  if (group.world() == 1) return;
  const at::Tensor own = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  auto *hashes = own.mutable_data_ptr<int64_t>();
  for (const Shared &shared : values) *hashes++ = hash_of(shared.value);
  const std::vector<at::Tensor> all = group.all_gather(own, "all_gather of what the ranks train");
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t i = 0; i < values.size(); ++i)
      if (all[rank].const_data_ptr<int64_t>()[i] != all[0].const_data_ptr<int64_t>()[i])
        throw Error(OCTAVO_WRONG_STATE, "the processes: expected " + values[i].what +
                                            " of rank 0 in every process, found another on rank " +
                                            std::to_string(rank) + "; " + values[i].remedy);
}

constexpr const char *kSucceeded = "succeeded";

// Parameters and buffers with their shapes, dtypes and kinds of device, and which are on one. What
// device_of() refuses in one process it refuses in all, as none may wait for another.
std::string outline_of(const ::torch::nn::Module &module) {
  std::ostringstream text;
  std::optional<at::Device> first;
  const auto line = [&](const std::string &name, const at::Tensor &t) {
    if (!first.has_value()) first = t.device();
    text << name << ' ' << t.sizes() << ' ' << t.scalar_type() << ' '
         << c10::DeviceTypeName(t.device().type(), true) << ' ' << (t.device() == *first) << '\n';
  };
  for (const auto &item : module.named_parameters()) line(item.key(), item.value());
  for (const auto &item : module.named_buffers()) line(item.key(), item.value());
  return std::move(text).str();
}

// NCCL needs a GPU for each process, and its own message names neither.
void check_gpus(ProcessGroup &group, const at::Device &device) {
  if (group.world() == 1 || group.device_backend() != "nccl") return;
  const core::Device own = {static_cast<int32_t>(device.type()),
                            std::max<int32_t>(device.index(), 0)};
  const std::string gpu = core::gpu_of(own);
  const at::Tensor hash = at::full({1}, gpu.empty() ? 0 : hash_of(gpu), at::kLong);
  const std::vector<at::Tensor> all = group.all_gather(hash, "all_gather of the GPUs of the ranks");
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t other = 0; other < rank; ++other)
      if (const auto *one = all[rank].const_data_ptr<int64_t>();
          *one != 0 && *one == *all[other].const_data_ptr<int64_t>())
        throw Error(OCTAVO_DEVICE,
                    "the processes: expected a GPU for each, found ranks " + std::to_string(other) +
                        " and " + std::to_string(rank) +
                        " on one; call module->to(torch::Device(torch::kCUDA, "
                        "accelerator.local_process_index())) before prepare(), and start at most "
                        "one process for each GPU");
}

// The backend with its plugin file, the options, and the layers that run in FP8.
std::vector<Shared> choices_of(Prepared &prepared) {
  const Run &run = *prepared.impl().run;
  const octavo_plugin_info *plugin = octavo_run_plugin(run.handle());
  std::string options, layers;
  for (const std::string &option : run.options()) options += option + '\n';
  for (const Layer &layer : prepared.layers())
    layers += layer.name + (layer.fp8 ? " fp8\n" : " torch\n");
  return {
      {"the outcome of prepare()", kSucceeded, "see the error of the process in which it failed"},
      {"the backend and the plugin file",
       plugin == nullptr ? "none" : text(plugin->id) + text(plugin->sha256),
       "install the same plugin everywhere"},
      {"the options", options, "use one octavo.toml"},
      {"the layers in FP8", layers, "use one octavo.toml"}};
}

}  // namespace

void check_models(ProcessGroup &group, const ::torch::nn::Module &module) {
  check_equal(group, {{"the version of octavo", text(octavo_version()),
                       "install the same version everywhere"},
                      {"the parameters and buffers of the model", outline_of(module),
                       "build the same model in every process"},
                      {"the process group of tensors on devices", group.device_backend(),
                       "call set_group() in every process"}});
  check_gpus(group, device_of(module));
}

void check_choices(ProcessGroup &group, Prepared *prepared) {
  if (prepared != nullptr) return check_equal(group, choices_of(*prepared));
  std::vector<Shared> values(4);
  try {
    check_equal(group, values);
  } catch (const std::exception &) {  // the failure itself says more
  }
}

}  // namespace octavo::torch

// octavo.shard/1 as torch ops, and its plan for the Python package.
#include <torch/csrc/stable/library.h>

#include <exception>

#include "host_adapters/torch/core/host.h"
#include "host_adapters/torch/core/shard.h"
#include "registry.h"
#include "tensors.h"

namespace octavo::ops {
namespace {

void shard_measure(int64_t run, const Ids &parameters, const Tensors &shards, const Tensor &amax) {
  core::shard_measure(*find(run), parameters, views(shards), view(amax));
}

void shard_cast(int64_t run, int64_t parameter, const Tensor &shard, const Tensor &amax,
                const Tensor &packet) {
  core::shard_cast(*find(run), parameter, view(shard), view(amax), view(packet));
}

void shard_gathered(int64_t run, int64_t parameter, const Tensor &packets, const Tensor &amax) {
  core::shard_gathered(*find(run), parameter, view(packets), view(amax));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def("shard_measure(int run, int[] parameters, Tensor[] shards, Tensor(a!) amax) -> ()");
  m.def("shard_cast(int run, int parameter, Tensor shard, Tensor amax, Tensor(a!) packet) -> ()");
  m.def("shard_gathered(int run, int parameter, Tensor packets, Tensor amax) -> ()");
}

namespace {

void implement(torch::stable::detail::StableLibrary &m) {
  m.impl("shard_measure", TORCH_BOX(&shard_measure));
  m.impl("shard_cast", TORCH_BOX(&shard_cast));
  m.impl("shard_gathered", TORCH_BOX(&shard_gathered));
}

}  // namespace

OCTAVO_ON_EVERY_DEVICE(implement)

}  // namespace octavo::ops

// Plans shards of `rows` rows of a parameter: the bytes of one rank's packet. On failure nothing
// changes, and octavo_torch_take_diagnostics has the reason. Setup; any thread.
OCTAVO_EXPORT octavo_status octavo_torch_plan_shard(int64_t run, uint32_t parameter, int64_t rows,
                                                    uint64_t *packet_bytes) {
  std::shared_ptr<const octavo::core::Entry> entry;
  try {
    entry = octavo::ops::find(run);
  } catch (const std::exception &e) {  // as torch throws it
    octavo::core::diagnose(e.what());
    return OCTAVO_WRONG_STATE;
  }
  return octavo::core::plan_shard(*entry, parameter, rows, packet_bytes);
}

// The calls follow the plan that setup left in the entry.
#include "shard.h"

#include <torch/headeronly/util/shim_utils.h>

#include "arguments.h"
#include "host.h"

namespace octavo::core {
namespace {

std::string name_of(const Entry &e, int64_t parameter) {
  return e.name(OCTAVO_OWNER_PARAMETER, parameter);
}

const octavo_shard_plan &plan_of(const Entry &e, int64_t parameter) {
  list_of(e, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);  // checks the number
  const octavo_shard_plan &plan = e.shard_plans[static_cast<size_t>(parameter)];
  if (plan.packet_bytes == 0)
    raise(OCTAVO_WRONG_STATE, name_of(e, parameter) +
                                  ": expected a plan of its shards (octavo.shard/1), found none; "
                                  "call octavo_torch_plan_shard first");
  return plan;
}

octavo_tensor shard_matrix(const Entry &e, const octavo_shard_plan &plan, View shard) {
  const Native *native =
      list_of(e, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, plan.parameter)
          .native(OCTAVO_ROLE_WEIGHT);
  check_dense(e, shard, "shard");
  int64_t k = 0;
  for (const LinearShape &s : e.shapes)
    if (s.parameter == plan.parameter) k = s.k;
  if (native == nullptr || shard.dtype() != native->dtype || shard.dim() != 2 ||
      shard.last() != k || shard.sizes()[0] > plan.rows)
    raise(OCTAVO_INVALID,
          name_of(e, plan.parameter) + ": shard: expected at most " + std::to_string(plan.rows) +
              " rows of " + std::to_string(k) +
              " columns in the dtype of the parameter, found another shape or dtype");
  octavo_tensor m = matrix(shard, k);
  m.rows = shard.sizes()[0];
  return m;
}

float *one_float(const Entry &e, View amax) {
  check_floats(e, amax, 1, "amax");
  return static_cast<float *>(amax.mutable_data());
}

// Checks bytes and place of packets: of one rank, or of as many as there are.
int64_t packets_in(const Entry &e, const octavo_shard_plan &plan, View packets) {
  check_dense(e, packets, "packets");
  const auto bytes = static_cast<int64_t>(plan.packet_bytes);
  if (packets.dtype() == OCTAVO_U8 && packets.numel() > 0 && packets.numel() % bytes == 0 &&
      reinterpret_cast<uintptr_t>(packets.data()) % OCTAVO_ALIGNMENT == 0)
    return packets.numel() / bytes;
  raise(OCTAVO_INVALID, name_of(e, plan.parameter) + ": packets: expected packets of " +
                            std::to_string(bytes) + " bytes (uint8) at a multiple of " +
                            std::to_string(OCTAVO_ALIGNMENT) + ", found " +
                            std::to_string(packets.numel()) + " elements");
}

octavo_shard_call call_for(const Entry &e, const octavo_shard_plan &plan,
                           const octavo_tensor *shard, float *amax) {
  auto call = call_of<octavo_shard_call>(e, OCTAVO_KIND_SHARD_CALL, Uses::kNothing);
  call.parameter = plan.parameter;
  call.rows = plan.rows;
  call.shard = shard;
  call.amax = amax;
  return call;
}

}  // namespace

octavo_status plan_shard(const Entry &e, uint32_t parameter, int64_t rows,
                         uint64_t *packet_bytes) noexcept {
  if (e.shard == nullptr) {
    diagnose("octavo.shard/1: the backend has none");
    return OCTAVO_UNSUPPORTED;
  }
  if (parameter >= e.shard_plans.size()) {
    diagnose(name_of(e, parameter) + ": expected a number below " +
             std::to_string(e.shard_plans.size()));
    return OCTAVO_INVALID;
  }
  auto plan = make<octavo_shard_plan>(OCTAVO_KIND_SHARD_PLAN);
  plan.parameter = parameter;
  plan.rows = rows;
  const octavo_status status = e.shard->plan(e.session, &plan);
  if (status != OCTAVO_OK) return status;
  *packet_bytes = plan.packet_bytes;
  e.shard_plans[parameter] = plan;
  return OCTAVO_OK;
}

void shard_measure(const Entry &e, const std::vector<int64_t> &parameters, const Views &shards,
                   View amax) {
  check_floats(e, amax, static_cast<int64_t>(parameters.size()), "amax");
  if (shards.size() != parameters.size())
    raise(OCTAVO_INVALID, "shard_measure: expected " + std::to_string(parameters.size()) +
                              " shards, found " + std::to_string(shards.size()));
  auto *at = static_cast<float *>(amax.mutable_data());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const octavo_shard_plan &plan = plan_of(e, parameters[i]);
    const octavo_tensor shard = shard_matrix(e, plan, shards[i]);
    const octavo_shard_call call = call_for(e, plan, &shard, at + i);
    check(e.shard->measure(e.session, &call), "shard measure", e, OCTAVO_OWNER_PARAMETER,
          parameters[i]);
  }
}

void shard_cast(const Entry &e, int64_t parameter, View shard, View amax, View packet) {
  const octavo_shard_plan &plan = plan_of(e, parameter);
  const octavo_tensor m = shard_matrix(e, plan, shard);
  octavo_shard_call call = call_for(e, plan, &m, one_float(e, amax));
  if (packets_in(e, plan, packet) != 1)
    raise(OCTAVO_INVALID, name_of(e, parameter) + ": packet: expected one, found several");
  Pointers pointers(e, list_of(e, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter),
                    true);
  Workspace workspace(e, plan.cast_workspace);
  call.slots = pointers.data();
  call.packet = packet.mutable_data();
  call.workspace = workspace.data();
  check(e.shard->cast(e.session, &call), "shard cast", e, OCTAVO_OWNER_PARAMETER, parameter);
}

void shard_gathered(const Entry &e, int64_t parameter, View packets, View amax) {
  const octavo_shard_plan &plan = plan_of(e, parameter);
  if (packets.numel() == 0) return e.coupling.gathered(plan.parameter, {}, {});
  packets_in(e, plan, packets);
  one_float(e, amax);
  e.coupling.gathered(plan.parameter, shared(packets), shared(amax));
}

void shard_place(const Entry &e, uint32_t parameter, View packets, View amax, bool records) {
  if (!packets || packets.data() == nullptr)
    raise(OCTAVO_WRONG_STATE,
          name_of(e, parameter) +
              ": expected codes that were gathered since the last step, found none; run the module "
              "that fully_shard wrapped, and call its reshard() before it if the weight was still "
              "gathered when a step, a load or octavo.refresh changed scales");
  const octavo_shard_plan &plan = plan_of(e, parameter);
  const List &list = list_of(e, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
  check_held(e, parameter, list);
  Pointers pointers(e, list, records);
  Workspace workspace(e, plan.place_workspace);
  auto call = call_of<octavo_gathered_call>(e, OCTAVO_KIND_GATHERED_CALL, Uses::kWrites);
  call.parameter = parameter;
  call.rows = plan.rows;
  call.world = static_cast<uint32_t>(packets_in(e, plan, packets));
  call.packets = packets.data();
  call.amax = one_float(e, amax);
  call.slots = pointers.data();
  call.workspace = workspace.data();
  check(e.shard->place(e.session, &call), "shard place", e, OCTAVO_OWNER_PARAMETER, parameter);
  e.calls[OCTAVO_VERB_QUANTIZE_WEIGHT].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace octavo::core

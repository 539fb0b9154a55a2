// Lists of many parameters, whose memory is gathered first.
#include "optimizer.h"

#include <algorithm>

#include "items.h"

namespace octavo::core {
namespace {

using Ids = std::vector<int64_t>;

const octavo_optimizer *optimizer(const Entry &e) {
  if (e.optimizer == nullptr)
    raise(OCTAVO_UNSUPPORTED,
          "octavo.optimizer/2: the backend has none; step its parameters with torch's own");
  return e.optimizer;
}

uint64_t workspace_bytes(const Entry &e, const std::vector<uint32_t> &ids) {
  uint64_t bytes = 0;
  check(optimizer(e)->workspace_bytes(e.session, ids.data(), ids.size(), &bytes),
        "workspace_bytes of octavo.optimizer/2");
  return bytes;
}

const float *floats(const Entry &e, View t, const char *name) {
  if (!t) return nullptr;
  check_floats(e, t, 1, name);
  return static_cast<const float *>(t.data());
}

float *mutable_floats(const Entry &e, View t, const char *name) {
  return const_cast<float *>(floats(e, t, name));
}

octavo_parameter_call parameter_call(const Entry &e, int64_t parameter, int64_t role,
                                     octavo_tensor *plain) {
  auto call = call_of<octavo_parameter_call>(e, OCTAVO_KIND_PARAMETER_CALL, Uses::kWrites);
  call.parameter = static_cast<uint32_t>(parameter);
  call.role = static_cast<uint32_t>(role);
  call.plain = plain;
  return call;
}

using ParameterVerb = octavo_status (*)(const octavo_session *, const octavo_parameter_call *);

// The values of one role of a parameter in slots; torch's own tensors are not its business.
void exchange(const Entry &e, ParameterVerb octavo_optimizer::*verb, const char *name,
              int64_t parameter, int64_t role, View plain, bool moves) {
  check_dense(e, plain, "plain");
  Pointers pointers(e, list_of(e, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter),
                    true);
  Workspace workspace(e, workspace_bytes(e, {static_cast<uint32_t>(parameter)}));
  octavo_tensor m = matrix(plain, plain.dim() > 0 ? plain.last() : 1);
  octavo_parameter_call call = parameter_call(e, parameter, role, &m);
  call.slots = pointers.data();
  call.workspace = workspace.data();
  if (moves) e.coupling.moved(call.parameter);
  check((optimizer(e)->*verb)(e.session, &call), name, e, OCTAVO_OWNER_PARAMETER, parameter);
}

}  // namespace

void optimizer_step(const Entry &e, const ParameterSet &parameters, const Ids &groups, View hyper,
                    View skip) {
  if (groups.size() != parameters.ids.size())
    raise(OCTAVO_INVALID, "optimizer_step: groups: expected one for each parameter");
  check_floats(e, hyper, 0, "optimizer_step: hyper");
  const Items items(e, OCTAVO_VERB_OPTIMIZER_STEP, parameters, hyper, &groups);
  Workspace workspace(e, workspace_bytes(e, items.ids()));
  auto call = call_of<octavo_optimizer_call>(e, OCTAVO_KIND_OPTIMIZER_CALL, Uses::kWrites);
  call.items = items.data();
  call.count = items.count();
  call.skip = floats(e, skip, "optimizer_step: skip");
  call.workspace = workspace.data();
  for (const uint32_t p : items.ids()) e.coupling.moved(p);
  check(optimizer(e)->optimizer_step(e.session, &call), "optimizer_step");
  e.calls[OCTAVO_VERB_OPTIMIZER_STEP].fetch_add(1, std::memory_order_relaxed);
}

void sum_of_squares(const Entry &e, const ParameterSet &parameters, View sum) {
  check_floats(e, sum, 1, "sum_of_squares: sum");
  const Items items(e, OCTAVO_VERB_OPTIMIZER_STEP, parameters);
  Workspace workspace(e, workspace_bytes(e, items.ids()));
  auto call = call_of<octavo_norm_call>(e, OCTAVO_KIND_NORM_CALL, Uses::kReads);
  call.items = items.data();
  call.count = items.count();
  call.sum = static_cast<float *>(sum.mutable_data());
  call.workspace = workspace.data();
  check(optimizer(e)->sum_of_squares(e.session, &call), "sum_of_squares");
}

void prepare_step(const Entry &e, View sum, View nonfinite, View norm, View skip, View hyper,
                  double factor, double max_norm) {
  check_floats(e, sum, 0, "prepare_step: sum");
  check_floats(e, hyper, 0, "prepare_step: hyper");
  std::vector<float *> rows;
  const int64_t groups = hyper.numel() / OCTAVO_HYPER_COUNT;
  for (int64_t g = 0; g < groups; ++g) rows.push_back(row_of(hyper, g));
  auto call = call_of<octavo_prepare_call>(e, OCTAVO_KIND_PREPARE_CALL, Uses::kReads);
  call.sum = static_cast<const float *>(sum.data());
  call.sum_count = static_cast<uint64_t>(sum.numel());
  call.nonfinite = floats(e, nonfinite, "prepare_step: nonfinite");
  call.factor = static_cast<float>(factor);
  call.max_norm = static_cast<float>(max_norm);
  // At most 64 groups a call; norm and skip come out alike each time.
  for (size_t first = 0; first == 0 || first < rows.size(); first += 64) {
    call.norm = mutable_floats(e, norm, "prepare_step: norm");
    call.skip = mutable_floats(e, skip, "prepare_step: skip");
    call.hyper = rows.data() + first;
    call.count = std::min<size_t>(rows.size() - first, 64);
    check(optimizer(e)->prepare_step(e.session, &call), "prepare_step");
  }
}

void read_parameter(const Entry &e, int64_t parameter, int64_t role, View plain) {
  exchange(e, &octavo_optimizer::read_parameter, "read_parameter", parameter, role, plain, false);
}

void write_parameter(const Entry &e, int64_t parameter, int64_t role, View plain) {
  const bool is_weight = role == OCTAVO_ROLE_WEIGHT || role == OCTAVO_ROLE_MASTER_WEIGHT;
  exchange(e, &octavo_optimizer::write_parameter, "write_parameter", parameter, role, plain,
           is_weight);
}

}  // namespace octavo::core

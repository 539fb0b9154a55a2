// What runs once a step: end_step; and the verbs of optimizers and of gradient reduction, which
// take the lists of many parameters. weights, gradients: torch's own tensors of those parameters
// whose value or gradient is not in a slot, in the order of the parameters.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <deque>

#include "arguments.h"

namespace octavo::ops {
namespace {

using std::optional;
using Tensors = std::vector<Tensor>;
using Ids = std::vector<int64_t>;

void end_step(int64_t run) {
  const auto e = find(run);
  e->coupling.boundary(*e);
}

const octavo_optimizer *optimizer(const Entry &e) {
  if (e.optimizer == nullptr)
    raise(OCTAVO_UNSUPPORTED,
          "octavo.optimizer/1: the backend has none; step its parameters with torch's own");
  return e.optimizer;
}

// The items of one call with their memory.
class Items {
 public:
  Items(const Entry &e, uint32_t verb, const Ids &parameters, const Tensors &weights,
        const Tensors &gradients, const Tensor *hyper = nullptr, const Ids *groups = nullptr) {
    size_t next_weight = 0, next_gradient = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t id = parameters[i];
      const List &list = list_of(e, verb, OCTAVO_OWNER_PARAMETER, id);
      Pointers &pointers = lists_.emplace_back(list, true);
      for (const Native &native : list.natives) {
        const bool is_weight = native.role == OCTAVO_ROLE_WEIGHT;
        const Tensors &from = is_weight ? weights : gradients;
        size_t &next = is_weight ? next_weight : next_gradient;
        pointers.set(native.at, address(e, native, from, next++, id));
      }
      octavo_parameter_item item = {};
      item.parameter = static_cast<uint32_t>(id);
      item.slots = pointers.data();
      if (hyper != nullptr) item.hyper = row_of(*hyper, (*groups)[i]);
      items_.push_back(item);
      ids_.push_back(item.parameter);
    }
    if (next_weight != weights.size() || next_gradient != gradients.size())
      raise(OCTAVO_INVALID, "parameters: expected " + std::to_string(next_weight) +
                                " weights and " + std::to_string(next_gradient) +
                                " gradients of torch, found " + std::to_string(weights.size()) +
                                " and " + std::to_string(gradients.size()));
  }

  static float *row_of(const Tensor &hyper, int64_t group) {
    if (group < 0 || (group + 1) * OCTAVO_HYPER_COUNT > hyper.numel())
      raise(OCTAVO_INVALID, "hyper: expected a row for group " + std::to_string(group) +
                                ", found " + std::to_string(hyper.numel()) + " values");
    return static_cast<float *>(hyper.mutable_data_ptr()) + group * OCTAVO_HYPER_COUNT;
  }

  const octavo_parameter_item *data() const { return items_.data(); }
  uint64_t count() const { return items_.size(); }

  uint64_t workspace_bytes(const Entry &e) const {
    uint64_t bytes = 0;
    check(optimizer(e)->workspace_bytes(e.session, ids_.data(), ids_.size(), &bytes),
          "workspace_bytes of octavo.optimizer/1");
    return bytes;
  }

 private:
  static void *address(const Entry &e, const Native &native, const Tensors &from, size_t at,
                       int64_t id) {
    const bool is_weight = native.role == OCTAVO_ROLE_WEIGHT;
    const std::string what =
        e.name(OCTAVO_OWNER_PARAMETER, id) + (is_weight ? "" : ", its gradient");
    if (at >= from.size()) raise(OCTAVO_INVALID, what + ": expected torch's tensor, found none");
    const View t = from[at];
    check_dense(e, t, what.c_str());
    if (t.dtype() != native.dtype || t.numel() != native.elements)
      raise(OCTAVO_INVALID,
            what + ": expected " + std::to_string(native.elements) +
                " elements of the dtype that it had at octavo.prepare, found " +
                std::to_string(t.numel()) +
                " or another dtype; was the model moved or cast after octavo.prepare?");
    return native.is_written ? t.mutable_data() : const_cast<void *>(t.data());
  }

  std::deque<Pointers> lists_;  // stay where they are
  std::vector<octavo_parameter_item> items_;
  std::vector<uint32_t> ids_;
};

const float *floats(const Entry &e, const optional<Tensor> &t, const char *name) {
  if (!t) return nullptr;
  check_floats(e, *t, 1, name);
  return static_cast<const float *>(t->const_data_ptr());
}

float *mutable_floats(const Entry &e, const optional<Tensor> &t, const char *name) {
  return const_cast<float *>(floats(e, t, name));
}

void optimizer_step(int64_t run, const Ids &parameters, const Ids &groups, const Tensor &hyper,
                    const optional<Tensor> &skip, const Tensors &weights,
                    const Tensors &gradients) {
  const auto e = find(run);
  if (groups.size() != parameters.size())
    raise(OCTAVO_INVALID, "optimizer_step: groups: expected one for each parameter");
  check_floats(*e, hyper, 0, "optimizer_step: hyper");
  const Items items(*e, OCTAVO_VERB_OPTIMIZER_STEP, parameters, weights, gradients, &hyper,
                    &groups);
  Workspace workspace(*e, items.workspace_bytes(*e));
  octavo_optimizer_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_OPTIMIZER_CALL;
  call.items = items.data();
  call.count = items.count();
  call.skip = floats(*e, skip, "optimizer_step: skip");
  call.workspace = workspace.data();
  check(optimizer(*e)->optimizer_step(e->session, &call), "optimizer_step");
  e->calls[OCTAVO_VERB_OPTIMIZER_STEP].fetch_add(1, std::memory_order_relaxed);
}

void sum_of_squares(int64_t run, const Ids &parameters, const Tensor &sum, const Tensors &weights,
                    const Tensors &gradients) {
  const auto e = find(run);
  check_floats(*e, sum, 1, "sum_of_squares: sum");
  const Items items(*e, OCTAVO_VERB_OPTIMIZER_STEP, parameters, weights, gradients);
  Workspace workspace(*e, items.workspace_bytes(*e));
  octavo_norm_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_NORM_CALL;
  call.items = items.data();
  call.count = items.count();
  call.sum = static_cast<float *>(sum.mutable_data_ptr());
  call.workspace = workspace.data();
  check(optimizer(*e)->sum_of_squares(e->session, &call), "sum_of_squares");
}

void prepare_step(int64_t run, const Tensor &sum, const optional<Tensor> &nonfinite,
                  const optional<Tensor> &norm, const optional<Tensor> &skip, const Tensor &hyper,
                  double factor, double max_norm) {
  const auto e = find(run);
  check_floats(*e, sum, 0, "prepare_step: sum");
  check_floats(*e, hyper, 0, "prepare_step: hyper");
  std::vector<float *> rows;
  const int64_t groups = hyper.numel() / OCTAVO_HYPER_COUNT;
  for (int64_t g = 0; g < groups; ++g) rows.push_back(Items::row_of(hyper, g));
  octavo_prepare_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_PREPARE_CALL;
  call.sum = static_cast<const float *>(sum.const_data_ptr());
  call.sum_count = static_cast<uint64_t>(sum.numel());
  call.nonfinite = floats(*e, nonfinite, "prepare_step: nonfinite");
  call.factor = static_cast<float>(factor);
  call.max_norm = static_cast<float>(max_norm);
  // At most 64 groups a call; norm and skip come out alike each time.
  for (size_t first = 0; first == 0 || first < rows.size(); first += 64) {
    call.norm = mutable_floats(*e, norm, "prepare_step: norm");
    call.skip = mutable_floats(*e, skip, "prepare_step: skip");
    call.hyper = rows.data() + first;
    call.count = std::min<size_t>(rows.size() - first, 64);
    check(optimizer(*e)->prepare_step(e->session, &call), "prepare_step");
  }
}

octavo_parameter_call parameter_call(int64_t parameter, int64_t role, octavo_tensor *plain) {
  octavo_parameter_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_PARAMETER_CALL;
  call.parameter = static_cast<uint32_t>(parameter);
  call.role = static_cast<uint32_t>(role);
  call.plain = plain;
  return call;
}

using ParameterVerb = octavo_status (*)(const octavo_session *, const octavo_parameter_call *);

// The values of one role of a parameter in slots; torch's own tensors are not its business.
void exchange(int64_t run, ParameterVerb octavo_optimizer::*verb, const char *name,
              int64_t parameter, int64_t role, const Tensor &plain) {
  const auto e = find(run);
  check_dense(*e, plain, "plain");
  Pointers pointers(list_of(*e, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter),
                    true);
  const auto id = static_cast<uint32_t>(parameter);
  uint64_t bytes = 0;
  check(optimizer(*e)->workspace_bytes(e->session, &id, 1, &bytes),
        "workspace_bytes of octavo.optimizer/1");
  Workspace workspace(*e, bytes);
  octavo_tensor m = matrix(plain, plain.dim() > 0 ? plain.size(plain.dim() - 1) : 1);
  octavo_parameter_call call = parameter_call(parameter, role, &m);
  call.slots = pointers.data();
  call.workspace = workspace.data();
  check((optimizer(*e)->*verb)(e->session, &call), name, *e, OCTAVO_OWNER_PARAMETER, parameter);
}

void read_parameter(int64_t run, int64_t parameter, int64_t role, const Tensor &plain) {
  exchange(run, &octavo_optimizer::read_parameter, "read_parameter", parameter, role, plain);
}

void write_parameter(int64_t run, int64_t parameter, int64_t role, const Tensor &plain) {
  exchange(run, &octavo_optimizer::write_parameter, "write_parameter", parameter, role, plain);
}

// Throws unless the buffers of a bucket have the lengths of plan_reduction.
void check_buffers(const Entry &e, const Ids &parameters, int64_t world, const Tensor &recv,
                   const Tensor &send, const Tensor &state) {
  const std::vector<uint32_t> ids(parameters.begin(), parameters.end());
  struct Longest {
    uint64_t send = 0, recv = 0;
  } longest;
  octavo_gradient_plan plan = {};
  plan.size = sizeof plan;
  plan.kind = OCTAVO_KIND_GRADIENT_PLAN;
  plan.world = static_cast<uint32_t>(world);
  plan.parameters = ids.data();
  plan.count = ids.size();
  plan.ctx = &longest;
  plan.stage = [](void *ctx, const octavo_gradient_stage *s) -> octavo_status {
    auto *l = static_cast<Longest *>(ctx);
    const uint64_t bytes = OCTAVO_DTYPE_BITS(s->dtype) / 8;
    l->send = std::max(l->send, s->send_count * bytes);
    l->recv = std::max(l->recv, s->recv_count * bytes);
    return OCTAVO_OK;
  };
  check(e.gradients->plan_reduction(e.session, &plan), "plan_reduction");
  const auto check_bytes = [&e](const Tensor &t, uint64_t expected, const char *name) {
    check_dense(e, t, name);
    const uint64_t found = static_cast<uint64_t>(t.numel() * t.element_size());
    if (found >= expected) return;
    raise(OCTAVO_INVALID, std::string("run_stage: ") + name + ": expected " +
                              std::to_string(expected) +
                              " bytes, which the longest stage of this "
                              "bucket has, found " +
                              std::to_string(found));
  };
  check_bytes(send, longest.send, "send");
  check_bytes(recv, longest.recv, "recv");
  check_bytes(state, plan.state_bytes, "state");
}

void run_stage(int64_t run, const Ids &parameters, int64_t stage, int64_t world, const Tensor &recv,
               const Tensor &send, const Tensor &state) {
  const auto e = find(run);
  if (e->gradients == nullptr)
    raise(OCTAVO_UNSUPPORTED, "run_stage: octavo.gradients/1: the backend has none");
  check_buffers(*e, parameters, world, recv, send, state);
  const Items items(*e, OCTAVO_VERB_REDUCE, parameters, {}, {});
  octavo_gradient_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_GRADIENT_CALL;
  call.stage = static_cast<uint32_t>(stage);
  call.world = static_cast<uint32_t>(world);
  call.items = items.data();
  call.count = items.count();
  call.recv = recv.const_data_ptr();
  call.send = send.mutable_data_ptr();
  call.state = state.mutable_data_ptr();
  check(e->gradients->run_stage(e->session, &call), "run_stage");
  e->calls[OCTAVO_VERB_REDUCE].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def("end_step(int run) -> ()");
  m.def(
      "optimizer_step(int run, int[] parameters, int[] groups, Tensor hyper, Tensor? skip, "
      "Tensor(a!)[] weights, Tensor[] gradients) -> ()");
  m.def(
      "sum_of_squares(int run, int[] parameters, Tensor(a!) sum, Tensor[] weights, Tensor[] "
      "gradients) -> ()");
  m.def(
      "prepare_step(int run, Tensor sum, Tensor? nonfinite, Tensor(a!)? norm, Tensor(b!)? skip, "
      "Tensor(c!) hyper, float factor, float max_norm) -> ()");
  m.def("read_parameter(int run, int parameter, int role, Tensor(a!) plain) -> ()");
  m.def("write_parameter(int run, int parameter, int role, Tensor plain) -> ()");
  m.def(
      "run_stage(int run, int[] parameters, int stage, int world, Tensor recv, Tensor(a!) send, "
      "Tensor(b!) state) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(octavo, CPU, m) {
  m.impl("optimizer_step", TORCH_BOX(&optimizer_step));
  m.impl("sum_of_squares", TORCH_BOX(&sum_of_squares));
  m.impl("prepare_step", TORCH_BOX(&prepare_step));
  m.impl("read_parameter", TORCH_BOX(&read_parameter));
  m.impl("write_parameter", TORCH_BOX(&write_parameter));
  m.impl("run_stage", TORCH_BOX(&run_stage));
}

// It has no tensor from which torch could take a device.
STABLE_TORCH_LIBRARY_IMPL(octavo, CompositeExplicitAutograd, m) {
  m.impl("end_step", TORCH_BOX(&end_step));
}

}  // namespace octavo::ops

// The verbs of a host, each checked for its status, its red zones and the rules of its kernels.
//
// A verb whose list holds no slot with access for it is left out, as the contract says; forward and
// backward have tensors of their own and are always called.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "host.h"
#include "in_flight.h"
#include "lent.h"
#include "report.h"

namespace octavo::conformance {
namespace {

bool accesses_anything(const std::vector<Entry> &entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const Entry &e) { return e.access != OCTAVO_ACCESS_NONE; });
}

// A list that ends where no memory follows, one for each thread.
class ListAtEnd {
 public:
  ListAtEnd() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void *memory = mmap(nullptr, (kPages + 1) * page_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure("the suite could not map the pages of a list");
    memory_ = static_cast<uint8_t *>(memory);
    end_ = memory_ + kPages * page_;
    mprotect(end_, page_, PROT_NONE);
  }
  ~ListAtEnd() { munmap(memory_, (kPages + 1) * page_); }
  ListAtEnd(const ListAtEnd &) = delete;
  ListAtEnd &operator=(const ListAtEnd &) = delete;

  // Valid until the next call.
  void *const *put(const std::vector<void *> &list) {
    const size_t bytes = list.size() * sizeof(void *);
    if (bytes > kPages * page_) return list.data();
    std::memcpy(end_ - bytes, list.data(), bytes);
    return reinterpret_cast<void *const *>(end_ - bytes);
  }

 private:
  static constexpr size_t kPages = 4;
  size_t page_;
  uint8_t *memory_, *end_;
};
thread_local ListAtEnd list_at_end;

constexpr uint32_t kUnknownFlag = 1U << 30;
uint32_t tail_of(const Call &call) {
  return call.later ? Longer<octavo_weight_call>::kTail : 0;
}

}  // namespace

void Host::run(uint32_t verb, const std::string &what, const std::function<octavo_status()> &call,
               const Batch *batch, octavo_status expected) {
  const std::string name = what.substr(0, what.find(" of "));
  if (batch == nullptr) {
    step(name);
    calling(what);
  } else {
    step(text(name, ", x ", dtype_name(batch->spec.x_dtype)));
    calling(what.substr(0, what.find(" M=")), batch->spec.rows, batch->spec.x_dtype,
            batch->spec.y_dtype);
  }
  session_.kernels().set_verb(verb);
  if (observer_ != nullptr) observer_->before(what);
  session_.kernels().set_arena(&arena_);
  const octavo_status status = call();
  session_.kernels().set_arena(nullptr);
  if (observer_ != nullptr) observer_->after(what);
  const std::string violation = session_.kernels().take_violation();
  expect(violation.empty(), what, ": ", violation);
  if (expected == kAnyFailure)
    expect(status != OCTAVO_OK, what, " answered OCTAVO_OK; expected that it fails");
  else
    expect(status == expected, what, " answered ", status_name(status), "; expected ",
           status_name(expected));
  if (!concurrent_) arena_.check_red_zones(what);
}

void Host::quantize_weight(uint32_t parameter, const Call &call) {
  const Parameter &p = session_.parameters()[parameter];
  if (p.linears.empty()) return;  // its workspace is stated by its linears
  const auto all = entries(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
  if (!accesses_anything(all)) return;
  const auto slots = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter, call);
  auto c = octavo::make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
  c.stream = kStream;
  c.parameter = parameter;
  c.flags = call.later ? kUnknownFlag : 0;
  c.slots = list_at_end.put(slots);
  c.workspace = weight_workspaces_[parameter];
  const Longer<octavo_weight_call> given(c, tail_of(call));
  run(
      OCTAVO_VERB_QUANTIZE_WEIGHT, text("quantize_weight of '", p.spec.name, "'"),
      [&] {
        const OnStream on;
        return session_.backend().quantize_weight(session_.handle(), &given.first);
      },
      nullptr, call.expected);
}

void Host::quantize_weights() {
  for (uint32_t id = 0; id < session_.parameters().size(); ++id) quantize_weight(id);
}

void Host::forward(Batch &batch, const Call &call) {
  const auto slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, batch.spec.linear, call);
  auto c = octavo::make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  c.stream = kStream;
  c.linear = batch.spec.linear;
  c.flags = (call.evaluates ? uint32_t{OCTAVO_FORWARD_EVALUATION} : 0u) |
            (call.later ? kUnknownFlag : 0u);
  c.x = &batch.x.tensor;
  c.y = &batch.y.tensor;
  c.bias = &batch.bias.tensor;
  c.slots = list_at_end.put(slots);
  c.saved = call.save ? batch.saved : nullptr;
  c.workspace = batch.forward_workspace;
  const Longer<octavo_forward_call> given(c, tail_of(call));
  run(
      OCTAVO_VERB_FORWARD, text("linear_forward of ", batch.name),
      [&] {
        const OnStream on;
        return session_.backend().linear_forward(session_.handle(), &given.first);
      },
      &batch, call.expected);
}

void Host::backward(Batch &batch, const Call &call) {
  const auto slots = list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, batch.spec.linear, call);
  const octavo_linear_plan &plan = session_.linears()[batch.spec.linear].plan;
  auto c = octavo::make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  c.stream = kStream;
  c.linear = batch.spec.linear;
  c.flags = call.flags | (call.later ? kUnknownFlag : 0u);
  c.dy = &batch.dy.tensor;
  c.x = (plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0 ? &batch.x.tensor : call.no_x;
  c.dx = call.want_dx ? &batch.dx.tensor : nullptr;
  c.dw = plan.gradient == OCTAVO_GRADIENT_TENSOR ? &batch.dw.tensor : nullptr;
  if (plan.gradient == OCTAVO_GRADIENT_NONE) c.dw = call.no_dw;
  c.db = call.want_db ? &batch.db.tensor : nullptr;
  c.slots = list_at_end.put(slots);
  c.saved = batch.saved;
  c.workspace = batch.backward_workspace;
  const Longer<octavo_backward_call> given(c, tail_of(call));
  run(
      OCTAVO_VERB_BACKWARD, text("linear_backward of ", batch.name),
      [&] {
        const OnStream on;
        return session_.backend().linear_backward(session_.handle(), &given.first);
      },
      &batch, call.expected);
}

void Host::end_step(const Call &call) {
  if (!accesses_anything(entries(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0))) return;
  const auto slots = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0, {});
  auto c = octavo::make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  c.stream = kStream;
  c.slots = list_at_end.put(slots);
  const Longer<octavo_step_call> given(c, tail_of(call));
  run(
      OCTAVO_VERB_END_STEP, "end_step",
      [&] {
        const OnStream on;
        return session_.backend().end_step(session_.handle(), &given.first);
      },
      nullptr, call.expected);
}

std::vector<octavo_parameter_item> Host::items(std::vector<std::vector<void *>> &lists) const {
  std::vector<octavo_parameter_item> items;
  for (uint32_t id = 0; id < session_.parameters().size(); ++id) {
    if ((session_.parameters()[id].spec.flags & OCTAVO_PARAMETER_FROZEN) != 0) continue;
    const auto all = entries(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id);
    if (!accesses_anything(all)) continue;
    lists.push_back(list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id, {}));
    items.push_back({id, 0, lists.back().data(), hyper_});  // moving a vector keeps its data
  }
  return items;
}

bool Host::has_optimizer() const {
  std::vector<std::vector<void *>> lists;
  return session_.optimizer() != nullptr && !items(lists).empty();
}

void Host::optimizer_step(const float *skip) {
  if (!has_optimizer()) return;
  std::vector<std::vector<void *>> lists;
  const auto all = items(lists);
  auto c = octavo::make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
  c.items = all.data();
  c.count = all.size();
  c.skip = skip;
  c.workspace = optimizer_workspace_;
  run(OCTAVO_VERB_OPTIMIZER_STEP, "optimizer_step",
      [&] { return session_.optimizer()->optimizer_step(session_.handle(), &c); });
}

void Host::parameter_call(bool write, uint32_t parameter, uint32_t role, Matrix &plain) {
  std::vector<void *> slots;
  for (const Entry &e : entries(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter)) {
    slots.push_back(e.address);
  }
  auto c = octavo::make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
  c.parameter = parameter;
  c.role = role;
  c.plain = &plain.tensor;
  c.slots = slots.data();
  c.workspace = optimizer_workspace_;
  const octavo_optimizer &o = *session_.optimizer();
  run(OCTAVO_VERB_OPTIMIZER_STEP,
      text(write ? "write" : "read", "_parameter of '", session_.parameters()[parameter].spec.name,
           "', role ", role),
      [&] { return (write ? o.write_parameter : o.read_parameter)(session_.handle(), &c); });
}

void Host::write_weight(uint32_t parameter) {
  for (const Slot &slot : session_.slots()) {
    const octavo_slot &desc = slot.desc;
    if (desc.owner_kind != OCTAVO_OWNER_PARAMETER || desc.owner != parameter) continue;
    if (desc.role != OCTAVO_ROLE_WEIGHT || (desc.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
    expect(session_.optimizer() != nullptr, "parameter '",
           session_.parameters()[parameter].spec.name,
           "' has a weight slot that is not native, so the backend must provide ",
           OCTAVO_OPTIMIZER_ID, " with write_parameter; it does not");
    parameter_call(true, parameter, OCTAVO_ROLE_WEIGHT, weights_[parameter]);
    return;
  }
}

std::vector<double> Host::gradient(uint32_t parameter) {
  for (const uint32_t linear : session_.parameters()[parameter].linears) {
    if (session_.linears()[linear].plan.gradient != OCTAVO_GRADIENT_SLOT) continue;
    parameter_call(false, parameter, OCTAVO_ROLE_GRADIENT, gradients_[parameter]);
    break;
  }
  return values_of(gradients_[parameter]);
}

void Host::clear_gradients() {
  for (Matrix &gradient : gradients_) fill_zero(gradient);
  for (uint32_t id = 0; id < session_.slots().size(); ++id) {
    if (session_.slots()[id].desc.role != OCTAVO_ROLE_GRADIENT) continue;
    std::memset(addresses_[id], 0, bytes(id));  // 0.0 in every dtype, whatever its scale
  }
  for (Batch &batch : batches_) fill_zero(batch.db);
}

void Host::train_step() {
  quantize_weights();
  for (Batch &batch : batches_) forward(batch);
  for (auto batch = batches_.rbegin(); batch != batches_.rend(); ++batch) backward(*batch);
  optimizer_step();
  end_step();
  clear_gradients();
}

}  // namespace octavo::conformance

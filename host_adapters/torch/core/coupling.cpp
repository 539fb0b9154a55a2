// The fast path is a few loads and compares; what it needs changes only under the lock.
#include "coupling.h"

#include <torch/csrc/stable/library.h>

#include <array>
#include <atomic>
#include <utility>

#include "arguments.h"
#include "entry.h"
#include "hash.h"
#include "shard.h"
#include "stream.h"

namespace octavo::core {
namespace {

// Counted up by every change in place that torch sees, through views and detached aliases, too;
// kNoVersion for a tensor of inference mode.
int64_t version_of(View weight) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(shared(weight).release())};
  if (torch_call_dispatcher("aten::_version", "", stack.data(), TORCH_ABI_VERSION) !=
      AOTI_TORCH_SUCCESS)
    return Coupling::kNoVersion;
  return torch::stable::detail::to<int64_t>(stack[0]);
}

// Another tensor over the same memory, which stays as long as this one.
Owned alias_of(View weight) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(shared(weight).release())};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::detach", "", stack.data(), TORCH_ABI_VERSION));
  return Owned(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
}

void quantize(const Entry &e, uint32_t parameter, View weight, bool is_gathered, bool records) {
  const List &list = list_of(e, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
  if (list.slots.empty()) return;
  check_held(e, parameter, list);
  Pointers pointers(e, list, records);
  const WeightMatrix matrix(e, parameter, list, weight, is_gathered, &pointers);
  Workspace workspace(e, e.weight_workspace[parameter]);
  auto call = call_of<octavo_weight_call>(e, OCTAVO_KIND_WEIGHT_CALL, Uses::kWrites);
  call.parameter = parameter;
  call.slots = pointers.data();
  call.workspace = workspace.data();
  check(e.backend->quantize_weight(e.session, &call), "quantize_weight", e, OCTAVO_OWNER_PARAMETER,
        parameter);
  e.calls[OCTAVO_VERB_QUANTIZE_WEIGHT].fetch_add(1, std::memory_order_relaxed);
}

void check_answer(int32_t answer, const char *what) {
  if (answer < kAnswer)
    raise(OCTAVO_INTERNAL, std::string(what) +
                               ": expected an answer of the host's function, found none: an "
                               "exception ended it before its first line");
  check(answer - kAnswer, what);
}

bool is_on_cpu(const Entry &e) {
  return e.device.type == aoti_torch_device_type_cpu();
}

void end_step(const Entry &e) {
  const List &list = list_of(e, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  if (!list.slots.empty()) {
    Pointers pointers(e, list, true);
    auto call = call_of<octavo_step_call>(e, OCTAVO_KIND_STEP_CALL, Uses::kWrites);
    call.slots = pointers.data();
    check(e.backend->end_step(e.session, &call), "end_step");
  }
  e.calls[OCTAVO_VERB_END_STEP].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void check_held(const Entry &e, uint32_t parameter, const List &list) {
  for (uint32_t i = 0; i < list.slots.size(); ++i) {
    if (e.address(list.slots[i]) != nullptr) continue;
    const octavo_slot_use *use = octavo_run_use(e.run, OCTAVO_OWNER_PARAMETER, parameter, i);
    if (octavo_run_slot(e.run, use->slot)->access[OCTAVO_VERB_QUANTIZE_WEIGHT] ==
        OCTAVO_ACCESS_WRITE)
      raise(OCTAVO_WRONG_STATE,
            e.name(OCTAVO_OWNER_PARAMETER, parameter) +
                ": expected memory for its codes, found none, as for a weight without memory "
                "(meta) or one that FSDP has not gathered; call model.to_empty(device=...), or run "
                "the module that fully_shard wrapped and leave set_unshard_in_backward on");
  }
}

uint8_t Coupling::get(const uint8_t &flag) {
  return std::atomic_ref<uint8_t>(const_cast<uint8_t &>(flag)).load(std::memory_order_acquire);
}

void Coupling::put(uint8_t &flag, uint8_t value) {
  std::atomic_ref<uint8_t>(flag).store(value, std::memory_order_release);
}

void Coupling::open(uint32_t parameters, SharedFlags flags, Callbacks callbacks) {
  parameters_ = parameters;
  flags_ = flags;
  callbacks_ = callbacks;
  codes_ = std::make_unique<Codes[]>(parameters);
}

void Coupling::settle(const Entry &e, const LinearShape &shape, View weight, int64_t version,
                      Forward forward) {
  const uint32_t p = shape.parameter;
  const void *data = weight && version != kGathered ? weight.data() : nullptr;
  if (weight && version == kAskTorch) version = version_of(weight);
  if (!weight && version != kPacked) version = 0;
  Codes &codes = codes_[p];
  if (is_captured(e.device)) put(flags_.since[kCaptured], 1);
  if (get(flags_.weights[p]) != 0 || get(flags_.since[kCaptured]) != 0 || version == kNoVersion ||
      codes.version.load(std::memory_order_acquire) != version ||
      codes.data.load(std::memory_order_relaxed) != data ||
      codes.evaluated.load(std::memory_order_relaxed) != forward.evaluates ||
      (forward.records && get(flags_.since[kMarked]) != 0)) {
    refresh(e, shape, weight, data, version, forward);
  } else if (weight && looks(version, forward.evaluates)) {
    sums_.store(true, std::memory_order_relaxed);
    looked_.store(true, std::memory_order_relaxed);
    const uint64_t before = codes.sum.load(std::memory_order_relaxed);
    if (before == 0 || before != checksum(weight)) {
      std::atomic_ref<uint8_t>(flags_.weights[p]).fetch_or(before == 0 ? kCodes : kCodes | kMoved);
      codes.again.store(true, std::memory_order_relaxed);
      refresh(e, shape, weight, data, version, forward);
    }
  }
  if (forward.records) put(flags_.since[kForward], 1);
}

bool Coupling::has_moved(uint32_t p, const void *data, int64_t version) const {
  const Codes &codes = codes_[p];
  return codes.version != kNever &&
         ((get(flags_.weights[p]) & kMoved) != 0 || codes.version != version || codes.data != data);
}

bool Coupling::is_due(uint32_t p, const void *data, int64_t version) {
  if (codes_[p].used.load(std::memory_order_relaxed) && get(flags_.since[kBackward]) &&
      has_moved(p, data, version))
    put(flags_.since[kMarked], 1);
  return get(flags_.since[kMarked]) != 0;
}

void Coupling::refresh(const Entry &e, const LinearShape &shape, View weight, const void *data,
                       int64_t version, Forward forward) {
  const uint32_t p = shape.parameter;
  uint8_t &stale = flags_.weights[p];
  Codes &codes = codes_[p];
  const Callbacks host = forward.asked ? Callbacks() : callbacks_;
  if ((get(stale) & kHost) && host.settle != nullptr)
    check_answer(host.settle(host.host, p), "a weight of the host");
  const bool ends = is_due(p, data, version) && forward.records;
  if (ends && host.combine != nullptr)
    check_answer(host.combine(host.host), "the maxima of the ranks");
  const std::lock_guard lock(mutex_);
  const bool is_first = codes.version == kNever;
  const bool moved = has_moved(p, data, version);
  if (ends && get(flags_.since[kMarked])) end(e);  // unless another call did meanwhile
  const bool flips = codes.evaluated != forward.evaluates;
  if (is_first || moved || flips || version == kNoVersion || (get(stale) & kCodes) ||
      get(flags_.since[kCaptured])) {
    if ((moved || flips) && codes.used.load(std::memory_order_relaxed))
      codes.again.store(true, std::memory_order_relaxed);
    take(e, p, weight, version, forward.evaluates);
    std::atomic_ref<uint8_t>(stale).fetch_and(kHost);
  }
  codes.used.store(true, std::memory_order_relaxed);
}

void Coupling::take(const Entry &e, uint32_t p, View weight, int64_t version, bool evaluates) {
  write_codes(e, p, weight, version, !evaluates);
  Codes &codes = codes_[p];
  // Nothing trusts these codes any more, and a graph's own memory must end with it.
  const bool holds = weight && version != kGathered && !get(flags_.since[kCaptured]);
  const bool sums =
      holds && sums_.load(std::memory_order_relaxed) && looks(version, evaluates) && is_on_cpu(e);
  codes.held = holds ? alias_of(weight) : Owned();
  codes.evaluated.store(evaluates, std::memory_order_relaxed);
  codes.data.store(weight && version != kGathered ? weight.data() : nullptr,
                   std::memory_order_relaxed);
  codes.sum.store(sums ? checksum(weight) : 0, std::memory_order_relaxed);
  codes.version.store(version, std::memory_order_release);
}

void Coupling::settle_backward(const Entry &e, uint32_t parameter, View weight) {
  Codes &codes = codes_[parameter];
  const bool same = codes.data.load(std::memory_order_relaxed) == weight.data();
  if (same && !codes.again.load(std::memory_order_relaxed)) return;
  if (get(flags_.since[kCaptured])) return;  // each forward of a graph has quantized
  const std::lock_guard lock(mutex_);
  const uint64_t sum = codes.sum.load(std::memory_order_relaxed);
  if (same && sum != 0 && sum == checksum(weight)) return;
  take(e, parameter, weight, version_of(weight), codes.evaluated.load(std::memory_order_relaxed));
}

void Coupling::settle_gathered(const Entry &e, uint32_t parameter, View weight) {
  uint8_t &stale = flags_.weights[parameter];
  if (!(get(stale) & kCodes)) return;
  const std::lock_guard lock(mutex_);
  write_codes(e, parameter, weight, weight ? kGathered : kPacked, true);
  std::atomic_ref<uint8_t>(stale).fetch_and(static_cast<uint8_t>(~kCodes));
}

void Coupling::write_codes(const Entry &e, uint32_t parameter, View weight, int64_t version,
                           bool records) {
  if (version == kPacked)
    shard_place(e, parameter, codes_[parameter].packets, codes_[parameter].amax, records);
  else
    quantize(e, parameter, weight, version == kGathered, records);
}

void Coupling::gathered(uint32_t parameter, Owned packets, Owned amax) {
  const std::lock_guard lock(mutex_);
  codes_[parameter].packets = std::move(packets);
  codes_[parameter].amax = std::move(amax);
  std::atomic_ref<uint8_t>(flags_.weights[parameter]).fetch_or(kCodes);
}

void Coupling::added_to_gradient(const Entry &e, uint32_t parameter) {
  const uint8_t bits = is_captured(e.device) ? kAdded | kReplays : kAdded;
  std::atomic_ref<uint8_t>(flags_.gradients[parameter]).fetch_or(bits);
}

void Coupling::end(const Entry &e) {
  end_step(e);
  forget();
}

void Coupling::forget() {
  sums_.store(looked_.exchange(false, std::memory_order_relaxed), std::memory_order_relaxed);
  for (uint32_t p = 0; p < parameters_; ++p) {
    codes_[p].used.store(false, std::memory_order_relaxed);
    codes_[p].again.store(false, std::memory_order_relaxed);
    codes_[p].packets = Owned();
    std::atomic_ref<uint8_t>(flags_.weights[p]).fetch_or(kCodes);
  }
  for (const Since s : {kForward, kBackward, kMarked}) put(flags_.since[s], 0);
}

}  // namespace octavo::core

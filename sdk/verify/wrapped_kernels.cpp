// The forwarding functions of the wrapped table.
//
// Sessions get this object as kernels_ctx. Describing and opening devices is not a backend's
// business, so those functions answer OCTAVO_UNSUPPORTED.
#include "wrapped_kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "heap.h"
#include "kernel_outputs.h"
#include "matrix.h"
#include "page_lock.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// Counts down to a failure; negative: none is planned.
bool is_due(std::atomic<int64_t> &until) {
  return until.load() >= 0 && until.fetch_sub(1) == 0;
}

bool is_fp8(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}

class Opened {
 public:
  explicit Opened(Fence *fence) : fence_(fence) {
    if (fence_ != nullptr) fence_->enter();
  }
  ~Opened() {
    if (fence_ != nullptr) fence_->leave();
  }
  Opened(const Opened &) = delete;
  Opened &operator=(const Opened &) = delete;

 private:
  Fence *fence_;
};

// The other thread's turn before and after a kernel.
class Turn {
 public:
  explicit Turn(Turns *turns) : turns_(turns) {
    if (turns_ != nullptr) turns_->pass();
  }
  ~Turn() {
    if (turns_ != nullptr) turns_->pass();
  }
  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;

 private:
  Turns *turns_;
};

template <typename Call>
constexpr bool has_workspace = requires(const Call *call) {
  call->workspace;
};

thread_local void *stream_of_verb = nullptr;

// The function of the table that a backend called and must not; some have no ctx.
std::atomic<const char *> called_by_backend{nullptr};

octavo_status describe(void *, octavo_kernels_caps *) {
  called_by_backend = "describe";
  return OCTAVO_UNSUPPORTED;
}
octavo_status probe_device(octavo_device, const octavo_verdict_sink *) {
  called_by_backend = "probe_device";
  return OCTAVO_UNSUPPORTED;
}
octavo_status open_device(octavo_device, const octavo_host *, void **) {
  called_by_backend = "open_device";
  return OCTAVO_UNSUPPORTED;
}
void close_device(void *) {
  called_by_backend = "close_device";
}

// What quantize_stats measured in the verb under way.
using Measured = std::tuple<const void *, const void *, const void *, uint32_t, const float *,
                            const float *, const float *, const float *>;
thread_local std::vector<Measured> measured;

// What every call of kernels begins with.
struct CallHead {
  uint32_t size, kind;
  void *stream;
};
constexpr uint32_t kMostOfCall = 4096;

uint32_t granularity_of(const octavo_scale *scale) {
  return scale == nullptr ? 0 : scale->granularity;
}

// What `ability` asks about a call; of one of octavo/draft its kind alone.
template <typename Call>
Lacking question_of(const Call &c) {
  return {c.kind, false, 0, 0, 0, 0};
}
Lacking question_of(const octavo_quantize &c) {
  const octavo_tensor *codes = c.out != nullptr ? c.out : c.out_t;
  const octavo_scale *scale = c.out_scale_inv != nullptr ? c.out_scale_inv : c.out_t_scale_inv;
  return {c.kind, false, codes == nullptr ? 0 : codes->dtype, granularity_of(scale), 0, 0};
}
Lacking question_of(const octavo_quantize_stats &c) {
  return {c.kind, false, c.codes->dtype, granularity_of(c.scale_inv), 0, 0};
}
Lacking question_of(const octavo_dequantize &c) {
  return {c.kind, false, c.in->dtype, granularity_of(c.scale_inv), 0, 0};
}
Lacking question_of(const octavo_compute_amax &c) {
  return {c.kind, false, c.in->dtype, granularity_of(c.in_scale_inv), 0, 0};
}
Lacking question_of(const octavo_sum &c) {
  return {c.kind, false, c.in->dtype, granularity_of(c.in_scale_inv), 0, 0};
}
Lacking question_of(const octavo_gemm &c) {
  return {c.kind,     false,
          c.a->dtype, granularity_of(c.a_scale_inv),
          c.b->dtype, granularity_of(c.b_scale_inv)};
}

bool declines(const Lacking &lacking, const Lacking &call) {
  return lacking.call != 0 && (lacking == call || (lacking.is_whole && lacking.call == call.call));
}

}  // namespace

template <auto member, typename Table, typename Call>
octavo_status WrappedKernels::run(void *ctx, const Call *call) {
  const HeapPause pause;
  auto &self = *static_cast<WrappedKernels *>(ctx);
  self.observe(*call);
  if constexpr (has_workspace<Call>) self.observe_workspace(call, call->workspace);
  self.observe_stream(call->stream);
  if (!self.may_make(question_of(*call))) return OCTAVO_UNSUPPORTED;
  if (const Outputs *outputs = self.outputs_.load(); outputs != nullptr)
    visit_outputs(*call, *outputs);
  if (self.fails_now()) return OCTAVO_NO_RESOURCE;
  Call own;
  OCTAVO_TAKE(own, call);
  own.stream = nullptr;
  const Turn turn(self.turns_.load());
  const Opened opened(self.fence_.load());
  const octavo_status status =
      (self.real_tables_.get<Table>()->*member)(self.real_.kernels_ctx, &own);
  const int error = wait_for(self.real_.device);  // memory is compared when a verb returns
  if (error == 0) return status;
  self.report(text("the device failed in a kernel: cuCtxSynchronize answered error ", error));
  return OCTAVO_FAILED_DEVICE;
}

WrappedKernels::WrappedKernels(const octavo_session_desc &desc, uint64_t alignment, Lacking lacking)
    : lacking_(lacking) {
  std::memcpy(&real_, &desc, std::min<size_t>(desc.size, sizeof real_));
  std::memcpy(&caps_, desc.caps, std::min<size_t>(desc.caps->size, sizeof caps_));
  caps_.size = sizeof caps_;
  caps_.alignment = alignment;
  table_.size = sizeof table_;
  table_.kind = OCTAVO_KIND_KERNELS;
  table_.probe_device = probe_device;
  table_.open_device = open_device;
  table_.close_device = close_device;
  table_.describe = describe;
  table_.ability = ability;
  table_.workspace_bytes = workspace_bytes;
  table_.get_extension = get_extension;
  each_call<octavo_kernels>(
      [this](auto call) { table_.*decltype(call)::member = forwarding(call); });
  real_tables_ = KernelsTables(real_.kernels, real_.kernels_ctx);
  drafts_ = DraftCopies([](auto call) { return forwarding(call); });
}

const void *WrappedKernels::get_extension(void *ctx, octavo_str id) {
  auto &self = *static_cast<WrappedKernels *>(ctx);
  const void *known = self.drafts_.find(self.real_tables_, id);
  return known != nullptr ? known : self.foreign_table(id);
}

// As run(), of a call of which nothing is known.
template <size_t at>
octavo_status WrappedKernels::run_foreign(void *ctx, const void *call) {
  const HeapPause pause;
  auto &self = *static_cast<WrappedKernels *>(ctx);
  const ForeignTable &table = self.foreign_[at / kForeignCalls];
  self.is_foreign_[self.verb_.load()] = true;
  if (self.fails_now()) return OCTAVO_NO_RESOURCE;
  const Turn turn(self.turns_.load());
  const Opened opened(self.fence_.load());
  alignas(CallHead) uint8_t own[kMostOfCall];
  const auto *head = static_cast<const CallHead *>(call);
  if (head->size >= sizeof(CallHead) && head->size <= sizeof own && head->stream == kStream) {
    std::memcpy(own, call, head->size);
    reinterpret_cast<CallHead *>(own)->stream = nullptr;
    call = own;
  }
  const octavo_status status = table.real_calls[at % kForeignCalls](self.real_.kernels_ctx, call);
  const int error = wait_for(self.real_.device);
  if (error == 0) return status;
  self.report(text("the device failed in a kernel: cuCtxSynchronize answered error ", error));
  return OCTAVO_FAILED_DEVICE;
}

template <size_t... at>
const WrappedKernels::ForeignCall *WrappedKernels::foreign_calls(std::index_sequence<at...>) {
  static constexpr ForeignCall kCalls[] = {run_foreign<at>...};
  return kCalls;
}

// Null where the device has none of this id, or more and larger ones than the suite has room for.
const void *WrappedKernels::foreign_table(octavo_str id) {
  const void *real = real_.kernels->get_extension(real_.kernels_ctx, id);
  constexpr uint32_t kHead = 2 * sizeof(uint32_t);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; real != nullptr && i < kForeignTables; ++i) {
    ForeignTable &table = foreign_[i];
    if (table.real == real) return &table.size;
    if (table.real != nullptr) continue;
    std::memcpy(&table.size, real, kHead);
    if (table.size < kHead || table.size > kHead + sizeof table.calls) return nullptr;
    std::memcpy(table.real_calls, static_cast<const uint8_t *>(real) + kHead, table.size - kHead);
    const ForeignCall *ours =
        foreign_calls(std::make_index_sequence<kForeignTables * kForeignCalls>());
    for (uint32_t call = 0; call < kForeignCalls; ++call)
      if (table.real_calls[call] != nullptr) table.calls[call] = ours[i * kForeignCalls + call];
    table.real = real;
    return &table.size;
  }
  return nullptr;
}

uint64_t WrappedKernels::quantized(uint32_t verb) const {
  uint64_t known = 0, read = 0;
  for (const auto &formats : quantized_) known |= formats.load();
  for (const auto &formats : multiplied_) read |= formats.load();
  const uint64_t all = quantized_[verb].load();
  if (!is_foreign_[verb].load()) return all | (multiplied_[verb].load() & ~known);
  return all | (read != 0 ? read & ~known : dtype_bit(OCTAVO_E2M1));
}

octavo_session_desc WrappedKernels::desc() const {
  octavo_session_desc desc = real_;
  desc.size = sizeof desc;
  desc.kernels = &table_;
  desc.caps = &caps_;
  desc.kernels_ctx = const_cast<WrappedKernels *>(this);
  return desc;
}

std::string WrappedKernels::take_violation() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const char *name = called_by_backend.exchange(nullptr); name != nullptr)
    return text("called ", name, " of the kernels; expected none of describe, probe_device, ",
                "open_device and close_device, which are the host's");
  return std::exchange(violation_, std::string());
}

void WrappedKernels::expect_setup(const std::string &what, uint64_t before) {
  const std::string violation = take_violation();
  expect(violation.empty(), what, ": ", violation);
  expect(calls() == before, what, " made ", calls() - before,
         " calls of kernels; expected questions only, of ability and workspace_bytes: a session's "
         "memory is handed over in verbs that run");
}

void WrappedKernels::report(const std::string &violation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (violation_.empty()) violation_ = violation;
}

octavo_status WrappedKernels::ability(void *ctx, octavo_ability *question) {
  auto &self = *static_cast<WrappedKernels *>(ctx);
  if (stream_of_verb != nullptr)
    self.report("`ability` was called; expected it in setup verbs only");
  const octavo_status status = self.real_.kernels->ability(self.real_.kernels_ctx, question);
  const Lacking asked = {question->call,    false,
                         question->dtype,   question->granularity,
                         question->b_dtype, question->b_granularity};
  if (status != OCTAVO_OK || !declines(self.lacking_, asked)) return status;
  question->decision = OCTAVO_DECLINE;
  question->evidence = OCTAVO_STR("left out by octavo plugin verify");
  return status;
}

bool WrappedKernels::may_make(const Lacking &call) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    made_.insert(call);
  }
  if (!declines(lacking_, call)) return true;
  report(text("a call of kind ", call.call, call.dtype == 0 ? "" : " of " + dtype_name(call.dtype),
              call.b_dtype == 0 ? "" : " by " + dtype_name(call.b_dtype),
              " was made, which `ability` declines; expected check_session, add_parameter or "
              "add_linear to decline, or a flag of the plan"));
  return false;
}

WrappedKernels::Made WrappedKernels::made() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return made_;
}

bool WrappedKernels::executes(uint32_t call, uint32_t dtype) const {
  auto question = octavo::make<octavo_ability>(OCTAVO_KIND_ABILITY);
  question.call = call;
  question.dtype = dtype;
  return real_.kernels->ability(real_.kernels_ctx, &question) == OCTAVO_OK &&
         question.decision != OCTAVO_DECLINE;
}

octavo_status WrappedKernels::workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  auto &self = *static_cast<WrappedKernels *>(ctx);
  if (stream_of_verb != nullptr)
    self.report("workspace_bytes was called; expected it in setup verbs only");
  ++self.sizes_;
  if (is_due(self.until_no_size_)) return OCTAVO_NO_RESOURCE;
  return self.real_.kernels->workspace_bytes(self.real_.kernels_ctx, call, bytes);
}

OnStream::OnStream() {
  measured.clear();
  stream_of_verb = kStream;
}
OnStream::~OnStream() {
  stream_of_verb = nullptr;
}

bool WrappedKernels::fails_now() {
  ++calls_;
  return is_due(until_failure_);
}

void WrappedKernels::observe_stream(const void *stream) {
  if (stream == stream_of_verb) return;
  report(text("a kernel was called on the stream ", stream, "; expected the verb's, ",
              static_cast<const void *>(stream_of_verb)));
}

void WrappedKernels::observe_workspace(const void *call, const void *workspace) {
  const Arena *arena = arena_.load();
  if (arena == nullptr || workspace == nullptr) return;
  uint64_t bytes = 0;
  if (real_.kernels->workspace_bytes(real_.kernels_ctx, call, &bytes) != OCTAVO_OK) return;
  const uint64_t room = arena->room_at(workspace);
  if (room >= bytes) return;
  report(text("a kernel asks for ", bytes, " bytes of workspace and gets ", room, ", at ",
              arena->describe(arena->offset(workspace))));
}

void WrappedKernels::observe(const octavo_quantize &call) {
  const uint32_t verb = verb_.load();
  if (call.out != nullptr) quantized_[verb] |= dtype_bit(call.out->dtype);
  if (call.out_t != nullptr) quantized_[verb] |= dtype_bit(call.out_t->dtype);
}

void WrappedKernels::observe(const octavo_quantize_stats &call) {
  if (stream_of_verb == nullptr || call.in->rows == 0 || call.in->cols == 0) return;
  const Measured now = {
      call.in->data,  call.codes->data, call.scale_inv->data, call.scale_inv->granularity,
      call.saturated, call.underflow,   call.signal,          call.noise};
  if (std::find(measured.begin(), measured.end(), now) != measured.end())
    report("quantize_stats measured one cast twice in a call, so the sums count it twice");
  measured.push_back(now);
}

void WrappedKernels::observe(const octavo_delayed_scale_update &call) {
  margin_ = std::max(margin_.load(), call.margin);
}

void WrappedKernels::observe(const octavo_gemm &call) {
  const octavo_tensor &a = *call.a;
  const octavo_tensor &b = *call.b;
  for (const octavo_tensor *t : {&a, &b})
    if (is_fp8(t->dtype) || t->dtype == OCTAVO_E2M1)
      multiplied_[verb_.load()] |= dtype_bit(t->dtype);
  if (!is_fp8(a.dtype) && !is_fp8(b.dtype)) return;
  const auto off = [&](int64_t size) { return static_cast<uint64_t>(size) % caps_.alignment != 0; };
  if (off(a.rows) || off(a.cols) || off(b.rows) || off(b.cols)) {
    report(text("an FP8 gemm of M=", a.rows, " N=", b.rows, " K=", a.cols,
                " ran on kernels whose caps say alignment ", caps_.alignment,
                ": every size must be a multiple of it"));
  }
  if ((is_fp8(a.dtype) && call.a_scale_inv == nullptr) ||
      (is_fp8(b.dtype) && call.b_scale_inv == nullptr)) {
    report("an FP8 gemm got codes without their scale_inv");
  }
}

}  // namespace octavo::conformance

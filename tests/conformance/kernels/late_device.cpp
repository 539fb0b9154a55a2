// The queue of each stream, and copies of what calls point to.
#include "late_device.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/check/verbs.h"
#include "kernels/cpu/context.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/hpp/text.hpp"

namespace octavo::test {
namespace late {
namespace {

using Work = std::function<void()>;
struct Stream;
struct Graph {
  std::vector<Work> work;
  bool is_valid = true;
};
// Work, or the wait for the first `count` pieces of another stream.
struct Item {
  Work run;
  Stream *before;
  uint64_t count;
};
struct Stream {
  std::deque<Item> items;
  uint64_t pushed = 0, done = 0;
  std::unique_ptr<Graph> capture;
};

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
Stream default_stream;
std::set<Stream *> others;
bool is_backwards = false;
thread_local int32_t current = 0;

Stream &stream_of(void *stream) {
  return stream == nullptr ? default_stream : *static_cast<Stream *>(stream);
}
void run_until(Stream &s, uint64_t count) {
  if (is_backwards && &s == &default_stream) std::reverse(s.items.begin(), s.items.end());
  while (s.done < count && !s.items.empty()) {
    const Item item = s.items.front();
    s.items.pop_front();
    if (item.before != nullptr)
      run_until(*item.before, item.count);
    else
      item.run();
    ++s.done;
  }
}
// A capture does not survive what waits or allocates.
octavo_status forbidden_in_capture(void *ctx, const char *what) {
  octavo_status status = OCTAVO_OK;
  const auto look = [&](Stream &s) {
    if (s.capture == nullptr) return;
    s.capture->is_valid = false;
    status = report_error(context_of(ctx).caller(), OCTAVO_INVALID, "%s while a stream is captured",
                          what);
  };
  look(default_stream);
  for (Stream *s : others) look(*s);
  return status;
}

// What a call points to, as a device has to keep it.
struct Kept {
  std::vector<std::shared_ptr<void>> all;

  template <typename T>
  std::remove_const_t<T> *keep(T *&p, uint64_t count = 1) {
    if (p == nullptr) return nullptr;
    auto own = std::make_shared<std::vector<std::remove_const_t<T>>>(p, p + count);
    all.push_back(own);
    p = own->data();
    return own->data();
  }

  void of(octavo_quantize &c) {
    keep(c.in), keep(c.out), keep(c.out_t), keep(c.out_scale_inv), keep(c.out_t_scale_inv);
  }
  void of(octavo_dequantize &c) { keep(c.in), keep(c.scale_inv), keep(c.out); }
  void of(octavo_compute_amax &c) { keep(c.in), keep(c.in_scale_inv); }
  void of(octavo_gemm &c) {
    keep(c.a), keep(c.b), keep(c.d), keep(c.bias), keep(c.a_scale_inv), keep(c.b_scale_inv);
  }
  void of(octavo_sum &c) { keep(c.in), keep(c.in_scale_inv); }
  void of(octavo_quantize_stats &c) { keep(c.in), keep(c.codes), keep(c.scale_inv); }
  void of(octavo_prologue_call &c) {
    octavo_prologue &p = *keep(c.prologue);
    keep(p.in), keep(p.gamma), keep(p.beta), keep(c.out);
    if (octavo_quantize *q = keep(c.quantize)) of(*q);
  }
  void of(octavo_pack &c) { keep(c.in), keep(c.out); }
  void of(octavo_adam_step &c) { keep(c.items, c.count); }
  void of(octavo_adam_rounded &c) {
    octavo_adam_step &step = *keep(c.step);
    of(step), keep(c.keys, step.count);
  }
  void of(octavo_adam_one_pass &c) {
    octavo_adam_rounded &rounded = *keep(c.rounded);
    of(rounded), keep(c.amax, rounded.step->count);
  }
  void of(octavo_gradient_scale &c) { keep(c.grad_scale, c.count); }
  void of(octavo_round_codes &c) { keep(c.in), keep(c.codes), keep(c.scale_inv); }
  void of(octavo_quantize_fp4 &c) { of(*keep(c.quantize)); }
  template <typename Call>
  void of(Call &) {}
};

template <typename Check, typename Call>
octavo_status ask(Check check, void *ctx, const Call *c) {
  const Context &context = context_of(ctx);
  if constexpr (std::is_invocable_v<Check, Caller, const Call *, DeviceLimits>)
    return check(context.caller(), c, limits_of(context));
  else
    return check(context.caller(), c);
}
// What the CPU's function would answer, before it computes.
template <typename Of, typename Call>
octavo_status refusal(void *ctx, const Call *c) {
  constexpr std::string_view kName = Of::name;
#define ASK(verb) \
  if constexpr (kName == #verb) return ask(check_##verb, ctx, c)
  ASK(quantize);
  ASK(dequantize);
  ASK(compute_amax);
  ASK(scale_from_amax);
  ASK(delayed_scale_update);
  ASK(gemm);
  ASK(sum_rows);
  ASK(copy);
  ASK(quantize_stats);
  ASK(prologue);
  ASK(prologue_quantize);
  ASK(pack);
  ASK(adam_step);
  ASK(gradient_scale);
  ASK(sum_of_squares);
  ASK(sum_quantized);
  ASK(scale_values);
  ASK(prescale_update);
  ASK(adam_rounded);
  ASK(round_codes);
  ASK(count);
  ASK(adam_one_pass);
  ASK(quantize_fp4);
#undef ASK
}

template <typename Of, typename Table, typename Call>
octavo_status queued(void *ctx, const Call *c) {
  const octavo_status status = refusal<Of>(ctx, c);
  if (status != OCTAVO_OK) return status;
  auto own = std::make_shared<std::pair<Kept, Call>>(Kept{}, *c);
  own->first.of(own->second);
  push(c->stream, [=] {
    static const KernelsTables tables(&sound(), ctx);
    (tables.get<Table>()->*Of::member)(ctx, &own->second);
  });
  return OCTAVO_OK;
}
template <typename Of, typename Table, typename Call>
auto queued_as(octavo_status (*Table::*)(void *, const Call *)) {
  return queued<Of, Table, Call>;
}
struct Queued {
  template <typename Of>
  auto operator()(Of) const {
    return queued_as<Of>(Of::member);
  }
};

octavo_status make_stream(void *, void **out) {
  const Lock lock(mutex);
  *out = *others.insert(new Stream).first;
  return OCTAVO_OK;
}
void destroy_stream(void *, void *stream) {
  const Lock lock(mutex);
  others.erase(static_cast<Stream *>(stream));
  delete static_cast<Stream *>(stream);
}
octavo_status order(void *, void *stream, void *before) {
  const Lock lock(mutex);
  Stream &s = stream_of(stream), &first = stream_of(before);
  s.items.push_back({nullptr, &first, first.pushed});
  ++s.pushed;
  return OCTAVO_OK;
}
octavo_status wait(void *ctx, void *stream) {
  const Lock lock(mutex);
  const octavo_status status = forbidden_in_capture(ctx, "wait");
  if (status == OCTAVO_OK) run_until(stream_of(stream), stream_of(stream).pushed);
  return status;
}
octavo_status call_host(void *, void *stream, void (*run)(void *), void *arg) {
  push(stream, [=] { run(arg); });
  return OCTAVO_OK;
}
octavo_status begin_capture(void *, void *stream) {
  const Lock lock(mutex);
  stream_of(stream).capture = std::make_unique<Graph>();
  return OCTAVO_OK;
}
octavo_status end_capture(void *ctx, void *stream, void **graph) {
  const Lock lock(mutex);
  *graph = nullptr;
  const std::unique_ptr<Graph> held = std::move(stream_of(stream).capture);
  if (held == nullptr || !held->is_valid)
    return report_error(context_of(ctx).caller(), OCTAVO_INVALID,
                        "end_capture: a call did what a capture forbids");
  *graph = new Graph(*held);
  return OCTAVO_OK;
}
octavo_status launch(void *, void *graph, void *stream) {
  for (const Work &work : static_cast<Graph *>(graph)->work) push(stream, work);
  return OCTAVO_OK;
}
void destroy_graph(void *, void *graph) {
  delete static_cast<Graph *>(graph);
}
octavo_status current_of_thread(void *, int32_t *index) {
  *index = current;
  return OCTAVO_OK;
}
octavo_status set_current_of_thread(void *, int32_t index) {
  if (index < OCTAVO_NO_CURRENT_DEVICE || index > 1) return OCTAVO_UNSUPPORTED;
  current = index;
  return OCTAVO_OK;
}

octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const octavo_status status = sound().describe(ctx, out);
  out->flags &= ~uint64_t{OCTAVO_CAPS_EXACT_GEMM};
  out->flags |= OCTAVO_CAPS_CAPTURE_SAFE;
  return status;
}
const void *get_extension(void *ctx, octavo_str id) {
  if (view(id) == OCTAVO_STREAMS_ID) return &offered_streams();
  static const DraftCopies drafts{Queued{}};
  static const KernelsTables real(&sound(), ctx);
  return drafts.find(real, id);
}

octavo_kernels kernels_here;
octavo_memory memory_here, memory_below;

octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  *out = nullptr;
  const octavo_status status = forbidden_in_capture(ctx, "allocate");
  return status == OCTAVO_OK ? memory_below.allocate(ctx, bytes, out) : status;
}
octavo_status copy(void *ctx, void *to, const void *from, uint64_t bytes) {
  const octavo_status status = forbidden_in_capture(ctx, "copy");
  if (status != OCTAVO_OK) return status;
  flush();
  return memory_below.copy(ctx, to, from, bytes);
}
octavo_status synchronize(void *ctx) {
  const octavo_status status = forbidden_in_capture(ctx, "synchronize");
  if (status == OCTAVO_OK) flush();
  return status;
}

}  // namespace

const octavo_kernels &kernels() {
  return kernels_here;
}
const octavo_memory &memory() {
  return memory_here;
}
const octavo_streams &streams() {
  static const octavo_streams table = {
      sizeof table,  OCTAVO_KIND_STREAMS, make_stream,          destroy_stream, order,
      wait,          call_host,           begin_capture,        end_capture,    launch,
      destroy_graph, current_of_thread,   set_current_of_thread};
  return table;
}
octavo_streams &offered_streams() {
  static octavo_streams table = streams();
  return table;
}

void push(void *stream, std::function<void()> work) {
  const Lock lock(mutex);
  Stream &s = stream_of(stream);
  if (s.capture != nullptr) {
    s.capture->work.push_back(std::move(work));
    return;
  }
  s.items.push_back({std::move(work), nullptr, 0});
  ++s.pushed;
}
bool is_capturing(void *stream) {
  const Lock lock(mutex);
  return stream_of(stream).capture != nullptr;
}
void run_backwards() {
  is_backwards = true;
}
int32_t current_device() {
  return current;
}
void set_current_device(int32_t index) {
  current = index;
}
void flush() {
  const Lock lock(mutex);
  run_until(default_stream, default_stream.pushed);
  for (Stream *s : others) run_until(*s, s->pushed);
}

}  // namespace late

void queue_work(octavo_kernels &kernels, octavo_memory &memory) {
  late::memory_below = memory;
  each_call<octavo_kernels>(
      [&](auto call) { kernels.*decltype(call)::member = late::Queued{}(call); });
  kernels.describe = late::describe;
  kernels.get_extension = late::get_extension;
  memory.allocate = late::allocate;
  memory.copy = late::copy;
  memory.synchronize = late::synchronize;
  late::kernels_here = kernels;
  late::memory_here = memory;
}

}  // namespace octavo::test

// The verbs as XLA FFI handlers, one symbol for each platform. Nothing here links Python or jaxlib:
// XLA passes its functions in each call.
#include <exception>

#include "call.h"
#include "octavo/draft/reduction.h"
#include "parallel.h"

namespace octavo::jax {
namespace {

struct Target {
  const Entry &run;
  int64_t object;
  int64_t count;  // of stacked objects
  void *stream;
};

void check(octavo_status status, const char *verb) {
  host().require(status, verb);
}

uint64_t extent(const octavo_extent &e, int64_t rows) {
  return octavo_extent_bytes(&e, static_cast<uint64_t>(rows));
}

template <typename Raw>
Raw call_of(const Target &t, uint32_t kind) {
  Raw call = make<Raw>(kind);
  call.stream = t.stream;
  return call;
}

// slots, record? -> slots, record?, workspace
void quantize(const Target &t, Call &c) {
  c.take(t.run.list(OCTAVO_VERB_QUANTIZE_WEIGHT, t.object));
  auto call = call_of<octavo_weight_call>(t, OCTAVO_KIND_WEIGHT_CALL);
  call.parameter = static_cast<uint32_t>(t.object);
  call.slots = c.pointers();
  call.workspace = c.bytes(t.run.weight_workspace[t.object], "workspace");
  c.end();
  check(t.run.backend->quantize_weight(t.run.session, &call), "quantize_weight");
}

// x, bias?, slots, record? -> y, saved?, slots, record?, workspace
void forward(const Target &t, Call &c) {
  const List &list = t.run.list(OCTAVO_VERB_FORWARD, t.object);
  const octavo_linear_plan &plan = t.run.plans[t.object];
  const int64_t n = t.run.n[t.object];
  const octavo_tensor x = Call::matrix(c.operand(), t.run.k[t.object], "x");
  octavo_tensor y = Call::matrix(c.result(), n, "y"), bias = {};
  if (y.rows != x.rows) refuse("y: expected as many rows as x");
  if (c.has(kBias)) bias = Call::matrix(c.operand(), n, "bias");
  auto call = call_of<octavo_forward_call>(t, OCTAVO_KIND_FORWARD_CALL);
  call.linear = static_cast<uint32_t>(t.object);
  call.flags = c.contract_flags();
  call.x = &x;
  call.y = &y;
  call.bias = c.has(kBias) ? &bias : nullptr;
  call.saved = c.has(kSave) ? c.bytes(extent(plan.saved, x.rows), "saved") : nullptr;
  c.take(list);
  call.slots = c.pointers();
  call.workspace = c.bytes(extent(plan.forward_workspace, x.rows), "workspace");
  c.end();
  check(t.run.backend->linear_forward(t.run.session, &call), "linear_forward");
}

// dy, x?, saved, db?, slots, record? -> dx?, dw?, db?, slots, record?, workspace. db is also an
// operand without OCTAVO_BACKWARD_OVERWRITE: what the backend adds to.
void backward(const Target &t, Call &c) {
  const List &list = t.run.list(OCTAVO_VERB_BACKWARD, t.object);
  const octavo_linear_plan &plan = t.run.plans[t.object];
  const int64_t n = t.run.n[t.object], k = t.run.k[t.object];
  const octavo_tensor dy = Call::matrix(c.operand(), n, "dy");
  octavo_tensor x = {}, dx = {}, dw = {}, db = {};
  if (plan.flags & OCTAVO_LINEAR_NEEDS_X) x = Call::matrix(c.operand(), k, "x");
  auto call = call_of<octavo_backward_call>(t, OCTAVO_KIND_BACKWARD_CALL);
  call.linear = static_cast<uint32_t>(t.object);
  call.flags = c.contract_flags();
  call.dy = &dy;
  call.x = plan.flags & OCTAVO_LINEAR_NEEDS_X ? &x : nullptr;
  call.saved = c.operand_bytes(extent(plan.saved, dy.rows), "saved");
  if (c.has(kDx)) dx = Call::matrix(c.result(), k, "dx"), call.dx = &dx;
  if (c.has(kDw)) dw = Call::matrix(c.result(), k, "dw"), call.dw = &dw;
  if (c.has(kDb)) {
    db = Call::matrix(c.result(), n, "db"), call.db = &db;
    if (!c.has(OCTAVO_BACKWARD_OVERWRITE)) c.same(c.operand(), db.data, "db");
  }
  if ((c.has(kDx) && dx.rows != dy.rows) || (c.has(kDw) && dw.rows != n) ||
      (call.x != nullptr && x.rows != dy.rows))
    refuse("dx, dw or x: expected the rows of dy, of the weight and of dy");
  c.take(list);
  call.slots = c.pointers();
  call.workspace = c.bytes(extent(plan.backward_workspace, dy.rows), "workspace");
  c.end();
  check(t.run.backend->linear_backward(t.run.session, &call), "linear_backward");
}

// slots -> slots
void end_step(const Target &t, Call &c) {
  c.take(t.run.list(OCTAVO_VERB_END_STEP, 0));
  auto call = call_of<octavo_step_call>(t, OCTAVO_KIND_STEP_CALL);
  call.slots = c.pointers();
  c.end();
  check(t.run.backend->end_step(t.run.session, &call), "end_step");
}

// The size is asked first: an error where the backend has no optimizer.
void *optimizer_workspace(const Target &t, Call &c) {
  return c.bytes(t.run.optimizer_bytes(t.object, t.count), "workspace");
}

// hyper, skip, slots -> slots, workspace. The slots of `count` parameters are stacked.
void optimizer_step(const Target &t, Call &c) {
  const List &list = t.run.list(OCTAVO_VERB_OPTIMIZER_STEP, t.object);
  t.run.list(OCTAVO_VERB_OPTIMIZER_STEP, t.object + t.count - 1);
  const auto *hyper =
      static_cast<const float *>(c.operand_bytes(OCTAVO_HYPER_COUNT * sizeof(float), "hyper"));
  auto call = call_of<octavo_optimizer_call>(t, OCTAVO_KIND_OPTIMIZER_CALL);
  call.skip = static_cast<const float *>(c.operand_bytes(sizeof(float), "skip"));
  c.take(list, OCTAVO_ACCESS_NONE, static_cast<uint64_t>(t.count));
  std::vector<octavo_parameter_item> items;
  for (int64_t i = 0; i < t.count; ++i)
    items.push_back({static_cast<uint32_t>(t.object + i), 0,
                     c.pointers() + static_cast<size_t>(i) * list.size(), hyper});
  call.items = items.data();
  call.count = items.size();
  call.workspace = optimizer_workspace(t, c);
  c.end();
  check(t.run.optimizer->optimizer_step(t.run.session, &call), "optimizer_step");
}

octavo_parameter_call parameter_call(const Target &t, Call &c, octavo_tensor *plain) {
  auto call = call_of<octavo_parameter_call>(t, OCTAVO_KIND_PARAMETER_CALL);
  call.parameter = static_cast<uint32_t>(t.object);
  call.role = c.contract_flags();
  call.plain = plain;
  call.slots = c.pointers();
  call.workspace = optimizer_workspace(t, c);
  c.end();
  return call;
}

// plain, slots -> slots, workspace; flags: the role
void write_parameter(const Target &t, Call &c) {
  const List &list = t.run.list(OCTAVO_VERB_OPTIMIZER_STEP, t.object);
  octavo_tensor plain = Call::matrix(c.operand(), t.run.cols[t.object], "plain");
  c.take(list, OCTAVO_ACCESS_UPDATE);
  const octavo_parameter_call call = parameter_call(t, c, &plain);
  check(t.run.optimizer->write_parameter(t.run.session, &call), "write_parameter");
}

// slots -> plain, workspace; flags: the role
void read_parameter(const Target &t, Call &c) {
  const List &list = t.run.list(OCTAVO_VERB_OPTIMIZER_STEP, t.object);
  octavo_tensor plain = Call::matrix(c.result(), t.run.cols[t.object], "plain");
  c.take(list, OCTAVO_ACCESS_READ);
  const octavo_parameter_call call = parameter_call(t, c, &plain);
  check(t.run.optimizer->read_parameter(t.run.session, &call), "read_parameter");
}

// recv, state, slots of all reduced parameters, record? -> send, state, slots, record?; object: the
// stage, flags >> 16: the number of ranks
void run_stage(const Target &t, Call &c) {
  if (t.run.gradients == nullptr)
    throw Error("octavo.gradients/1: the backend has none", OCTAVO_UNSUPPORTED, {});
  auto call = call_of<octavo_gradient_call>(t, OCTAVO_KIND_GRADIENT_CALL);
  call.stage = static_cast<uint32_t>(t.object);
  call.world = static_cast<uint32_t>(c.flags() >> 16);
  uint64_t buffer = 0, state = 0;
  const std::vector<uint32_t> &ids = t.run.reduced;
  check(octavo_reduction_bytes(t.run.run, ids.data(), ids.size(), call.world, &buffer, &state),
        "octavo_reduction_bytes");
  call.recv = c.operand_bytes(buffer, "recv");
  const ffi::AnyBuffer before = c.operand();
  call.send = c.bytes(buffer, "send");
  call.state = c.bytes(state, "state");
  Call::same(before, call.state, "state");
  List all;
  for (const uint32_t id : ids) {
    const List &list = t.run.list(OCTAVO_VERB_REDUCE, id);
    all.insert(all.end(), list.begin(), list.end());
  }
  c.take(all);
  c.end();
  std::vector<octavo_parameter_item> items;
  void *const *pointers = c.pointers();
  for (const uint32_t id : ids) {
    items.push_back({id, 0, pointers, nullptr});
    pointers += t.run.list(OCTAVO_VERB_REDUCE, id).size();
  }
  call.items = items.data();
  call.count = items.size();
  check(t.run.gradients->run_stage(t.run.session, &call), "run_stage");
}

using Verb = void (*)(const Target &, Call &);

// XLA's kind of error, with the octavo_status in its text, from which Python takes its exception.
ffi::Error failure(octavo_status status, const std::string &what) {
  const auto code = status == OCTAVO_UNSUPPORTED   ? ffi::ErrorCode::kUnimplemented
                    : status == OCTAVO_INVALID     ? ffi::ErrorCode::kInvalidArgument
                    : status == OCTAVO_WRONG_STATE ? ffi::ErrorCode::kFailedPrecondition
                                                   : ffi::ErrorCode::kInternal;
  return ffi::Error(code, "[octavo status " + std::to_string(status) + "] " + what);
}

// Where XLA calls. kOther: the one platform of a plugin for which this process has runs.
enum class Platform { kCpu, kCuda, kOther };

Platform platform_of(octavo_device d) {
  return d.type == OCTAVO_DEVICE_CPU    ? Platform::kCpu
         : d.type == OCTAVO_DEVICE_CUDA ? Platform::kCuda
                                        : Platform::kOther;
}

std::string name_of(Platform platform, int32_t index) {
  if (platform == Platform::kCpu) return "the CPU";
  return (platform == Platform::kCuda ? "GPU " : "device ") + std::to_string(index);
}

template <Verb verb>
ffi::Error guarded(Platform platform, int32_t index, void *stream, ffi::RemainingArgs args,
                   ffi::RemainingRets rets, int64_t run, int64_t object, int64_t count,
                   int64_t flags) {
  try {
    with_entry(run, [&](const Entry &entry) {
      const Platform opened = platform_of(entry.device);
      if (opened != platform || entry.device.index != index)
        refuse("expected a call on " + name_of(opened, entry.device.index) +
               ", where octavo.jax.init opened the run, found one on " + name_of(platform, index) +
               "; move the arrays there, or call octavo.jax.init(device=...), in one process for "
               "each device");
      Call call(args, rets, flags);
      verb({entry, object, count, stream}, call);
    });
    return ffi::Error::Success();
  } catch (const Error &e) {
    return failure(e.status(), e.what());
  } catch (const std::exception &e) {  // none may cross C
    return failure(OCTAVO_NO_RESOURCE, e.what());
  }
}

template <Verb verb>
ffi::Error on_cpu(ffi::ThreadPool threads, ffi::RemainingArgs args, ffi::RemainingRets rets,
                  int64_t run, int64_t object, int64_t count, int64_t flags) {
  const Pool pool = {threads.num_threads(),
                     [&threads](std::function<void()> task) { threads.Schedule(std::move(task)); }};
  const UsePool use(pool);
  return guarded<verb>(Platform::kCpu, 0, nullptr, args, rets, run, object, count, flags);
}

template <Verb verb, Platform platform>
ffi::Error on_stream(void *stream, int32_t index, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t run, int64_t object, int64_t count, int64_t flags) {
  return guarded<verb>(platform, index, stream, args, rets, run, object, count, flags);
}

}  // namespace
}  // namespace octavo::jax

// octavo_jax_<verb>_cpu, octavo_jax_<verb>_cuda and octavo_jax_<verb>_other.
#define OCTAVO_ATTRIBUTES      \
  .RemainingArgs()             \
      .RemainingRets()         \
      .Attr<int64_t>("run")    \
      .Attr<int64_t>("object") \
      .Attr<int64_t>("count")  \
      .Attr<int64_t>("flags")
#define OCTAVO_STREAM_HANDLER(verb, suffix, platform)                                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                                                                   \
      octavo_jax_##verb##_##suffix,                                                                \
      (octavo::jax::on_stream<octavo::jax::verb, octavo::jax::Platform::platform>),                \
      xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<void *>>().Ctx<xla::ffi::DeviceOrdinal>() \
          OCTAVO_ATTRIBUTES)
#define OCTAVO_HANDLERS(verb)                                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                                            \
      octavo_jax_##verb##_cpu, octavo::jax::on_cpu<octavo::jax::verb>,      \
      xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>() OCTAVO_ATTRIBUTES); \
  OCTAVO_STREAM_HANDLER(verb, cuda, kCuda);                                 \
  OCTAVO_STREAM_HANDLER(verb, other, kOther)

#pragma GCC visibility push(default)
OCTAVO_HANDLERS(quantize);
OCTAVO_HANDLERS(forward);
OCTAVO_HANDLERS(backward);
OCTAVO_HANDLERS(end_step);
OCTAVO_HANDLERS(optimizer_step);
OCTAVO_HANDLERS(write_parameter);
OCTAVO_HANDLERS(read_parameter);
OCTAVO_HANDLERS(run_stage);
#pragma GCC visibility pop

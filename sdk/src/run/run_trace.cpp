// A verb is given its session alone, so the trace of a session is looked up; kernels are given the
// trace itself as their context. Sizes come from the call's struct, never from memory of a device.
#include "sdk/src/run/run_trace.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/shard.h"
#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

struct Sessions {
  std::shared_mutex mutex;
  std::map<const octavo_session *, RunTrace *> traces;
};
Sessions &sessions() {
  static Sessions all;
  return all;
}
RunTrace *trace_of(const octavo_session *session) {
  const std::shared_lock<std::shared_mutex> lock(sessions().mutex);
  const auto found = sessions().traces.find(session);
  return found == sessions().traces.end() ? nullptr : found->second;
}

// Runs a call, and adds it to the trace while that is on.
template <typename Call, typename Run>
octavo_status timed(RunTrace &trace, const char *category, const char *name, const Call *call,
                    Run run) {
  if (!trace.file().is_on()) return run();
  const TraceFile::Clock::time_point begin = TraceFile::Clock::now();
  const octavo_status status = run();
  const TraceFile::Clock::time_point end = TraceFile::Clock::now();
  try {
    std::string words;
    if constexpr (!std::is_void_v<Call>)
      if (call != nullptr) words = args(trace.names(), *call);
    trace.file().add(category, name, words, begin, end);
  } catch (const std::bad_alloc &) {
    return status;  // one event less
  }
  return status;
}

// A table that every plugin has, or one that it may have.
bool has(const octavo_backend &) {
  return true;
}
template <typename Table>
bool has(const std::optional<Table> &t) {
  return t.has_value();
}
template <typename Table>
Table &table(Table &t) {
  return t;
}
template <typename Table>
Table &table(std::optional<Table> &t) {
  return *t;
}
template <typename Table>
const Table &table(const std::optional<Table> &t) {
  return *t;
}

// A verb of one of the plugin's tables.
template <auto member, auto function, const char *name, typename F>
struct Verb;
template <auto member, auto function, const char *name, typename Call>
struct Verb<member, function, name, octavo_status (*)(const octavo_session *, Call *)> {
  static octavo_status call(const octavo_session *session, Call *c) {
    RunTrace *trace = trace_of(session);
    if (trace == nullptr) return OCTAVO_INVALID;  // not a session of these tables
    const octavo_status status = timed(*trace, "verb", name, c, [&] {
      return (table(trace->real().*member).*function)(session, c);
    });
    if constexpr (std::is_same_v<Call, const octavo_step_call>) trace->file().end_step();
    return status;
  }
};

template <auto function, const char *name, typename F>
struct Kernel;
template <auto function, const char *name, typename Table, typename Call>
struct Kernel<function, name, octavo_status (*Table::*)(void *, const Call *)> {
  static octavo_status call(void *ctx, const Call *c) {
    RunTrace &trace = *static_cast<RunTrace *>(ctx);
    const Table &table = *trace.real_kernels().get<Table>();
    return timed(trace, "kernel", name, c,
                 [&] { return (table.*function)(trace.real_desc().kernels_ctx, c); });
  }
};
const void *get_extension(void *ctx, octavo_str id) {
  const RunTrace &trace = *static_cast<const RunTrace *>(ctx);
  return trace.drafts().find(trace.real_kernels(), id);
}
octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const octavo_session_desc &real = static_cast<RunTrace *>(ctx)->real_desc();
  return real.kernels->describe(real.kernels_ctx, out);
}
octavo_status ability(void *ctx, octavo_ability *question) {
  const octavo_session_desc &real = static_cast<RunTrace *>(ctx)->real_desc();
  return real.kernels->ability(real.kernels_ctx, question);
}
octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  const octavo_session_desc &real = static_cast<RunTrace *>(ctx)->real_desc();
  return real.kernels->workspace_bytes(real.kernels_ctx, call, bytes);
}

#define VERB(member, type, function)                                                            \
  {                                                                                             \
    static constexpr char kName[] = #function;                                                  \
    if (has(tables.member))                                                                     \
      table(tables.member).function =                                                           \
          &Verb<&LoadedPlugin::member, &type::function, kName, decltype(type::function)>::call; \
  }

LoadedPlugin traced(const LoadedPlugin &plugin) {
  LoadedPlugin tables = plugin;
  VERB(backend, octavo_backend, quantize_weight)
  VERB(backend, octavo_backend, linear_forward)
  VERB(backend, octavo_backend, linear_backward)
  VERB(backend, octavo_backend, end_step)
  VERB(optimizer, octavo_optimizer, optimizer_step)
  VERB(optimizer, octavo_optimizer, sum_of_squares)
  VERB(optimizer, octavo_optimizer, prepare_step)
  VERB(optimizer, octavo_optimizer, read_parameter)
  VERB(optimizer, octavo_optimizer, write_parameter)
  VERB(gradients, octavo_gradients, run_stage)
  VERB(fused, octavo_fused, linear_forward)
  VERB(grouped, octavo_grouped, forward)
  VERB(grouped, octavo_grouped, backward)
  VERB(shard, octavo_shard, measure)
  VERB(shard, octavo_shard, cast)
  VERB(shard, octavo_shard, place)
  return tables;
}
#undef VERB

template <typename CallOfTable>
auto traced_call(CallOfTable) {
  using Member = std::remove_const_t<decltype(CallOfTable::member)>;
  return &Kernel<CallOfTable::member, CallOfTable::name, Member>::call;
}
octavo_kernels traced(const octavo_kernels &real) {
  octavo_kernels table = real;
  table.describe = &describe;
  table.ability = &ability;
  table.workspace_bytes = &workspace_bytes;
  table.get_extension = &get_extension;
  each_call<octavo_kernels>([&](auto call) { table.*decltype(call)::member = traced_call(call); });
  return table;
}

}  // namespace

std::unique_ptr<RunTrace> RunTrace::of(const Config &config, const LoadedPlugin &plugin,
                                       const octavo_session_desc &desc, const octavo_host *host,
                                       bool privileged) {
  TraceWindow window{config[key::kTraceDirectory], config[key::kTraceFirstStep],
                     config[key::kTraceSteps]};
  if (window.directory.empty()) return nullptr;
  if (privileged) {
    diagnose(host, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, "octavo.trace",
             "trace.directory is not used: a privileged process writes no trace");
    return nullptr;
  }
  return std::unique_ptr<RunTrace>(new RunTrace(std::move(window), plugin, desc, host));
}

RunTrace::RunTrace(TraceWindow window, const LoadedPlugin &plugin, const octavo_session_desc &desc,
                   const octavo_host *host)
    : real_(plugin),
      real_desc_(desc),
      file_(std::move(window), host),
      tables_(traced(plugin)),
      real_kernels_(desc.kernels, desc.kernels_ctx),
      drafts_([](auto call) { return traced_call(call); }),
      kernels_(traced(*desc.kernels)),
      desc_(desc) {
  desc_.kernels = &kernels_;
  desc_.kernels_ctx = this;
}

RunTrace::~RunTrace() {
  const std::unique_lock<std::shared_mutex> lock(sessions().mutex);
  sessions().traces.erase(session_);
}

void RunTrace::attach(const octavo_session *session) {
  const std::unique_lock<std::shared_mutex> lock(sessions().mutex);
  sessions().traces[session] = this;
  session_ = session;
}

}  // namespace octavo

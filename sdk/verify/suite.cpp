// Opening a backend through liboctavo, and what is kept of the messages.
#include "suite.h"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>

#include "apart.h"
#include "in_flight.h"
#include "process.h"
#include "session.h"

namespace octavo::conformance {
namespace {

// Refusals are part of the checks, so messages are kept and shown only with a failure.
struct Messages {
  std::mutex mutex;
  std::vector<std::string> all;
  std::string of_options;  // the last of liboctavo's that is about declared options
};

void keep_diagnostic(void *ctx, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  auto &messages = *static_cast<Messages *>(ctx);
  const std::lock_guard<std::mutex> lock(messages.mutex);
  if (text_of(d->domain) == "octavo.options") messages.of_options = text_of(d->text);
  const std::string said = text(text_of(d->domain), ": ", text_of(d->text));
  if (!messages.all.empty() && messages.all.back() == said) return;
  if (messages.all.size() == 10) messages.all.erase(messages.all.begin());
  messages.all.push_back(said);
}
const void *no_extension(void *, octavo_str) {
  return nullptr;
}

struct Close {
  void operator()(octavo_run *run) const {
    if (std::uncaught_exceptions() == 0) calling("octavo_close");
    octavo_close(run);
  }
};
using Run = std::unique_ptr<octavo_run, Close>;

Run open_backend(const Settings &settings, Messages *messages) {
  static octavo_host host{};  // plugins may keep it until the process ends
  host.size = sizeof host;
  host.kind = OCTAVO_KIND_HOST;
  host.abi_major = OCTAVO_ABI_MAJOR;
  host.abi_minor = OCTAVO_ABI_MINOR;
  host.ctx = messages;
  host.diagnose = keep_diagnostic;
  host.get_extension = no_extension;
  octavo_open_desc desc = settings.open;
  desc.device = {OCTAVO_DEVICE_AUTO, 0};  // as device.kind says
  desc.host = &host;
  octavo_run *run = nullptr;
  calling("the plugin's library, its symbol, list_options and check_session, while it is loaded");
  const octavo_status status = octavo_open(&desc, &run);
  if (status == OCTAVO_OK && octavo_run_session_desc(run) != nullptr) return Run(run);
  std::string reasons;
  for (const std::string &message : messages->all) reasons += text("; ", message);
  throw Failure(
      text("backend '", settings.backend, "' could not be opened: ", status_name(status), reasons));
}

// What a host gets that adds the standard model, under names that are new in the run.
std::string seal_by_liboctavo(octavo_run *run, Messages &messages) {
  messages.all.clear();
  static int count = 0;
  const std::string again = text(".", ++count);
  const Model model = standard_model();
  for (const ParameterSpec &spec : model.parameters) {
    auto desc = octavo::make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    const std::string name = spec.name + again;
    desc.name = str_of(name);
    desc.rows = spec.rows;
    desc.cols = spec.cols;
    desc.dtype = spec.dtype;
    desc.gradient_dtype = spec.gradient_dtype;
    desc.flags = spec.flags;
    uint32_t id = OCTAVO_NONE;
    octavo_add_parameter(run, &desc, nullptr, &id);
    for (const LinearSpec &linear : model.linears) {
      if (linear.weight != spec.name || id == OCTAVO_NONE) continue;
      auto of_linear = octavo::make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
      const std::string linear_name = linear.name + again;
      of_linear.name = str_of(linear_name);
      of_linear.weight = id;
      uint32_t linear_id = OCTAVO_NONE;
      octavo_add_linear(run, &of_linear, nullptr, &linear_id);
    }
  }
  const octavo_status status = octavo_seal(run);
  if (status == OCTAVO_OK) return {};
  std::string reasons = status_name(status);
  for (const std::string &message : messages.all) reasons += text("; ", message);
  return reasons;
}

// Empty on the CPU, or where the checks ran.
std::string place_of(const octavo_session_desc &desc) {
  if (desc.device.type == OCTAVO_DEVICE_CPU) return {};
  return text(desc.device.type == OCTAVO_DEVICE_CUDA ? " (cuda:" : " (device ", desc.device.index,
              ", kernels ", text_of(desc.caps->id), ")");
}

// The query function of a library that is loaded; null where this program has the table.
decltype(Target::query) query_of(const std::string &library) {
  void *const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void *const symbol = dlsym(handle, OCTAVO_PLUGIN_SYMBOL);
  dlclose(handle);  // the run keeps it
  return reinterpret_cast<decltype(Target::query)>(symbol);
}

Record run_here(const Check &check, const Settings &settings) {
  static Messages messages;
  messages.all.clear();
  messages.of_options.clear();
  Record record;
  record.check = check.name;
  try {
    take_steps(true);
    step("load");
    ProcessWatch watch;
    const Run run = open_backend(settings, &messages);
    Target target;
    target.backend = octavo_run_backend(run.get());
    target.optimizer = static_cast<const octavo_optimizer *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
    target.gradients = static_cast<const octavo_gradients *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
    target.fused = static_cast<const octavo_fused *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_FUSED_ID)));
    target.grouped = static_cast<const octavo_grouped *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_GROUPED_ID)));
    target.shard = static_cast<const octavo_shard *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_SHARD_ID)));
    OCTAVO_TAKE(target.desc, octavo_run_session_desc(run.get()));
    record.place = place_of(target.desc);
    record.library = file_of_code(reinterpret_cast<const void *>(target.backend->list_options));
    target.stale_manifest = messages.of_options;
    // liboctavo passes on every id that it does not know.
    target.interface = [&](octavo_str id) { return octavo_run_interface(run.get(), id); };
    target.query = query_of(record.library);
    target.seal = [&] { return seal_by_liboctavo(run.get(), messages); };
    target.changes = [&] { return watch.changes(); };
    target.symbols_of_libc = [&] { return symbols_of_libc(record.library); };
    record.result = run_check(check, target, settings.seed);
    record.calling = in_flight_text(in_flight());
  } catch (const std::exception &failure) {
    record.calling = in_flight_text(in_flight());
    record.result = {Outcome::kFail, failure.what(), take_steps(false)};
  }
  record.messages = messages.all;
  return record;
}

}  // namespace

void run_suite(const Settings &settings, const std::function<void(const Record &)> &done) {
#ifdef __GLIBC__
  // Checks take copies of all memory again and again; pages that went back to the system between
  // two would have to be cleared for the next.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_MAX, 0);
#endif
  // MiB of workspace for each product on a GPU, of which a session has many: checks copy and
  // compare all memory.
  setenv("OCTAVO_CUDA_GEMM_WORKSPACE", "2", 0);
  if (!settings.in_process) {
    share_in_flight();
    adopt_orphans();
  }
  for (const Check &check : checks()) {
    const auto &only = settings.only;
    if (!only.empty() && std::find(only.begin(), only.end(), check.name) == only.end()) continue;
    const auto body = [&] { return run_here(check, settings); };
    const Record record =
        settings.in_process ? body() : run_apart(check.name, settings.timeout, body);
    done(record);
    if (&check == checks().data() && record.result.outcome == Outcome::kFail) break;
  }
}

}  // namespace octavo::conformance

// Loading: liboctavo opens the library, under its rules of trust, and the suite takes its tables.
#include "suite.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "../apart.h"
#include "../in_flight.h"
#include "../process.h"
#include "checks.h"
#include "octavo/plugin.h"

namespace octavo::conformance::kernels {
namespace {

struct Messages {
  std::mutex mutex;
  std::vector<std::string> all;
};
Messages messages;

void keep_diagnostic(void *, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  const std::lock_guard<std::mutex> lock(messages.mutex);
  if (messages.all.size() < 10)
    messages.all.push_back(text(text_of(d->domain), ": ", text_of(d->text)));
}

// Kernels are no backend, so this run never opens; what counts is that the library is then loaded.
void load_by_liboctavo(const Settings &settings) {
  static octavo_host host{};
  host = *silent_host();
  host.diagnose = keep_diagnostic;
  octavo_open_desc desc = settings.open;
  desc.device = {OCTAVO_DEVICE_AUTO, 0};
  desc.host = &host;
  octavo_run *run = nullptr;
  calling("the plugin's library and its symbol, while it is loaded");
  if (octavo_open(&desc, &run) == OCTAVO_OK) octavo_close(run);
}

std::string all_messages() {
  std::string all;
  for (const std::string &one : messages.all) all += "; " + one;
  return all;
}

// The first index that probe_device accepts.
octavo_device find_device(const octavo_kernels &table, uint32_t type) {
  std::string reasons;
  for (int32_t index = 0; index < 16; ++index) {
    struct Found {
      bool accepts = true, any = false;
      std::string text;
    } found;
    auto sink = octavo::make<octavo_verdict_sink>(OCTAVO_KIND_VERDICT_SINK);
    sink.ctx = &found;
    sink.verdict = [](void *ctx, const octavo_verdict *v) {
      auto &f = *static_cast<Found *>(ctx);
      f.any = true;
      if (v->decision == OCTAVO_DECLINE) f.accepts = false, f.text = text_of(v->text);
    };
    calling(text("probe_device of index ", index));
    if (table.probe_device({type, index}, &sink) == OCTAVO_OK && found.any && found.accepts)
      return {type, index};
    if (index == 0) reasons = found.text;
  }
  throw Failure(
      text("probe_device accepts no index from 0 to 15 of device type ", type, ": ", reasons));
}

Tables load(const Settings &settings, const Plugin &plugin) {
  if (plugin.run != nullptr) return {nullptr, nullptr, {}, plugin.run};
  load_by_liboctavo(settings);
  void *library = dlopen(plugin.library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  expect(library != nullptr, "liboctavo does not load ", plugin.library, all_messages());
  const auto query =
      reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(library, OCTAVO_PLUGIN_SYMBOL));
  expect(query != nullptr, plugin.library, ": expected the symbol ", OCTAVO_PLUGIN_SYMBOL,
         ", found none");
  const octavo_plugin *table = nullptr;
  const octavo_status status = query(silent_host(), &table);
  expect(status == OCTAVO_OK && table != nullptr, OCTAVO_PLUGIN_SYMBOL, " answered ",
         status_name(status));
  expect(text_of(table->id) == settings.backend, "the plugin's id is ", text_of(table->id),
         "; expected ", settings.backend, " of its manifest");
  Tables tables;
  tables.kernels =
      static_cast<const octavo_kernels *>(table->get_interface(OCTAVO_STR(OCTAVO_KERNELS_ID)));
  expect(tables.kernels != nullptr, "expected the interface ", OCTAVO_KERNELS_ID, ", found none");
  const octavo_kernels &k = *tables.kernels;
  expect(OCTAVO_HAS(&k, octavo_kernels, workspace_bytes) && k.probe_device && k.open_device &&
             k.close_device && k.describe && k.ability && k.workspace_bytes,
         "the table of ", OCTAVO_KERNELS_ID,
         " lacks one of probe_device, open_device, close_device, describe, ability and "
         "workspace_bytes");
  tables.memory =
      static_cast<const octavo_memory *>(table->get_interface(OCTAVO_STR(OCTAVO_MEMORY_ID)));
  if (tables.memory != nullptr)
    expect(OCTAVO_HAS(tables.memory, octavo_memory, synchronize) && tables.memory->allocate &&
               tables.memory->release && tables.memory->copy && tables.memory->synchronize,
           "the table of ", OCTAVO_MEMORY_ID, " lacks a function");
  expect(tables.memory != nullptr || plugin.device_type == OCTAVO_DEVICE_CPU,
         "a device of another type than the CPU needs the interface ", OCTAVO_MEMORY_ID,
         ", through which the checks reach its memory");
  tables.device = find_device(k, plugin.device_type);
  return tables;
}

std::string place_of(const Side &side) {
  return text(" (device type ", side.device.type, ":", side.device.index, ", kernels ",
              text_of(side.caps.id), ")");
}

Record run_here(const Check &check, const Settings &settings, const Plugin &plugin) {
  Record record;
  record.check = check.name;
  record.library = plugin.library;
  take_not_offered();
  messages.all.clear();
  try {
    take_steps(true);
    step("load");
    const Tables tables = load(settings, plugin);
    const Side side(tables, silent_host());
    record.place = place_of(side);
    check.run({tables, &side, settings.seed, plugin.below});
    record.result = {Outcome::kPass, "", take_steps(true)};
  } catch (const Skip &skip) {
    record.result = {Outcome::kSkip, skip.what(), take_steps(true)};
  } catch (const std::exception &failure) {
    record.result = {Outcome::kFail, failure.what(), take_steps(false)};
  }
  record.calling = in_flight_text(in_flight());
  record.not_offered = take_not_offered();
  return record;
}

}  // namespace

void run_suite(const Settings &settings, const Plugin &plugin,
               const std::function<void(const Record &)> &done) {
  if (!settings.in_process) {
    share_in_flight();
    adopt_orphans();
  }
  for (const Check &check : checks()) {
    const auto &only = settings.only;
    if (!only.empty() && std::find(only.begin(), only.end(), check.name) == only.end()) continue;
    const auto body = [&] { return run_here(check, settings, plugin); };
    const Record record =
        settings.in_process ? body() : run_apart(check.name, settings.timeout, body);
    done(record);
    const bool loads = record.result.steps.size() != 1 || record.result.steps[0].name != "load";
    if (record.result.outcome == Outcome::kFail && !loads) break;
  }
}

}  // namespace octavo::conformance::kernels

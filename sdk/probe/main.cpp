// octavo-probe: the process in which a plugin's code runs for the first time.
//
//   octavo-probe <library> <id> <abi major> <abi minor> <timeout in ms> <checked or unchecked>
//                [library to open before...]
//
// Started by liboctavo only. "checked": descriptor 4 is the library that the caller has checked,
// and is what is opened. It announces each stage on descriptor 3 before it begins it, so the caller
// knows where a plugin crashed. The last record, the end, is sent only when all is well.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "children.h"
#include "limits.h"
#include "process_state.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/plugin/checked_name.h"
#include "sdk/src/plugin/loader.h"
#include "sdk/src/probe/probe_spawn.h"
#include "self_test.h"
#include "symbols.h"

extern char **environ;

namespace {

using octavo::ProbeStage;

void send(const std::string &record) {
  if (octavo::probe::is_copy()) _exit(0);
  size_t sent = 0;
  while (sent < record.size()) {
    const ssize_t now = write(octavo::kProbePipe, record.data() + sent, record.size() - sent);
    if (now < 0 && errno == EINTR) continue;
    // The plugin has closed it; any other reason is none of the plugin's.
    if (now <= 0 && fcntl(octavo::kProbePipe, F_GETFD) < 0) _exit(4);
    if (now <= 0) _exit(octavo::kProbeShort);
    sent += static_cast<size_t>(now);
  }
}

ProbeStage stage = ProbeStage::kNone;  // that has begun

void begin(ProbeStage next) {
  stage = next;
  send(octavo::stage_record(next));
}

constexpr octavo::probe::Voice voice = {
    [](const std::string &text) { send(octavo::note_record(text)); },
    [](const std::string &text) { send(octavo::warning_record(text)); },
    [](const std::string &text) { send(octavo::call_record(text)); }};

// Variables that choose for a host must not choose here.
void forget_choices() {
  std::vector<std::string> names;
  for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (name.rfind("OCTAVO_", 0) == 0 && name != "OCTAVO_FORCE_KERNELS") names.push_back(name);
  }
  for (const std::string &name : names) unsetenv(name.c_str());
}

// The library's constructors, then its entry: each in a stage of its own, before liboctavo's own
// loader does both again in one.
//
// The symbol that it takes from the helper; empty: none, or the library does not open.
std::string touch(const octavo::Manifest &manifest) {
  begin(ProbeStage::kDlopen);
  // Open until the process ends, since the loader takes a second file of this name for the first.
  static octavo::CheckedName checked(manifest.library, manifest.checked.get());
  if (checked.is_expanded()) return {};
  void *opened = dlopen(checked.name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return {};  // the loader has the reason
  if (std::string name = octavo::probe::borrowed_symbol(opened); !name.empty()) return name;
  begin(ProbeStage::kEntry);
  const auto query =
      reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(opened, OCTAVO_PLUGIN_SYMBOL));
  if (query == nullptr) return {};
  const octavo_plugin *table = nullptr;
  query(octavo::probe::helper_host(), &table);
  return {};
}

octavo::Verdict fault_of(const octavo::Manifest &manifest, const std::string &fault) {
  return {OCTAVO_LEVEL_PLUGIN,
          OCTAVO_DECLINE,
          OCTAVO_REASON_PROBE,
          manifest.library + ": " + fault,
          "stage " + std::string(octavo::stage_name(stage)) + ", " + manifest.library,
          "install a corrected build; octavo doctor --retry tries the same file again"};
}

void try_plugin(const octavo::Manifest &manifest) {
  const octavo::probe::ProcessState before(manifest.checked.get());
  if (const std::string name = touch(manifest); !name.empty())
    return send(octavo::verdict_record(
        {OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_LIBRARY,
         manifest.library + ": cannot be loaded: undefined symbol: " + name +
             ", which is in none of the libraries that it needs",
         manifest.library, "link the plugin to the library that has the symbol, and rebuild it",
         octavo::Stage::kLoad}));
  begin(ProbeStage::kNegotiate);
  std::vector<octavo::Verdict> verdicts;
  const octavo::LoadedPlugin *plugin =
      octavo::load_plugin(manifest, "of the caller", nullptr, verdicts);
  for (const octavo::Verdict &v : verdicts) send(octavo::verdict_record(v));
  if (plugin == nullptr) return;
  begin(ProbeStage::kDescribe);
  if (!plugin->has_backend)  // its device is asked when a run wants it, by the run's process
    voice.note("self-test left out: the plugin has kernels and no backend");
  else if (octavo::probe::describe(*plugin, voice)) {
    begin(ProbeStage::kSelfTest);
    if (const std::string fault = octavo::probe::self_test(*plugin, voice); !fault.empty())
      send(octavo::verdict_record(fault_of(manifest, "its self-test " + fault)));
  }
  if (const std::string started = octavo::probe::started_processes(); !started.empty())
    send(octavo::verdict_record(fault_of(manifest, "the plugin " + started)));
  for (const std::string &change :
       before.changes(octavo::probe::ProcessState(manifest.checked.get())))
    send(octavo::warning_record("the plugin " + change));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 7) return 2;
  const bool is_checked = std::strcmp(argv[6], "checked") == 0;
  octavo::Manifest manifest;
  manifest.library = argv[1];
  manifest.name = argv[2];
  manifest.abi_major = std::atoll(argv[3]);
  manifest.abi_minor = std::atoll(argv[4]);
  octavo::probe::close_descriptors(is_checked ? octavo::kProbeLibrary + 1 : octavo::kProbePipe + 1);
  octavo::probe::set_limits(manifest.library, std::atoi(argv[5]));
  forget_choices();
  octavo::probe::watch_children();
  send(octavo::hello_record());
  // What the caller has opened and a search would not find.
  for (int i = 7; i < argc; ++i)
    if (std::strchr(argv[i], '$') == nullptr) dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
  try {
    if (is_checked) {
      fcntl(octavo::kProbeLibrary, F_SETFD, FD_CLOEXEC);
      manifest.checked = std::make_shared<const octavo::CheckedFile>(
          manifest.library, octavo::Descriptor(octavo::kProbeLibrary), "octavo.probe");
    }
    try_plugin(manifest);
    begin(ProbeStage::kExit);
    send(octavo::end_record());
  } catch (const octavo::ResourceUnavailable &s) {
    octavo::Verdict v = s.verdict();
    v.level = OCTAVO_LEVEL_PLUGIN;
    send(octavo::verdict_record(v));
  } catch (const std::bad_alloc &) {
    _exit(octavo::kProbeShort);
  }
  return 0;
}

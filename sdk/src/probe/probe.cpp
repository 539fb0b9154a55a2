// What is remembered, else the check of the file's tables and the helper. A remembered acceptance
// covers the check, too: its key holds the hash of the bytes that were checked.
#include "sdk/src/probe/probe.h"

#include <chrono>
#include <map>
#include <mutex>

#include "octavo/octavo.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/fork.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/probe_places.h"
#include "sdk/src/plugin/elf.h"
#include "sdk/src/plugin/loader.h"
#include "sdk/src/plugin/manifest_requires.h"
#include "sdk/src/probe/probe_cache.h"
#include "sdk/src/probe/probe_spawn.h"

namespace octavo {
namespace {

constexpr const char *kHelperRemedy =
    "reinstall Octavo, or set plugins.probe = \"never\" for plugins that you trust";

// Everything that a verdict depends on.
std::string key_of(const Hardware &hardware, const Manifest &manifest, const std::string &sha256,
                   const std::string &helper) {
  std::string key =
      concat(manifest.library, "\n", file_identity(manifest.library), "\n", sha256, "\n",
             manifest.name, "\n", manifest.abi_major, ".", manifest.abi_minor, "\noctavo ",
             view(octavo_version()), " ABI ", OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR, "\n", helper,
             " ", file_identity(helper), "\n", hardware.cpu_model, "\n", hardware.cuda_text, "\n");
  for (const CudaDevice &d : hardware.cuda_devices)
    key += concat(d.index, " ", d.name, " ", d.capability_major, ".", d.capability_minor, "\n");
  return key;
}

// Where the helper was, and the last that it wrote: both belong to every fault that it found.
void add_circumstances(const SpawnedProbe &spawned, Verdict *v) {
  if (!spawned.answer.call.empty()) v->evidence += ", in " + spawned.answer.call;
  if (!spawned.said.empty()) v->evidence += "; its last lines: " + spawned.said;
}

// The helper did not get as far as the plugin's first code, or says itself that something is short:
// the plugin has done nothing.
void check_tried(const std::string &library, const SpawnedProbe &spawned, int timeout_ms) {
  for (const Verdict &v : spawned.answer.verdicts)
    if (v.reason == OCTAVO_REASON_RESOURCE)
      throw ResourceUnavailable(v.text + ", in the process that tries the plugin first", v.remedy,
                                Stage::kProbe);
  if (spawned.was_short)
    throw ResourceUnavailable(
        library +
            ": cannot be tried first: the process that tries it had no memory, or "
            "could not write its answer",
        "free memory, or raise the limit on it (ulimit -v, the container's memory)", Stage::kProbe);
  if (spawned.fault.empty() || spawned.answer.stage >= ProbeStage::kDlopen) return;
  const std::string text = library + ": cannot be tried first: ";
  if (!spawned.started) {
    throw ResourceUnavailable(text + spawned.fault, remedy_of(spawned.error, kHelperRemedy),
                              Stage::kProbe);
  }
  std::string fault =
      "the process that tries it " + spawned.fault + ", before it opened the plugin";
  if (!spawned.said.empty()) fault += "; its last lines: " + spawned.said;
  throw ResourceUnavailable(
      text + fault,
      spawned.late
          ? concat("give it more time: set plugins.probe_timeout_ms above ", timeout_ms,
                   ", or try again when the machine is less busy")
          : "look for the cause that ends processes here (memory, a sandbox's filter), and try "
            "again",
      Stage::kProbe);
}

Verdict fault_verdict(const std::string &library, ProbeStage stage, const std::string &fault) {
  return {OCTAVO_LEVEL_PLUGIN,
          OCTAVO_DECLINE,
          OCTAVO_REASON_PROBE,
          library + ": the process that tries the plugin first " + fault,
          "stage " + std::string(stage_name(stage)) + ", " + library,
          "install a corrected build; octavo doctor --retry tries the same file again"};
}

// Warnings of libraries that this process has accepted, by path: an opened one is not tried again.
struct Shown {
  ForkLock mutex{"tried a plugin"};
  std::map<std::string, std::vector<std::string>> by_library;
};
Shown &shown() {
  static auto *all = new Shown;
  return *all;
}
std::vector<std::string> shown_before(const std::string &library) {
  const std::lock_guard lock(shown().mutex);
  const auto found = shown().by_library.find(library);
  return found == shown().by_library.end() ? std::vector<std::string>() : found->second;
}

class Prober {
 public:
  Prober(const Config &config, const Hardware &hardware, const Manifest &manifest,
         const std::string &sha256)
      : mode_(config[key::kProbe]),
        timeout_ms_(static_cast<int>(config[key::kProbeTimeout])),
        hardware_(hardware),
        manifest_(manifest),
        sha256_(sha256) {}

  ProbeReport run() {
    if (opened_in_this_process(manifest_.library)) {
      report_.warnings = shown_before(manifest_.library);
      return accepted("opened before");
    }
    if (const auto verdict = abi_verdict(manifest_)) {
      report_.stage = ProbeStage::kManifest;
      report_.how = "refused by its manifest";
      report_.verdicts = {*verdict};
      return std::move(report_);
    }
    if (mode_ == "never") return by_headers("plugins.probe = \"never\"");
    const bool always = mode_ == "always";
    if (!always && belongs_to_liboctavo(manifest_.library))
      return by_headers("part of this installation");
    std::vector<std::string> looked;
    const std::string helper = probe_helper(&looked);
    if (helper.empty())
      throw ResourceUnavailable(
          manifest_.library +
              ": cannot be tried first, the program octavo-probe is missing; looked for " +
              enumerate(looked, "or"),
          kHelperRemedy, Stage::kProbe);
    const std::string key = key_of(hardware_, manifest_, sha256_, helper);
    // One probe at a time: whoever waits finds what it left.
    static ForkLock mutex("tried a plugin");
    static auto *here = new std::map<std::string, RememberedProbe>;  // of this process
    const std::lock_guard lock(mutex);
    if (!always) {
      const auto known = here->find(key);
      if (known != here->end() && holds(known->second)) return remembered(known->second);
    }
    const ProbeCache cache;
    if (!cache.problem().empty())
      report_.notes.push_back("nothing is remembered between processes: " + cache.problem());
    if (!always) {
      const auto found = cache.find(manifest_.library, key);
      if (found && holds(*found)) {
        (*here)[key] = *found;
        return remembered(*found);
      }
    }
    const std::optional<RememberedProbe> result = probe(helper);
    if (!result) return std::move(report_);
    (*here)[key] = *result;
    if (!cache.store(manifest_.library, key, *result) && cache.problem().empty())
      report_.notes.push_back("the probe's result could not be written to the cache");
    return std::move(report_);
  }

 private:
  ProbeReport accepted(const std::string &how) {
    report_.accepted = true;
    report_.how = how;
    return std::move(report_);
  }

  // Whether the tables are sound; a helper has nothing to do where they are not.
  bool sound(const ElfCheck &check) {
    const auto verdict = elf_verdict(manifest_.library, check);
    if (!verdict) return true;
    report_.stage = ProbeStage::kElf;
    report_.how = "refused by its headers";
    report_.verdicts = {*verdict};
    return false;
  }

  ProbeReport by_headers(const std::string &how) {
    return sound(inspect_elf(manifest_.library, manifest_.checked.get())) ? accepted(how)
                                                                          : std::move(report_);
  }

  // More time than an earlier, late probe had makes that one void.
  bool holds(const RememberedProbe &probe) const {
    return probe.answer.verdicts.empty() || timeout_ms_ <= probe.timeout_ms;
  }

  ProbeReport remembered(const RememberedProbe &probe) {
    take(probe.answer);
    report_.how = report_.accepted ? "remembered" : "remembered refusal";
    return std::move(report_);
  }

  void take(const ProbeAnswer &answer) {
    report_.stage = answer.stage;
    report_.verdicts = answer.verdicts;
    report_.warnings = answer.warnings;
    report_.notes.insert(report_.notes.end(), answer.notes.begin(), answer.notes.end());
    report_.accepted = answer.verdicts.empty();
  }

  // What is to be remembered; nothing after a refusal that costs no process or is a plain answer.
  std::optional<RememberedProbe> probe(const std::string &helper) {
    const ElfCheck check = inspect_elf(manifest_.library, manifest_.checked.get());
    if (!sound(check)) return std::nullopt;
    std::vector<std::string> arguments = {helper,
                                          manifest_.library,
                                          manifest_.name,
                                          std::to_string(manifest_.abi_major),
                                          std::to_string(manifest_.abi_minor),
                                          std::to_string(timeout_ms_),
                                          manifest_.checked == nullptr ? "unchecked" : "checked"};
    arguments.insert(arguments.end(), check.preload.begin(), check.preload.end());
    const auto begin = std::chrono::steady_clock::now();
    const SpawnedProbe spawned = spawn_probe(arguments, timeout_ms_, manifest_.checked.get());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    check_tried(manifest_.library, spawned, timeout_ms_);
    take(spawned.answer);
    for (Verdict &v : report_.verdicts)
      if (v.reason == OCTAVO_REASON_PROBE) add_circumstances(spawned, &v);
    report_.how = concat("probed in ", static_cast<int>(took.count() + 0.5), " ms");
    if (spawned.fault.empty()) {
      const bool failed_test =
          !report_.accepted && report_.verdicts[0].reason == OCTAVO_REASON_PROBE;
      if (!report_.accepted && !failed_test) return std::nullopt;
      RememberedProbe result{spawned.answer, timeout_ms_};
      result.answer.verdicts = report_.verdicts;
      return result;
    }
    report_.accepted = false;
    report_.verdicts = {fault_verdict(manifest_.library, report_.stage, spawned.fault)};
    add_circumstances(spawned, &report_.verdicts[0]);
    RememberedProbe crash{spawned.answer, timeout_ms_};
    crash.answer.verdicts = report_.verdicts;
    // Only lateness may be cured by time.
    if (!spawned.late) crash.timeout_ms = kMaxProbeTimeout;
    return crash;
  }

  const std::string &mode_;  // plugins.probe
  const int timeout_ms_;
  const Hardware &hardware_;
  const Manifest &manifest_;
  const std::string &sha256_;
  ProbeReport report_;
};

}  // namespace

ProbeReport probe_plugin(const Config &config, const Hardware &hardware, const Manifest &manifest,
                         const std::string &sha256) {
  return Prober(config, hardware, manifest, sha256).run();
}

CheckedProbe check_probe(const Config &config, const Hardware &hardware, const Manifest &manifest,
                         const std::string &sha256, const octavo_host *host,
                         std::vector<Verdict> &verdicts) {
  const ProbeReport report = probe_plugin(config, hardware, manifest, sha256);
  for (const std::string &warning : report.warnings)
    warn(host, "octavo.probe", manifest.library, ": ", warning);
  for (const std::string &note : report.notes)
    diagnose(host, OCTAVO_SEVERITY_DEBUG, OCTAVO_OK, "octavo.probe",
             manifest.library + ": " + note);
  const size_t first = verdicts.size();
  for (Verdict v : report.verdicts) {
    if (v.reason == OCTAVO_REASON_PROBE)
      v.stage = Stage::kProbe;
    else if (v.stage == Stage::kNone)  // not the helper's: this process found it without one
      v.stage = report.stage == ProbeStage::kElf ? Stage::kElf : Stage::kManifest;
    verdicts.push_back(std::move(v));
  }
  CheckedProbe checked{std::nullopt, report.how, report.warnings};
  if (report.accepted) {
    const std::lock_guard lock(shown().mutex);
    shown().by_library[manifest.library] = report.warnings;
  }
  if (!report.accepted) checked.refused = verdicts[first].stage;
  // Whoever writes "never" knows, so the host gets no message each time; readers of a report may
  // not know.
  else if (config[key::kProbe] == "never" && !belongs_to_liboctavo(manifest.library))
    checked.warnings.push_back("no helper tried the plugin first: plugins.probe = \"never\" (" +
                               config.origin(key::kProbe) + ")");
  return checked;
}

std::vector<ProbedPlugin> probe_all(const Config &config, const TrustPolicy &trust,
                                    const Discovery &discovery, const Hardware &hardware) {
  std::vector<ProbedPlugin> all;
  for (const FoundManifest &found : discovery.manifests) {
    if (!found.shadowed_by.empty()) continue;
    ProbedPlugin p{found.name, found.path, {}};
    auto manifest = read_manifest(found.path, p.report.verdicts);
    std::string sha256;
    if (!manifest || !check_requirements(*manifest, hardware, p.report.verdicts)) {
      p.report.stage = ProbeStage::kManifest;
      p.report.how = "refused by its manifest";
    } else if (!check_trust(*manifest, trust, &sha256, p.report.verdicts)) {
      p.report.stage = ProbeStage::kPolicy;
      p.report.how = "refused by plugins.trust";
    } else {
      p.report = probe_plugin(config, hardware, *manifest, sha256);
    }
    all.push_back(std::move(p));
  }
  return all;
}

}  // namespace octavo

// What is remembered, else the check of the file's tables and the helper. A remembered acceptance
// stands for the check, too: its key holds the hash of the bytes that were checked.
#include "probe.h"

#include <sys/stat.h>

#include <chrono>
#include <map>
#include <mutex>

#include "elf.h"
#include "failure.h"
#include "fork.h"
#include "loader.h"
#include "octavo/octavo.h"
#include "probe_cache.h"
#include "probe_places.h"
#include "probe_spawn.h"
#include "text.h"

namespace octavo {
namespace {

std::string identity(const std::string &path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return "none";
  return std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino) + ":" +
         std::to_string(st.st_size) + ":" + std::to_string(st.st_mtim.tv_sec) + "." +
         std::to_string(st.st_mtim.tv_nsec);
}

// Everything that a verdict depends on.
std::string key_of(const Hardware &hardware, const Manifest &manifest, const std::string &sha256,
                   const std::string &helper) {
  std::string key =
      manifest.library + "\n" + identity(manifest.library) + "\n" + sha256 + "\n" + manifest.name +
      "\n" + std::to_string(manifest.abi_major) + "." + std::to_string(manifest.abi_minor) +
      "\noctavo " + std::string(view(octavo_version())) + " ABI " +
      std::to_string(OCTAVO_ABI_MAJOR) + "." + std::to_string(OCTAVO_ABI_MINOR) + "\n" + helper +
      " " + identity(helper) + "\n" + hardware.cpu_model + "\n" + hardware.cuda_text + "\n";
  for (const CudaDevice &d : hardware.cuda_devices)
    key += std::to_string(d.index) + " " + d.name + " " + std::to_string(d.capability_major) + "." +
           std::to_string(d.capability_minor) + "\n";
  return key;
}

Verdict fault_verdict(const std::string &library, ProbeStage stage, const std::string &fault) {
  return {OCTAVO_LEVEL_PLUGIN,
          OCTAVO_DECLINE,
          OCTAVO_REASON_PROBE,
          library + ": the process that tries the plugin first " + fault,
          "stage " + std::string(stage_name(stage)) + ", " + library,
          "install a corrected build; octavo probe --retry tries the same file again"};
}

class Prober {
 public:
  Prober(const Config &config, const Hardware &hardware, const Manifest &manifest,
         const std::string &sha256)
      : config_(config), hardware_(hardware), manifest_(manifest), sha256_(sha256) {}

  ProbeReport run() {
    if (opened_in_this_process(manifest_.library)) return accepted("opened before");
    if (const auto verdict = abi_verdict(manifest_)) {
      report_.stage = ProbeStage::kManifest;
      report_.how = "refused by its manifest";
      report_.verdicts = {*verdict};
      return std::move(report_);
    }
    if (config_.probe == "never") return by_headers("plugins.probe = \"never\"");
    const bool always = config_.probe == "always";
    if (!always && belongs_to_liboctavo(manifest_.library))
      return by_headers("part of this installation");
    std::vector<std::string> looked;
    const std::string helper = probe_helper(&looked);
    if (helper.empty()) return without_helper(looked);
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
    return sound(inspect_elf(manifest_.library)) ? accepted(how) : std::move(report_);
  }

  ProbeReport without_helper(const std::vector<std::string> &looked) {
    report_.how = "no helper";
    report_.verdicts.push_back(
        {OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_PROBE,
         manifest_.library + ": cannot be tried first, the program octavo-probe is missing",
         "looked for " + enumerate(looked, "or"),
         "reinstall Octavo, or set plugins.probe = \"never\" for plugins that you trust"});
    return std::move(report_);
  }

  // More time than an earlier, late probe had makes that one void.
  bool holds(const RememberedProbe &probe) const {
    return probe.answer.verdicts.empty() || config_.probe_timeout_ms <= probe.timeout_ms;
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
    const ElfCheck check = inspect_elf(manifest_.library);
    if (!sound(check)) return std::nullopt;
    std::vector<std::string> arguments = {helper,
                                          manifest_.library,
                                          manifest_.name,
                                          std::to_string(manifest_.abi_major),
                                          std::to_string(manifest_.abi_minor),
                                          std::to_string(config_.probe_timeout_ms)};
    arguments.insert(arguments.end(), check.preload.begin(), check.preload.end());
    const auto begin = std::chrono::steady_clock::now();
    const SpawnedProbe spawned = spawn_probe(arguments, config_.probe_timeout_ms);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    take(spawned.answer);
    report_.how = "probed in " + std::to_string(static_cast<int>(took.count() + 0.5)) + " ms";
    if (spawned.fault.empty()) {
      const bool lied = !report_.accepted && report_.verdicts[0].reason == OCTAVO_REASON_PROBE;
      if (!report_.accepted && !lied) return std::nullopt;
      return RememberedProbe{spawned.answer, config_.probe_timeout_ms};
    }
    report_.accepted = false;
    report_.verdicts = {fault_verdict(manifest_.library, report_.stage, spawned.fault)};
    if (!spawned.started) return std::nullopt;
    RememberedProbe crash{spawned.answer, config_.probe_timeout_ms};
    crash.answer.verdicts = report_.verdicts;
    // Only lateness may be cured by time.
    if (!spawned.late) crash.timeout_ms = kMaxProbeTimeout;
    return crash;
  }

  const Config &config_;
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

bool check_probe(const Config &config, const Hardware &hardware, const Manifest &manifest,
                 const std::string &sha256, const octavo_host *host,
                 std::vector<Verdict> &verdicts) {
  const ProbeReport report = probe_plugin(config, hardware, manifest, sha256);
  for (const std::string &warning : report.warnings)
    diagnose(host, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, "octavo.probe",
             manifest.library + ": " + warning);
  for (const std::string &note : report.notes)
    diagnose(host, OCTAVO_SEVERITY_DEBUG, OCTAVO_OK, "octavo.probe",
             manifest.library + ": " + note);
  for (Verdict v : report.verdicts) {
    if (v.reason == OCTAVO_REASON_PROBE)
      v.stage = "probe";
    else if (v.stage.empty())  // not the helper's: the process gets it alike without one
      v.stage = report.stage == ProbeStage::kElf ? "elf" : "manifest";
    verdicts.push_back(std::move(v));
  }
  return report.accepted;
}

}  // namespace octavo

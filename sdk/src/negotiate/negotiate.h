// Negotiation: wanted x hardware x plugins x kernels -> one candidate that runs, or reasons.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "sdk/src/config/options.h"
#include "sdk/src/config/remedy.h"
#include "sdk/src/machine/hardware.h"
#include "sdk/src/plugin/discovery.h"
#include "sdk/src/plugin/loader.h"
#include "sdk/src/probe/probe.h"
#include "sdk/src/trust/lock.h"
#include "sdk/src/trust/trust.h"

namespace octavo {

// The kernels of one device, opened; closed with the object.
class OpenDevice {
 public:
  // Throws Failure(OCTAVO_FAILED_DEVICE) when the device cannot be opened.
  // `memory`: of a device with memory of its own, where its kernels offer any; else null.
  OpenDevice(octavo_device device, const octavo_kernels &kernels, const octavo_memory *memory,
             const octavo_host *host);
  // The device of `below` with a layer on its kernels: the table of both, and its ctx.
  OpenDevice(std::shared_ptr<const OpenDevice> below, const octavo_kernels &kernels,
             const octavo_memory &memory, void *ctx);
  ~OpenDevice();
  OpenDevice(const OpenDevice &) = delete;
  OpenDevice &operator=(const OpenDevice &) = delete;

  octavo_device device() const { return device_; }
  const octavo_kernels &kernels() const { return kernels_; }
  const octavo_kernels_caps &caps() const { return caps_; }
  void *ctx() const { return ctx_; }
  // Whether the kernels do what `question` describes: in hardware, or emulated where all is.
  bool serves(octavo_ability question) const;
  const octavo_memory *memory() const { return memory_ ? &*memory_ : nullptr; }
  bool uses_host_memory() const { return device_.type == OCTAVO_DEVICE_CPU; }

 private:
  void describe();
  [[noreturn]] void fail(octavo_status status);  // closes what is open

  std::shared_ptr<const OpenDevice> below_;  // of a layer; closed after it
  octavo_device device_;
  octavo_kernels kernels_;               // complete
  std::optional<octavo_memory> memory_;  // complete
  octavo_kernels_caps caps_{};
  std::string id_;  // of the kernels
  void *ctx_ = nullptr;
};

// What one stage answered.
struct StageResult {
  bool passed = false;
  std::string text;  // what was found there
};

struct Candidate {
  std::string id;             // a backend's id, or "bf16", "fp16", "no"
  bool is_precision = false;  // plain mixed precision: the host's own linears
  bool is_fallback = false;
  std::string manifest;
  std::string origin;
  bool is_tried = false;  // false: one before it was chosen
  // Of the stages that were reached, in order: from discovery on, of a precision the session alone.
  // Only the last one may not have passed.
  std::vector<StageResult> stages;
  std::vector<Verdict> verdicts;
  std::vector<std::string> warnings;  // of its trial: it may run, and a reader should know
  std::optional<Manifest> described;  // the manifest, once it was read
  int32_t first_device = 0;           // that meets its [requires.accelerator]
  const LoadedPlugin *plugin = nullptr;
  std::vector<EffectiveOption> options;
  // By rule of the configuration: the options that differ for its layers.
  std::vector<std::vector<EffectiveOption>> rule_options;
};

// What a backend of the search path states in its manifest; problem: why that is not known.
struct BackendOptions {
  std::string id;
  std::vector<DeclaredOption> declared;
  std::string problem;
};

struct Negotiation {
  Config config;
  Discovery discovery;
  TrustPolicy trust;
  Hardware hardware;
  std::string device_kind;  // as in device.kind: "cuda"
  std::string device_text;  // "cuda:0 (<its name>)"
  std::vector<Verdict> device_verdicts;
  // The plugin of kernels that computes, or the last one that was asked; on the CPU none, unless
  // device.kernels names one.
  std::optional<Candidate> kernels;
  std::vector<Candidate> layers;       // that stand on them, from below
  std::shared_ptr<OpenDevice> device;  // stores keep it, too
  std::vector<Candidate> candidates;   // what the configuration names, in order
  // The options of the backends that check_all_options looked at, by id.
  std::map<std::string, std::vector<EffectiveOption>> checked_options;
  std::optional<size_t> chosen;  // index into candidates

  std::vector<std::string> warnings;     // what the configuration asks for and nothing does
  std::vector<ProbedPlugin> probes;      // of octavo_probe only
  std::vector<BackendOptions> declared;  // of the schema only

  const Candidate *choice() const { return chosen ? &candidates[*chosen] : nullptr; }
  // What a rule of `config` gives to its layers, of the backend that runs; empty: nothing, or none
  // runs.
  const std::vector<EffectiveOption> &options_of(const LayerRule &rule) const;
};

// Reads the configuration, the search path and the hardware; no plugin code runs.
// Throws Failure(OCTAVO_INVALID) when the configuration is wrong.
Negotiation prepare(const octavo_open_desc &desc);

// Asks the backend of a candidate about this device and these options, and whether its answer is
// enough for [fp8.require].
void ask_backend(const Negotiation &n, Candidate &c, const octavo_host *host);

// A plugin whose manifest states kernels.
struct InstalledKernels {
  std::string id;
  ManifestKernels serves;
  Manifest manifest;
};
// In order of the search, without shadowed ones; no plugin code runs. *unread receives the verdicts
// on manifests that cannot be read, which may be any plugin's.
std::vector<InstalledKernels> installed_kernels(const Negotiation &n,
                                                std::vector<Verdict> *unread = nullptr);

// Of a device kind that no installed kernels serve.
std::string no_kernels(const std::string &kind);
// What to do about it: what the machine lacks for them comes first.
std::string install_kernels(const Hardware &hardware, const std::string &kind);

// Opens these kernels as the device of a negotiation, or notes why it has none.
void open_kernels(Negotiation &n, octavo_device device, const octavo_kernels &kernels,
                  const octavo_memory *memory, const octavo_host *host);

// The device with the layer of a plugin on its kernels; null with the reason in `verdicts`.
std::shared_ptr<OpenDevice> with_layer(std::shared_ptr<const OpenDevice> below,
                                       const LoadedPlugin &plugin, const octavo_host *host,
                                       std::vector<Verdict> &verdicts);
// Stands these layers on the device of a negotiation, each once, or closes it with the reason in
// `verdicts`. `key`: what names them.
void add_layers(Negotiation &n, const std::vector<std::string> &ids, const std::string &key,
                const octavo_host *host, std::vector<Verdict> &verdicts);

// Fills device, candidates and chosen. When nothing can run, `chosen` is empty and the verdicts
// give the reasons. Throws Failure(OCTAVO_INVALID) when the options of a candidate are wrong.
void negotiate(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host);

// A table [fp8.<id>] whose backend is not installed is a misspelling, or a wish nobody can check;
// also in a rule. Throws Failure(OCTAVO_INVALID).
void check_tables(const Negotiation &n);
// Throws Failure where fp8.fallback has a precision in other letters, which would be a backend's
// name.
void check_fallback(const Config &config);

// Checks the options of every backend that has a table in the configuration, chosen or not, and of
// those that the configuration would try, by their manifests: no plugin code runs. What a manifest
// does not state is a warning. Returns why the backend that is named, and that nobody has, would be
// refused; empty: it would not.
std::string check_all_options(Negotiation &n, const octavo_host *host);

// Every key in effect: what is set, and what nothing sets of the backends that were looked at.
LentSettings settings_of(const Negotiation &n);

// How to apply the remedy of a declining verdict: an edit of the configuration or a command, in the
// words of remedy.h. Where the remedy itself names none, how to go on without the candidate. Empty
// for other verdicts, and where no edit is known. `c`: null for verdicts on layers.
std::string how_to_apply(const Source &source, const Negotiation &n, const Candidate *c,
                         const Verdict &v);
// The configuration's text, for how_to_apply.
Source source_of(const Config &config);

// The first declining verdict of the first candidate that has one; null without one.
const Verdict *first_refusal(const Negotiation &n, const Candidate **candidate);

// Chooses and opens the device: fills device, device_text and device_verdicts.
void choose_device(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host);

// The refusal in words: every candidate with its declining verdicts.
std::string refusal(const Negotiation &n);

// The session description of a candidate; borrows from n, candidate and `options`.
octavo_session_desc describe_session(const Negotiation &n, const octavo_host *host,
                                     const std::vector<octavo_option_value> &options);

// What a plugin is wanted for.
enum class PluginRole { kBackend, kKernels, kLayer };

// By the manifest of every plugin that is not shadowed; those that are no backends are left out.
std::vector<BackendOptions> options_of_backends(const Negotiation &n, const octavo_host *host);

// Discovery, manifest, trust, library, handshake: fills plugin, or leaves it null with the reason
// in the verdicts, also when it does not offer what is wanted.
void load_candidate(const Negotiation &n, Candidate &c, PluginRole wanted, const octavo_host *host);

// The same as far as its files say, before any of its code runs: manifest and trust. Whether it
// passes; if so, the manifest is in `described`.
bool read_candidate(const Negotiation &n, Candidate &c, const octavo_host *host);

// The options of a candidate that has these, in effect. Throws Failure(OCTAVO_INVALID) when the
// configuration is wrong.
void resolve_options(const Negotiation &n, Candidate &c,
                     const std::vector<DeclaredOption> &declared);

// All stages. It may run when no verdict declines.
// Layers that its manifest requires stand on the device from then on.
void evaluate(Negotiation &n, Candidate &c, const octavo_host *host);

// `octavo plugin lock`: asks every backend that a configuration names. Writes octavo.lock next to
// the configuration file of `desc`. Entries of other platforms stay. Returns what was written for
// this one. Backends that cannot be loaded are warnings; none that can is
// Failure(OCTAVO_UNSUPPORTED), and no file is written. *path receives the file's name.
std::vector<LockedPlugin> write_lock_for(const octavo_open_desc &desc, const octavo_host *host,
                                         std::string *path);

}  // namespace octavo

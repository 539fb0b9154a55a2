// Which device is used, and why not another one.
#include "kernels/cpu/table.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/negotiate/negotiate.h"
#include "sdk/src/plugin/manifest_requires.h"

namespace octavo {
namespace {

// To go on without the device: "set device.kind = "cpu" or "auto"<more>".
Remedy use_cpu(const std::string &more = {}) {
  return set_key("device.kind", "\"cpu\"", " or \"auto\"" + more);
}

// Devices of a kind that a host without an index may have.
constexpr int32_t kMostDevices = 16;

// kDLExtDev of DLPack: devices of any vendor, which have their kinds to tell them apart.
constexpr uint32_t kExtensionDevice = 12;

// What a run asks of kernels.
struct Wanted {
  uint32_t type = OCTAVO_DEVICE_AUTO;  // AUTO: any
  std::optional<std::string> kind;     // nothing: any
  std::string kernels;                 // a plugin's id, or "auto"
  std::optional<int32_t> index;        // nothing: the first device that they accept
  std::string text;                    // of the device, for messages: "npu"

  bool fits(const ManifestKernels &k) const {
    return (type == OCTAVO_DEVICE_AUTO || k.device_type == int64_t{type}) &&
           (!kind || k.kind == *kind);
  }
};

Wanted wanted_of(const Negotiation &n, const octavo_device &asked) {
  Wanted w;
  w.type = asked.type;
  w.kernels = n.config[key::kKernels];
  if (asked.type != OCTAVO_DEVICE_AUTO || asked.index > 0) w.index = asked.index;
  const std::string &kind = n.config[key::kDevice];
  if (asked.type == OCTAVO_DEVICE_CPU) {
    w.kind = "cpu";
  } else if (asked.type == OCTAVO_DEVICE_AUTO) {
    // Only the host and its configuration know where its tensors are.
    if (kind != "auto")
      w.kind = kind;
    else if (w.kernels == "auto")
      w.kind = "cpu";
  } else if (w.type == kExtensionDevice && kind != "auto") {
    w.kind = kind;
  } else {
    // Several kinds may share a type; a host's type counts more than a kind of another one.
    for (const InstalledKernels &k : installed_kernels(n))
      if (k.serves.kind == kind && k.serves.device_type == int64_t{w.type}) w.kind = kind;
    w.text = w.type == OCTAVO_DEVICE_CUDA ? "cuda" : concat("device type ", w.type);
  }
  if (w.kind) w.text = *w.kind;
  if (w.kind && w.type == kExtensionDevice) w.text += concat(" (device type ", w.type, ")");
  if (w.text.empty()) w.text = "the device of " + w.kernels;
  return w;
}

std::string enumerate_kernels(const std::vector<InstalledKernels> &installed) {
  std::vector<std::string> words;
  for (const InstalledKernels &k : installed)
    words.push_back(
        concat(k.id, " for ", k.serves.kind, " (device type ", k.serves.device_type, ")"));
  return enumerate(words);
}

// No installed kernels fit, or not those that device.kernels names.
Verdict none_fits(const Negotiation &n, const Wanted &w,
                  const std::vector<InstalledKernels> &installed) {
  const bool named = w.kernels != "auto";
  std::vector<std::string> kinds, ids;
  for (const InstalledKernels &k : installed) {
    if (w.type == OCTAVO_DEVICE_AUTO || k.serves.device_type == int64_t{w.type})
      kinds.push_back(k.serves.kind);
    ids.push_back(k.id);
  }
  const std::string near = named             ? nearest(w.kernels, ids)
                           : w.kind == "gpu" ? std::string("cuda")
                           : w.kind          ? nearest(*w.kind, kinds)
                                             : std::string();
  Verdict v = {
      OCTAVO_LEVEL_DEVICE,
      OCTAVO_DECLINE,
      OCTAVO_REASON_KERNEL,
      named ? concat("device.kernels: no plugin \"", w.kernels, "\" has kernels for ", w.text)
            : no_kernels(w.text),
      concat("installed kernels: ", enumerate_kernels(installed), "; looked in ",
             n.discovery.places_text()),
      use_cpu(", or " + install_kernels(n.hardware, w.text))};
  if (!near.empty())
    v.remedy =
        Remedy("did you mean \"" + near + "\"?",
               named ? n.config.change(key::kKernels, near) : n.config.change(key::kDevice, near));
  else if (named)
    v.remedy = set_key("device.kernels", "\"auto\"", ", or install that plugin");
  return v;
}

// Without an index of the host: the first device from `first` on that the kernels accept, or that.
int32_t first_accepted(const octavo_kernels &kernels, uint32_t type, int32_t first) {
  for (int32_t i = first; i < first + kMostDevices; ++i) {
    std::vector<Verdict> verdicts;
    const VerdictSink sink(verdicts);
    const octavo_status status = kernels.probe_device({type, i}, sink.get());
    sink.check();
    if (status == OCTAVO_OK && !verdicts.empty() && !declined(verdicts)) return i;
  }
  return first;
}

// Opens the device on the kernels of one plugin, or appends why it has none to the verdicts.
void ask_kernels(Negotiation &n, const InstalledKernels &k, const Wanted &w,
                 const octavo_host *host) {
  const size_t before = n.device_verdicts.size();
  Candidate &c = n.kernels.emplace();
  c.id = k.id;
  c.is_tried = true;
  load_candidate(n, c, PluginRole::kKernels, host);
  if (c.described) c.described->file = c.described->checked = nullptr;  // nothing stays open
  if (c.plugin != nullptr) check_locked_verdict(c.id, n.trust, c.verdicts);
  n.device_verdicts.insert(n.device_verdicts.end(), c.verdicts.begin(), c.verdicts.end());
  if (c.plugin != nullptr && !declined(c.verdicts)) {
    const LoadedPlugin &found = *c.plugin;
    const auto type = static_cast<uint32_t>(k.serves.device_type);
    const octavo_device device = {
        type, w.index ? *w.index : first_accepted(*found.kernels, type, c.first_device)};
    open_kernels(n, device, *found.kernels, found.memory ? &*found.memory : nullptr, host);
    n.device_kind = k.serves.kind;
    n.device_text = concat(k.serves.kind, ":", device.index);
    if (n.device != nullptr && !n.device_verdicts.back().evidence.empty())
      n.device_text += " (" + n.device_verdicts.back().evidence + ")";
  }
  for (size_t i = before; i < n.device_verdicts.size(); ++i) {
    Verdict &v = n.device_verdicts[i];
    v.text = concat("kernels ", k.id, ": ", v.text);
    // What the machine lacks can be done without; what is wrong with the plugin is repaired.
    if (v.reason != OCTAVO_REASON_DRIVER && v.reason != OCTAVO_REASON_DEVICE) continue;
    v.level = OCTAVO_LEVEL_DEVICE;
    v.stage = Stage::kDevice;
    if (v.remedy.fix.key != key::kDevice.name)
      v.remedy = use_cpu(v.remedy.empty() ? std::string() : ", or " + v.remedy.text);
  }
}

// Asks the plugins that fit, in the order of the search, until one opens the device.
void ask_plugins(Negotiation &n, const Wanted &w, const octavo_host *host) {
  n.device_text = w.text;
  std::vector<Verdict> unread;
  const std::vector<InstalledKernels> installed = installed_kernels(n, &unread);
  bool asked = false;
  for (const InstalledKernels &k : installed) {
    if (!w.fits(k.serves) || (w.kernels != "auto" && k.id != w.kernels)) continue;
    asked = true;
    const size_t before = n.device_verdicts.size();
    ask_kernels(n, k, w, host);
    if (n.device == nullptr) continue;
    for (size_t i = 0; i < before; ++i)
      if (n.device_verdicts[i].decision == OCTAVO_DECLINE)
        warn(host, "octavo.device", n.device_verdicts[i].text, "; kernels ", k.id, " compute on ",
             n.device_text);
    n.device_verdicts.erase(n.device_verdicts.begin(),
                            n.device_verdicts.begin() + static_cast<std::ptrdiff_t>(before));
    return;
  }
  n.device_verdicts.insert(n.device_verdicts.end(), unread.begin(), unread.end());
  if (asked) return;
  Candidate &c = n.kernels.emplace();
  c.id = w.kernels == "auto" ? "a plugin of kernels" : w.kernels;
  c.is_tried = true;
  n.discovery.must_know(w.kernels == "auto" ? "kernels-" + w.text : w.kernels);
  c.verdicts.push_back(none_fits(n, w, installed));
  n.device_verdicts.push_back(c.verdicts.back());
}

// No key of the configuration changes what a host asks for.
void word_for_host(std::vector<Verdict> &verdicts) {
  for (Verdict &v : verdicts)
    if (v.decision == OCTAVO_DECLINE && v.remedy.fix.key == key::kDevice.name)
      v.remedy =
          "open the run with device type OCTAVO_DEVICE_AUTO or OCTAVO_DEVICE_CPU" +
          (v.remedy.text.starts_with(use_cpu().text) ? v.remedy.text.substr(use_cpu().text.size())
                                                     : std::string());
}

}  // namespace

std::string no_kernels(const std::string &kind) {
  return concat("no kernels for ", kind, " are installed");
}

std::string install_kernels(const Hardware &hardware, const std::string &kind) {
  if (kind != "cuda")
    return "install a plugin of kernels for it: its manifest states [kernels] (page "
           "writing_kernels)";
  const std::string install =
      "install the kernels from the file of this release: `python -m pip install "
      "octavo_cuda-*.whl` (page install)";
  std::vector<Verdict> lacks;
  if (check_gpu_of_release(hardware, lacks)) return install;
  const Verdict &first = lacks[0];
  const bool other_gpu = first.reason == OCTAVO_REASON_DEVICE && !hardware.cuda_devices.empty();
  return concat(first.remedy.text, " (", first.text, ", found ", first.evidence, ")",
                other_gpu ? "" : "; then " + install);
}

std::vector<InstalledKernels> installed_kernels(const Negotiation &n,
                                                std::vector<Verdict> *unread) {
  std::vector<InstalledKernels> all;
  std::vector<Verdict> unwanted;
  for (const FoundManifest &found : n.discovery.manifests) {
    if (!found.shadowed_by.empty()) continue;
    std::optional<Manifest> manifest =
        read_manifest(found.path, unread != nullptr ? *unread : unwanted);
    if (!manifest || manifest->kernels.kind.empty()) continue;
    manifest->file = nullptr;  // nothing stays open
    all.push_back({manifest->name, manifest->kernels, *manifest});
  }
  return all;
}

void open_kernels(Negotiation &n, octavo_device device, const octavo_kernels &kernels,
                  const octavo_memory *memory, const octavo_host *host) {
  const size_t before = n.device_verdicts.size();
  const VerdictSink sink(n.device_verdicts);
  const octavo_status status = kernels.probe_device(device, sink.get());
  sink.check();
  pass_resource(status, "the kernels: probe_device", Stage::kDevice);
  if (status != OCTAVO_OK || n.device_verdicts.size() == before)
    n.device_verdicts.push_back({OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE,
                                 status != OCTAVO_OK ? OCTAVO_REASON_KERNEL : OCTAVO_REASON_ABI,
                                 status != OCTAVO_OK
                                     ? concat("probe_device failed with status ", status)
                                     : "probe_device gave no verdict; expected one or more",
                                 "", use_cpu()});
  for (size_t i = before; i < n.device_verdicts.size(); ++i)
    if (n.device_verdicts[i].decision == OCTAVO_DECLINE) return;
  try {
    n.device = std::make_shared<OpenDevice>(device, kernels, memory, host);
  } catch (const Failure &f) {
    const char *forced = std::getenv("OCTAVO_FORCE_KERNELS");
    const bool is_forced = device.type == OCTAVO_DEVICE_CPU && forced != nullptr && *forced != '\0';
    n.device_verdicts.push_back(
        {OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL, f.text(),
         is_forced ? std::string("OCTAVO_FORCE_KERNELS = \"") + forced + "\"" : "",
         is_forced ? run_command("unset OCTAVO_FORCE_KERNELS",
                                 ", so that the best kernels of this processor are taken")
                   : Remedy()});
  }
}

void choose_device(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host) {
  const Wanted w = wanted_of(n, desc.device);
  if (w.kind == "cpu" && w.kernels == "auto") {
    n.device_kind = n.device_text = "cpu";
    if (desc.device.type == OCTAVO_DEVICE_AUTO && n.config[key::kDevice] == "auto")
      n.device_text += " (auto: neither the host nor device.kind requests another)";
    open_kernels(n, {OCTAVO_DEVICE_CPU, 0}, *octavo_cpu_kernels(), nullptr, host);
  } else {
    ask_plugins(n, w, host);
  }
  if (n.device != nullptr)
    add_layers(n, n.config[key::kLayers], key::kLayers.name, host, n.device_verdicts);
  if (desc.device.type > OCTAVO_DEVICE_CPU) word_for_host(n.device_verdicts);
}

OpenDevice::OpenDevice(octavo_device device, const octavo_kernels &kernels,
                       const octavo_memory *memory, const octavo_host *host)
    : device_(device), kernels_(complete(kernels)) {
  if (memory != nullptr) memory_ = complete(*memory);
  const octavo_status status = kernels_.open_device(device, host, &ctx_);
  if (status != OCTAVO_OK) fail(status);
  describe();
}

OpenDevice::OpenDevice(std::shared_ptr<const OpenDevice> below, const octavo_kernels &kernels,
                       const octavo_memory &memory, void *ctx)
    : below_(std::move(below)), device_(below_->device_), kernels_(kernels), ctx_(ctx) {
  if (below_->memory_) memory_ = memory;
  describe();
}

void OpenDevice::describe() {
  caps_.size = sizeof(caps_);
  caps_.kind = OCTAVO_KIND_KERNELS_CAPS;
  const octavo_status status = kernels_.describe(ctx_, &caps_);
  if (status != OCTAVO_OK) fail(status);
  id_ = take_text(caps_.id);
  caps_.id = borrow(id_);
}

void OpenDevice::fail(octavo_status status) {
  if (ctx_ != nullptr) kernels_.close_device(ctx_);
  pass_resource(status, "the kernels of the device", Stage::kDevice);
  throw Failure(OCTAVO_FAILED_DEVICE, "octavo.device",
                "the kernels of the device could not be opened: status ", status,
                "; see the diagnostics before this one");
}

bool OpenDevice::serves(octavo_ability question) const {
  if (kernels_.ability(ctx_, &question) != OCTAVO_OK) return false;
  return question.decision == OCTAVO_ACCEPT ||
         (question.decision == OCTAVO_ACCEPT_EMULATED && (caps_.flags & OCTAVO_CAPS_EMULATED) != 0);
}

OpenDevice::~OpenDevice() {
  kernels_.close_device(ctx_);
}

}  // namespace octavo

// Which device is used, and why not another one.
#include "kernels/cpu/table.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/shortage.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/negotiate/negotiate.h"

namespace octavo {
namespace {

// Looks for the plugin of CUDA kernels; null when it cannot be used, and then the verdicts give the
// reason.
const LoadedPlugin *cuda_kernels(Negotiation &n, const octavo_host *host) {
  n.kernels.emplace();
  Candidate &c = *n.kernels;
  c.id = kCudaKernels;
  c.is_tried = true;
  if (n.discovery.find(c.id) == nullptr) {
    n.discovery.must_know(c.id);
    std::string gpus;
    for (const CudaDevice &d : n.hardware.cuda_devices) gpus += ", " + d.name;
    c.verdicts.push_back({OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL, kNoCudaKernels,
                          n.hardware.cuda_text + gpus + "; looked in " + n.discovery.places_text(),
                          use_cpu(concat(", or ", kInstallCudaKernels))});
    return nullptr;
  }
  load_candidate(n, c, Offer::kKernels, host);
  if (c.described) c.described->file = c.described->checked = nullptr;  // nothing stays open
  if (c.plugin == nullptr) return nullptr;
  check_locked_verdict(c.id, n.trust, c.verdicts);
  return declined(c.verdicts) ? nullptr : c.plugin;
}

std::string gpu_text(const Hardware &hardware, int index) {
  for (const CudaDevice &d : hardware.cuda_devices)
    if (d.index == index) return concat("cuda:", index, " (", d.name, ")");
  return concat("cuda:", index);
}

void choose_cuda(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host) {
  n.device_text = "cuda";
  if (const std::optional<Verdict> refused = refuse_cuda(n.hardware)) {
    n.device_verdicts.push_back(*refused);
  } else if (const LoadedPlugin *found = cuda_kernels(n, host)) {
    const bool named = desc.device.type == OCTAVO_DEVICE_CUDA;
    const int index = named ? desc.device.index : first_usable(n.hardware)->index;
    n.device_text = gpu_text(n.hardware, index);
    open_kernels(n, {OCTAVO_DEVICE_CUDA, index}, *found->kernels,
                 found->memory ? &*found->memory : nullptr, host);
  }
  if (n.kernels)
    n.device_verdicts.insert(n.device_verdicts.begin(), n.kernels->verdicts.begin(),
                             n.kernels->verdicts.end());
  if (desc.device.type != OCTAVO_DEVICE_CUDA) return;
  for (Verdict &v : n.device_verdicts)  // no key of the configuration changes what a host asks for
    if (v.decision == OCTAVO_DECLINE && v.remedy.fix.key == key::kDevice.name)
      v.remedy = "open the run with device type OCTAVO_DEVICE_AUTO or OCTAVO_DEVICE_CPU" +
                 v.remedy.text.substr(use_cpu().text.size());
}

}  // namespace

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
  if (desc.device.type > OCTAVO_DEVICE_CUDA)
    throw Failure(OCTAVO_INVALID, "octavo.open",
                  "device: expected type 0 (auto), 1 (cpu) or 2 (cuda), found ", desc.device.type);
  std::string kind = n.config[key::kDevice];
  if (desc.device.type == OCTAVO_DEVICE_CPU) kind = "cpu";
  if (desc.device.type == OCTAVO_DEVICE_CUDA) kind = "cuda";
  if (kind == "cuda") return choose_cuda(n, desc, host);
  // Only the host and its configuration know whether its tensors are on a GPU.
  n.device_text = "cpu";
  if (kind == "auto")
    n.device_text += " (auto; cuda: " +
                     (n.hardware.cuda_devices.empty()
                          ? n.hardware.cuda_text
                          : std::string("neither the host nor device.kind asks for it")) +
                     ")";
  open_kernels(n, {OCTAVO_DEVICE_CPU, 0}, *octavo_cpu_kernels(), nullptr, host);
}

OpenDevice::OpenDevice(octavo_device device, const octavo_kernels &kernels,
                       const octavo_memory *memory, const octavo_host *host)
    : device_(device), kernels_(complete(kernels)) {
  if (memory != nullptr) memory_ = complete(*memory);
  caps_.size = sizeof(caps_);
  caps_.kind = OCTAVO_KIND_KERNELS_CAPS;
  octavo_status status = kernels_.open_device(device, host, &ctx_);
  if (status == OCTAVO_OK) status = kernels_.describe(ctx_, &caps_);
  if (status != OCTAVO_OK) {
    if (ctx_ != nullptr) kernels_.close_device(ctx_);
    pass_resource(status, "the kernels of the device", Stage::kDevice);
    throw Failure(OCTAVO_DEVICE, "octavo.device",
                  "the kernels of the device could not be opened: status ", status,
                  "; see the diagnostics before this one");
  }
  id_ = take_text(caps_.id);
  caps_.id = borrow(id_);
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

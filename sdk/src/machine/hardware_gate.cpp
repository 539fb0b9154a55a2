// What a GPU must have before its kernels are worth a question.
#include "sdk/src/machine/hardware.h"

namespace octavo {
namespace {

constexpr int kMinCuda = 12000;                     // the oldest driver that Octavo takes
constexpr int kMinCapability = 8 * 10 + 9;          // the first with FP8 units
constexpr uint64_t kMinFree = uint64_t{512} << 20;  // a context and a workspace

std::string describe(const CudaDevice &d) {
  return concat("GPU ", d.index, ": ", d.name, ", capability ", d.capability_major, ".",
                d.capability_minor, ", ", d.free_bytes >> 20, " of ", d.memory_bytes >> 20,
                " MiB free");
}

bool has_units(const CudaDevice &d) {
  return d.capability_major * 10 + d.capability_minor >= kMinCapability;
}

}  // namespace

Remedy use_cpu(const std::string &more) {
  return set_key("device.kind", "\"cpu\"", " or \"auto\"" + more);
}

const CudaDevice *first_usable(const Hardware &hw) {
  if (!hw.cuda_driver || hw.cuda_version < kMinCuda) return nullptr;
  for (const CudaDevice &d : hw.cuda_devices)
    if (has_units(d) && d.free_bytes >= kMinFree) return &d;
  return nullptr;
}

std::optional<Verdict> refuse_cuda(const Hardware &hw, std::string *repair) {
  const auto refused = [&](uint32_t reason, const char *text, const std::string &evidence,
                           const char *more) -> Verdict {
    if (repair != nullptr) *repair = more;
    return {OCTAVO_LEVEL_DEVICE,
            OCTAVO_DECLINE,
            reason,
            text,
            evidence,
            use_cpu(*more == '\0' ? std::string() : std::string(", or ") + more)};
  };
  const std::string driver =
      hw.cuda_text + (hw.driver_version.empty() ? "" : ", version " + hw.driver_version);
  if (!hw.cuda_driver)
    return refused(OCTAVO_REASON_DRIVER, "this machine offers no CUDA device", driver,
                   "install the driver of the GPU");
  if (hw.cuda_version < kMinCuda)
    return refused(OCTAVO_REASON_DRIVER,
                   "the driver is too old: expected one for CUDA 12.0 or newer", driver,
                   "upgrade the driver of the GPU");
  if (hw.cuda_devices.empty() && hw.mig_devices > 0)
    return refused(
        OCTAVO_REASON_DEVICE,
        "the GPU is in MIG mode, and no instance of it is offered to this process",
        concat(driver, ", ", hw.mig_devices, " GPU(s) in MIG mode"),
        "create an instance with `nvidia-smi mig -cgi 0 -C` and name it in CUDA_VISIBLE_DEVICES");
  if (hw.cuda_devices.empty())
    return refused(OCTAVO_REASON_DEVICE, "this machine offers no CUDA device", driver,
                   "name the GPU in CUDA_VISIBLE_DEVICES");
  std::string all;
  const CudaDevice *capable = nullptr;
  for (const CudaDevice &d : hw.cuda_devices) {
    all += (all.empty() ? "" : "; ") + describe(d);
    if (!has_units(d)) continue;
    if (d.free_bytes >= kMinFree) return std::nullopt;
    if (capable == nullptr) capable = &d;
  }
  if (capable == nullptr)
    return refused(OCTAVO_REASON_DEVICE,
                   "no GPU here has FP8 units: capability 8.9 or higher is needed", all, "");
  return refused(OCTAVO_REASON_DEVICE, "no GPU with FP8 units has 512 MiB of free memory", all,
                 "end what fills it: `nvidia-smi` lists the processes");
}

}  // namespace octavo

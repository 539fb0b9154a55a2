// Hardware: what this machine has. A missing driver or device is a normal answer, never an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo {

struct CudaDevice {
  int index = 0;
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;  // by NVML; memory_bytes without NVML
};

struct Hardware {
  std::string cpu_model;
  std::vector<std::string> cpu_features;  // those that kernels choose by
  unsigned cores = 0;                     // that this process may use
  uint64_t memory_bytes = 0;
  bool cuda_driver = false;
  int cuda_version = 0;        // that the driver supports: 12040 is CUDA 12.4
  std::string driver_version;  // "550.54.14"; empty without NVML
  std::string cuda_text;       // the driver's version, or why there is none
  std::vector<CudaDevice> cuda_devices;
  unsigned mig_devices = 0;   // GPUs in MIG mode, which offer instances only
  bool cuda_library = false;  // the driver's library was found, whether it works or not
};

// Whether the processor has this feature; negative for a name that this version does not know.
int cpu_has(const std::string &feature);

// Asks the system, and the CUDA driver and NVML by dlopen. Does not throw.
Hardware read_hardware();

// The part of it that is about GPUs.
void read_cuda(Hardware &hw);

// How many devices on the PCI bus are NVIDIA's and draw or compute, with a driver or without.
unsigned count_bus_gpus(const std::string &folder = "/sys/bus/pci/devices");

}  // namespace octavo

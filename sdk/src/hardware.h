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
};

struct Hardware {
  std::string cpu_model;
  std::vector<std::string> cpu_features;  // those that kernels choose by
  unsigned cores = 0;                     // that this process may use
  uint64_t memory_bytes = 0;
  bool cuda_driver = false;
  std::string cuda_text;  // the driver's version, or why there is none
  std::vector<CudaDevice> cuda_devices;
};

// Asks the system, and the CUDA driver by dlopen. Does not throw.
Hardware probe_hardware();

}  // namespace octavo

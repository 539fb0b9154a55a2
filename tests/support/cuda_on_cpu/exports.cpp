// What a test reaches inside the plugin that holds this runtime, by dlsym.
#include "tests/support/cuda_on_cpu/graph.h"
#include "tests/support/cuda_on_cpu/runtime.h"

extern "C" __attribute__((visibility("default"))) cuda_on_cpu::Counters *cuda_on_cpu_counters() {
  return &cuda_on_cpu::counters();
}

extern "C" __attribute__((visibility("default"))) cuda_on_cpu::Script *cuda_on_cpu_script() {
  return &cuda_on_cpu::script();
}

extern "C" __attribute__((visibility("default"))) const cuda_on_cpu::Graphs *cuda_on_cpu_graphs() {
  return &cuda_on_cpu::graphs();
}

extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_reset() {
  cuda_on_cpu::reset();
}

// The next launches succeed, and the one after them loses the device; -1: none does, and a device
// that was lost is back for this thread.
extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_lose_device_after(int launches) {
  if (launches < 0) cuda_on_cpu::reset();
  cuda_on_cpu::script().launches_before_failure = launches;
}

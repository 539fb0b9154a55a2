/* tests/kernels/cuda/executor.h: what executes device code in these tests, and its memory.
 *
 * The CPU, by tests/support/cuda_on_cpu, whose counters and scripts a test may use; or a GPU, where
 * OCTAVO_TESTS_ON_GPU is defined (tests/gpu) and there are none.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_EXECUTOR_H
#define OCTAVO_TESTS_KERNELS_CUDA_EXECUTOR_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/cuda/verbs.h"

#ifndef OCTAVO_TESTS_ON_GPU
#include "tests/support/cuda_on_cpu/runtime.h"
#endif

namespace octavo::test {

/* On the CPU every launch from here on has an unfair order of its own; where ThreadSanitizer looks,
 * blocks run at once, and a grid has few of them. OCTAVO_ORDER_SEED: for other orders. */
inline void reset_executor() {
#ifndef OCTAVO_TESTS_ON_GPU
  static uint64_t seed = [] {
    const char *first = std::getenv("OCTAVO_ORDER_SEED");
    return first == nullptr ? uint64_t{0} : std::strtoull(first, nullptr, 10);
  }();
  cuda_on_cpu::reset();
  cuda_on_cpu::Script &script = cuda_on_cpu::script();
  script.order = cuda_on_cpu::Script::Order::kUnfair;
  script.seed = ++seed;
#ifdef __SANITIZE_THREAD__
  script.blocks_at_once = true;
  script.multiprocessors = 1;
#endif
#endif
}

/* Leaves the counters as they were: a test's own copies are not what it counts. */
class Uncounted {
#ifndef OCTAVO_TESTS_ON_GPU
 public:
  ~Uncounted() {
    cuda_on_cpu::counters() = before_;
  }

 private:
  cuda_on_cpu::Counters before_ = cuda_on_cpu::counters();
#else
 public:
  ~Uncounted() {}
#endif
};

/* The context that the memory below belongs to: that of the devices a test has opened last. Null:
 * it is the host's, which the CPU reads as a device, too. */
inline void *&device_under_test() {
  static void *ctx = nullptr;
  return ctx;
}

/* Memory of the device; the host reads and writes it by copies only. */
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(const std::vector<uint8_t> &bytes) : bytes_(bytes.size()) {
    if (device_under_test() == nullptr) {
      data_ = std::malloc(std::max<size_t>(bytes_, 1));
      std::copy(bytes.begin(), bytes.end(), static_cast<uint8_t *>(data_));
      return;
    }
    const Uncounted uncounted;
    EXPECT_EQ(cuda::allocate(device_under_test(), std::max<size_t>(bytes_, 1), &data_), OCTAVO_OK);
    EXPECT_EQ(cuda::copy_now(device_under_test(), data_, bytes.data(), bytes_), OCTAVO_OK);
  }
  ~DeviceMemory() {
    const Uncounted uncounted;
    if (device_under_test() == nullptr)
      std::free(data_);
    else if (data_ != nullptr)
      cuda::release(device_under_test(), data_);
  }
  DeviceMemory(DeviceMemory &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void *data() const { return data_; }
  std::vector<uint8_t> read() const {
    const auto *begin = static_cast<const uint8_t *>(data_);
    if (device_under_test() == nullptr) return {begin, begin + bytes_};
    const Uncounted uncounted;
    std::vector<uint8_t> bytes(bytes_);
    EXPECT_EQ(cuda::copy_now(device_under_test(), bytes.data(), data_, bytes_), OCTAVO_OK);
    return bytes;
  }

 private:
  void *data_ = nullptr;
  size_t bytes_ = 0;
};

/* Memory of one side of a test (0: the CPU, 1: the device) with 0xFF in it. */
class Workspace {
 public:
  Workspace(int side, uint64_t bytes) : cpu_(bytes, 0xFF) {
    if (side == 1) device_ = DeviceMemory(cpu_);
  }
  void *data() { return device_.data() != nullptr ? device_.data() : cpu_.data(); }

 private:
  std::vector<uint8_t> cpu_;
  DeviceMemory device_;
};

}  // namespace octavo::test

#endif

/* tests/kernels/cuda/twins.h: the same call on the CPU's table and on device code that the CPU
 * executes, on memory with the same contents; afterwards all of it must be equal, byte for byte.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_TWINS_H
#define OCTAVO_TESTS_KERNELS_CUDA_TWINS_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/check/granularity.h"
#include "kernels/cuda/table.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "tests/kernels/cuda/executor.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

constexpr octavo_device kCuda = {OCTAVO_DEVICE_CUDA, 0};
#ifdef OCTAVO_TESTS_ON_GPU
constexpr bool kOnGpu = true;
#else
constexpr bool kOnGpu = false;
#endif

/* Both devices, opened. */
class Devices {
 public:
  Devices() : Devices(0) {}
  /* With so many multiprocessors, where the CPU executes; 0: the executor's default. */
  explicit Devices([[maybe_unused]] int multiprocessors) {
    reset_executor();
#ifndef OCTAVO_TESTS_ON_GPU
    if (multiprocessors > 0) cuda_on_cpu::script().multiprocessors = multiprocessors;
#endif
    EXPECT_EQ(cuda::open_device(kCuda, host_.get(), &cuda_), OCTAVO_OK);
    device_under_test() = cuda_;
  }
  ~Devices() {
    cuda::close_device(cuda_);
  }
  Devices(const Devices &) = delete;
  Devices &operator=(const Devices &) = delete;

  void *cpu() const {
    return cpu_.ctx();
  }
  void *cuda() const {
    return cuda_;
  }
  const octavo_kernels &table() const {
    return *cpu_.table;
  }
  /* One verb of a table of the kernels on a side of Twins. */
  template <typename Table, typename Call>
  octavo_status run(int side, octavo_status (*Table::*verb)(void *, const Call *),
                    const Call &c) const {
    void *ctx = side == 0 ? cpu() : cuda();
    const KernelsTables on_side(side == 0 ? &table() : cuda::table(), ctx);
    return (on_side.template get<Table>()->*verb)(ctx, &c);
  }
  std::string last_text() const {
    return host_.last_text();
  }

 private:
  Kernels cpu_;
  FakeHost host_;
  void *cuda_ = nullptr;
};

/* What random values are made of. kNan: numbers, and a NaN of either sign here and there. kTiny:
 * zeros and numbers below the smallest normal one. kTinyFirst: kTiny in the first 144 elements,
 * then kNormal. */
enum class Values { kNormal, kSpecial, kZero, kNan, kTiny, kTinyFirst };

/* Pairs of buffers; side 0 is the CPU's, side 1 the device's, in its memory. */
class Twins {
 public:
  explicit Twins(uint64_t seed) : random_(seed) {}

  struct Tensor {
    size_t buffer;
    octavo_tensor shape;
    int64_t skipped = 0;
  };

  /* Random elements, `gap` unused ones behind each row and `skipped` before the first. */
  Tensor tensor(int64_t rows, int64_t cols, uint32_t dtype, Values values, int64_t gap = 0,
                int64_t skipped = 0) {
    const int64_t stride = cols + gap;
    const int64_t bytes = dtype_bytes(dtype);
    const int64_t count = rows * stride + skipped;
    const size_t index = add(static_cast<size_t>(count * bytes));
    for (int64_t i = 0; i < count; ++i) put(index, i, dtype, values);
    if (kOnGpu && bytes > 1) buffers_[index].any_nan_of = dtype;
    copy_to_device(index);
    return {index, {nullptr, rows, cols, stride, dtype, 0}, skipped};
  }
  octavo_tensor at(int side, const Tensor &t) {
    octavo_tensor tensor = t.shape;
    tensor.data = static_cast<char *>(data(side, t.buffer)) + t.skipped * dtype_bytes(tensor.dtype);
    return tensor;
  }

  /* The scales of a tensor: a buffer of floats or E8M0 codes, and how it is read. */
  struct Scales {
    size_t buffer;
    octavo_scale shape;
  };
  octavo_scale at(int side, const Scales &s) {
    octavo_scale scale = s.shape;
    scale.data = data(side, s.buffer);
    return scale;
  }

  size_t floats(std::vector<float> values) {
    const size_t index = add(values.size() * sizeof(float));
    buffers_[index].any_nan_of = OCTAVO_F32;
    if (!values.empty()) std::memcpy(data(0, index), values.data(), values.size() * sizeof(float));
    copy_to_device(index);
    return index;
  }
  float *floats_at(int side, size_t index) { return static_cast<float *>(data(side, index)); }

  /* What a tensor of one side holds, gaps behind rows included. */
  std::vector<float> values(int side, const Tensor &t) {
    const Buffer &buffer = buffers_[t.buffer];
    const std::vector<uint8_t> bytes = side == 0 ? buffer.cpu : buffer.device.read();
    const auto size = static_cast<size_t>(dtype_bytes(t.shape.dtype));
    std::vector<float> values;
    for (size_t at = 0; at + size <= bytes.size(); at += size)
      values.push_back(decode(t.shape.dtype, bytes.data() + at));
    return values;
  }

  /* From here on any NaN of a tensor equals any other. */
  void allow_any_nan(const Tensor &t) { buffers_[t.buffer].any_nan_of = t.shape.dtype; }

  size_t bytes(const std::vector<uint8_t> &values) {
    const size_t index = add(values.size());
    buffers_[index].cpu = values;
    copy_to_device(index);
    return index;
  }
  size_t bytes(size_t count, uint8_t fill) { return bytes(std::vector<uint8_t>(count, fill)); }
  void *data(int side, size_t index) {
    return side == 0 ? buffers_[index].cpu.data() : buffers_[index].device.data();
  }

  float random_value(Values values) {
    static const float kSpecials[] = {0.0f,
                                      -0.0f,
                                      448.0f,
                                      464.0f,
                                      57344.0f,
                                      65504.0f,
                                      0x1p-149f,
                                      0x1p-10f,
                                      0x1p-17f,
                                      3.4e38f,
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()};
    if (values == Values::kZero) return 0.0f;
    if (values == Values::kTiny) return static_cast<float>(random_() % 3) * -0x1p-130f;
    if (values == Values::kNan && random_() % 256 == 0)
      return std::copysign(std::numeric_limits<float>::quiet_NaN(),
                           random_() % 2 == 0 ? 1.0f : -1.0f);
    if (values == Values::kSpecial && random_() % 8 == 0)
      return kSpecials[random_() % std::size(kSpecials)];
    return std::normal_distribution<float>()(random_) * (random_() % 16 == 0 ? 300.0f : 1.0f);
  }

  /* Which NaN arithmetic gives is the device's own matter, in floats that a test made as such, and
   * on a GPU, whose arithmetic has one NaN, in every tensor of a dtype with more than eight bits.
   */
  void expect_equal(const std::string &where) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const std::vector<uint8_t> &a = buffers_[i].cpu;
      const std::vector<uint8_t> b = buffers_[i].device.read();
      for (size_t k = 0; k < a.size(); ++k) {
        if (a[k] == b[k] || both_nan(buffers_[i].any_nan_of, a, b, k)) continue;
        ADD_FAILURE() << where << ": buffer " << i << " of " << a.size()
                      << " bytes differs at byte " << k << ": cpu " << int{a[k]} << ", device "
                      << int{b[k]};
        return;
      }
    }
  }

 private:
  struct Buffer {
    std::vector<uint8_t> cpu;
    DeviceMemory device;
    uint32_t any_nan_of = 0; /* a dtype whose NaN are all alike here; 0: none */
  };
  /* Whether both elements with this byte in them are NaN. */
  static bool both_nan(uint32_t dtype, const std::vector<uint8_t> &a, const std::vector<uint8_t> &b,
                       size_t byte) {
    if (dtype == 0) return false;
    const auto size = static_cast<size_t>(dtype_bytes(dtype));
    const size_t at = byte / size * size;
    return is_nan(decode(dtype, a.data() + at)) && is_nan(decode(dtype, b.data() + at));
  }
  size_t add(size_t bytes) {
    buffers_.push_back({std::vector<uint8_t>(bytes), DeviceMemory(), 0});
    return buffers_.size() - 1;
  }
  void copy_to_device(size_t index) { buffers_[index].device = DeviceMemory(buffers_[index].cpu); }

  void put(size_t index, int64_t i, uint32_t dtype, Values values) {
    if (values == Values::kTinyFirst) values = i < 144 ? Values::kTiny : Values::kNormal;
    encode(dtype, random_value(values), buffers_[index].cpu.data() + i * dtype_bytes(dtype));
  }

  std::mt19937_64 random_;
  std::deque<Buffer> buffers_;
};

}  // namespace octavo::test

#endif

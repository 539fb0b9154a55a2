/* tests/kernels/cuda/gemm_product.h: one product in memory of the device, called again and again.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_GEMM_PRODUCT_H
#define OCTAVO_TESTS_KERNELS_CUDA_GEMM_PRODUCT_H

#include "tests/kernels/cuda/gemm_case.h"

namespace octavo::test {

/* One product in memory that the device owns, called again and again. */
class Product {
 public:
  Product(GemmDevices &devices, int64_t m, int64_t n, int64_t k, uint32_t granularity,
          uint32_t bias_dtype = 0)
      : devices_(devices) {
    a_ = {take(m * k), m, k, k, OCTAVO_E4M3FN, 0};
    b_ = {take(n * k), n, k, k, OCTAVO_E4M3FN, 0};
    d_ = {take(m * n * 2), m, n, n, OCTAVO_BF16, 0};
    bias_ = {take(n * 4), 1, n, n, bias_dtype, 0};
    const bool is_mx = is_mx_granularity(granularity);
    const int64_t across = is_block_granularity(granularity) ? k / (is_mx ? 32 : 128) : 1;
    const uint32_t dtype = is_mx ? uint32_t{OCTAVO_E8M0FNU} : uint32_t{OCTAVO_F32};
    a_scale_ = OCTAVO_SCALE(take(m * across * 4), across, dtype, granularity);
    b_scale_ = OCTAVO_SCALE(take(n * across * 4), across, dtype, granularity);
    call.size = sizeof(call);
    call.kind = OCTAVO_KIND_GEMM;
    call.a = &a_;
    call.b = &b_;
    call.d = &d_;
    call.bias = bias_dtype == 0 ? nullptr : &bias_;
    call.a_scale_inv = &a_scale_;
    call.b_scale_inv = &b_scale_;
    uint64_t bytes = 0;
    EXPECT_TRUE(cuda::gemm_workspace(devices.cuda(), call, &bytes));
    call.workspace = take(static_cast<int64_t>(bytes));
  }
  ~Product() {
    for (const Range &r : ranges()) cudaFree(r.begin);
    ranges().clear();
  }
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;

  octavo_status run() { return cuda::gemm(devices_.cuda(), &call); }
  const octavo_tensor &bias() const { return bias_; }

  /* For the fake library: memory that the device can reach. */
  static bool is_device(const void *data, size_t bytes) {
    const auto *begin = static_cast<const uint8_t *>(data);
    for (const Range &r : ranges()) {
      if (begin >= r.begin && begin + bytes <= r.begin + r.bytes) return true;
    }
    return false;
  }

  octavo_gemm call = {};

 private:
  struct Range {
    uint8_t *begin;
    size_t bytes;
  };
  static std::vector<Range> &ranges() {
    static std::vector<Range> all;
    return all;
  }
  void *take(int64_t bytes) {
    void *data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, static_cast<size_t>(bytes)), cudaSuccess);
    std::memset(data, 0x38, static_cast<size_t>(bytes) < 65536 ? static_cast<size_t>(bytes) : 0);
    ranges().push_back({static_cast<uint8_t *>(data), static_cast<size_t>(bytes)});
    return data;
  }

  GemmDevices &devices_;
  octavo_tensor a_, b_, d_, bias_;
  octavo_scale a_scale_, b_scale_;
};

}  // namespace octavo::test

#endif

// octavo/hpp/plugin/pass.hpp: one verb under way: its workspace, and the kernels it calls.
//
// The same code runs in two ways. Measuring, at linear_plan, there is no memory: pieces have null
// data, no kernel runs, and what everything needs is added up. Running, kernels are called with it.
// After a kernel failed no other runs; the verb answers with that status.
#ifndef OCTAVO_HPP_PLUGIN_PASS_HPP
#define OCTAVO_HPP_PLUGIN_PASS_HPP

#include <type_traits>

#include "octavo/hpp/plugin/slots.hpp"
#include "octavo/hpp/plugin/workspace.hpp"
#include "octavo/kernels.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

// One side of an FP8 product: codes [rows, k] and their scale_inv, per tensor.
struct Operand {
  octavo_tensor codes{};
  octavo_scale scale_inv{};
};

// A matrix [R, C] in codes: `rows` as it lies, `columns` transposed [C, R], for products that sum
// over C and over R. One of them may be absent (dtype 0).
struct Codes {
  octavo_tensor rows{};
  octavo_tensor columns{};
  octavo_scale scale_inv{};
  Operand by_rows() const { return {rows, scale_inv}; }
  Operand by_columns() const { return {columns, scale_inv}; }
};

// How a cast finds its scale: with the default from the matrix itself (current scaling).
struct Cast {
  float *nonfinite = nullptr;
  float *amax = nullptr;
  const float *scale = nullptr;  // OCTAVO_RULE_GIVEN
  uint32_t rule = OCTAVO_RULE_QUOTIENT;
  float eps = 0;
};

class Pass {
 public:
  // `rows` is M. A null stream and null buffers are legal in both ways.
  Pass(const Device &device, bool measuring, int64_t rows, void *stream, void *workspace,
       void *saved)
      : device_(device),
        measuring_(measuring),
        m_(rows),
        stream_(stream),
        work_(workspace),
        saved_(saved, 1) {}

  const Device &device() const { return device_; }
  bool measuring() const { return measuring_; }
  octavo_status status() const { return status_; }
  uint64_t workspace_bytes() const { return work_.used() + kernel_bytes_; }
  uint64_t saved_bytes() const { return saved_.used(); }

  // The workspace, for pieces of any kind.
  Carver &workspace() { return work_; }

  // Room for the codes of a matrix [rows, cols], padded as FP8 products need it.
  Codes codes(int64_t rows, int64_t cols, uint32_t dtype, Directions directions) {
    const int64_t r = device_.aligned(rows), c = device_.aligned(cols);
    Codes out;
    out.scale_inv = work_.scale_inv();
    if (directions & kRows) out.rows = work_.tensor(r, c, dtype);
    if (directions & kColumns) out.columns = work_.tensor(c, r, dtype);
    return out;
  }

  // The transposed codes of x and their scale_inv in `saved`, in which every byte is written. The
  // same in forward, which writes them, and in backward, which reads them.
  Codes saved_columns(int64_t cols, uint32_t dtype) {
    const int64_t padded = (m_ + saved_rows() - 1) / saved_rows() * saved_rows();
    const int64_t c = device_.aligned(cols);
    Codes out;
    out.columns = {saved_.take(c * padded), c, padded, padded, dtype, 0};
    out.scale_inv = saved_.scale_inv();
    return out;
  }
  // Rows of `saved` come in multiples of this, so that what lies behind codes is aligned.
  int64_t saved_rows() const { return std::max<int64_t>(16, device_.alignment()); }

  // in -> every direction of `out` that is there.
  void cast(const octavo_tensor &in, Codes &out, const Cast &how = Cast()) {
    auto q = call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    q.in = &in;
    if (out.rows.dtype != 0) q.out = &out.rows;
    if (out.columns.dtype != 0) q.out_t = &out.columns;
    q.out_scale_inv = &out.scale_inv;
    q.nonfinite = how.nonfinite;
    q.amax = how.amax;
    q.scale = how.scale;
    q.rule = how.rule;
    q.eps = how.eps;
    q.format_max = (q.out != nullptr ? out.rows : out.columns).dtype == OCTAVO_E5M2 ? 57344 : 448;
    run(&octavo_kernels::quantize, q);
  }

  // d = a b^T + bias, or d += a b^T; padding of the operands does not show.
  void multiply(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias = nullptr,
                bool accumulate = false) {
    // `saved` may hold more of the summed dimension than a call has; the rest is zeros.
    a.codes.cols = b.codes.cols = std::min(a.codes.cols, b.codes.cols);
    const bool pads =
        (measuring_ && device_.alignment() > 1) || a.codes.rows != d.rows || b.codes.rows != d.cols;
    auto g = call<octavo_gemm>(OCTAVO_KIND_GEMM);
    g.a = &a.codes, g.a_scale_inv = &a.scale_inv;
    g.b = &b.codes, g.b_scale_inv = &b.scale_inv;
    octavo_tensor wide{}, wide_bias{};
    if (pads) {
      wide = work_.tensor(a.codes.rows, b.codes.rows, OCTAVO_F32);
      wide_bias = work_.tensor(1, b.codes.rows, OCTAVO_F32);
      // One rounding to the host's dtype, in the kernel; a sum is rounded after the addition.
      if (!accumulate) wide.dtype = d.dtype;
      if (bias != nullptr) {
        clear(wide_bias.data, static_cast<uint64_t>(wide_bias.cols) * sizeof(float));
        octavo_tensor front = wide_bias;
        front.cols = bias->cols;
        add(*bias, front, false);
      }
    }
    g.d = pads ? &wide : &d;
    g.bias = pads && bias != nullptr ? &wide_bias : bias;
    g.accumulate = accumulate && !pads ? 1 : 0;
    run(&octavo_kernels::gemm, g);
    if (!pads) return;
    wide.rows = d.rows, wide.cols = d.cols;
    add(wide, d, accumulate);
  }

  // out = in in another dtype, or out += in; both plain.
  void add(const octavo_tensor &in, octavo_tensor &out, bool accumulate) {
    auto c = call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = &in, c.out = &out, c.accumulate = accumulate ? 1 : 0;
    run(&octavo_kernels::dequantize, c);
  }

  // db: column sums of dy before it is cast, through f32, since db may have another dtype.
  void add_column_sums(const octavo_tensor &dy, octavo_tensor &db, bool accumulate) {
    octavo_tensor sums = work_.tensor(1, dy.cols, OCTAVO_F32);
    auto sum = call<octavo_sum>(OCTAVO_KIND_SUM);
    sum.in = &dy, sum.out = sums.data;
    run(&octavo_kernels::sum_rows, sum);
    add(sums, db, accumulate);
  }

  // Zero bytes, which are 0 in every dtype.
  void clear(void *out, uint64_t bytes) {
    auto c = call<octavo_copy>(OCTAVO_KIND_COPY);
    c.out = out, c.bytes = bytes;
    run(&octavo_kernels::copy, c);
  }

  // Any other kernel: fill what call() returns and pass it to run() with the kernel's name.
  template <typename Call>
  Call call(uint32_t kind) const {
    auto c = make<Call>(kind);
    c.stream = stream_;
    return c;
  }
  template <typename Call>
  void run(octavo_status (*octavo_kernels::*verb)(void *, const Call *), Call &call) {
    if (status_ != OCTAVO_OK) return;
    if constexpr (HasWorkspace<Call>::value) {
      call.workspace = work_.take(0);
      if (measuring_) {
        // Kernels run one after the other; the sum of what they ask for is enough, and affine,
        // which their maximum need not be.
        uint64_t bytes = 0;
        status_ = device_.kernels().workspace_bytes(device_.ctx(), &call, &bytes);
        kernel_bytes_ += (bytes + 255) / 256 * 256;
      }
    }
    if (!measuring_) status_ = (device_.kernels().*verb)(device_.ctx(), &call);
  }

 private:
  template <typename Call, typename = void>
  struct HasWorkspace : std::false_type {};
  template <typename Call>
  struct HasWorkspace<Call, std::void_t<decltype(Call::workspace)>> : std::true_type {};

  const Device &device_;
  bool measuring_;
  int64_t m_;
  void *stream_;
  Carver work_;
  Carver saved_;
  uint64_t kernel_bytes_ = 0;
  octavo_status status_ = OCTAVO_OK;
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif

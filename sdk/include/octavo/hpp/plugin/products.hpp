// octavo/hpp/plugin/products.hpp: the kernels of a Pass: casts, products, and what they record.
//
// Included by pass.hpp.
#ifndef OCTAVO_HPP_PLUGIN_PRODUCTS_HPP
#define OCTAVO_HPP_PLUGIN_PRODUCTS_HPP

#include <algorithm>

#include "octavo/hpp/plugin/pass.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

inline void Pass::cast(const octavo_tensor &in, Codes &out, const Cast &how) {
  cast_to_nearest(in, out, how);
  if (!how.is_stochastic) return;
  for (const bool turns : {false, true}) {
    if (turns ? !out.has_columns() : !out.has_rows()) continue;
    const Operand codes = turns ? out.by_columns() : out.by_rows();
    auto c = call<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);
    c.in = &read(in);
    c.codes = &codes.codes;
    c.scale_inv = &codes.scale_inv;
    c.count = how.count;
    c.key = how.key;
    c.is_transposed = turns ? 1 : 0;
    run(&octavo_rounding_kernels::round_codes, c);
  }
}

inline void Pass::cast_to_nearest(const octavo_tensor &in, Codes &out, const Cast &how) {
  const bool per_tensor = out.columns_scale_inv.dtype == 0;
  const bool rows = out.has_rows(), columns = out.has_columns();
  // Every field is stored, without a branch, so that the compiler need not clear the struct first.
  auto q = call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  q.in = &in;
  q.in_scale_inv = how.in_scale_inv;
  q.out = rows ? &out.rows : nullptr;
  q.out_t = columns ? &out.columns : nullptr;
  q.out_scale_inv = rows || per_tensor ? &out.scale_inv : nullptr;
  q.out_t_scale_inv = columns && !per_tensor ? &out.columns_scale_inv : nullptr;
  q.scale = how.scale;
  q.counter = how.counter;
  q.window = how.window;
  q.amax = how.amax;
  const bool is_watched = how.nonfinite == nullptr && is_plain_dtype(in.dtype);
  q.nonfinite = is_watched ? nonfinite_ : how.nonfinite;
  q.rule = how.rule;
  q.eps = how.eps;
  q.flags = how.flags;
  q.format_max = format_max((rows ? out.rows : out.columns).dtype, how.margin);
  if ((rows ? out.rows : out.columns).dtype == OCTAVO_E2M1) return cast_fp4(in, q, how);
  if (in.data != this) return run(&octavo_kernels::quantize, q);
  octavo_tensor shape = in;
  shape.data = nullptr;
  q.in = &shape;
  auto c = call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  c.prologue = prologue_;
  c.quantize = &q;
  if (measuring_) {
    // What casts x is either of the two.
    run(&octavo_kernels::quantize, q);
    if (status_ == OCTAVO_OK) prologue_bytes_ += bytes_of(&c);
  } else if (fused_->data == this) {
    run(&octavo_kernels::prologue_quantize, c);
  } else {
    q.in = fused_;
    run(&octavo_kernels::quantize, q);
  }
}

inline void Pass::cast_fp4(const octavo_tensor &in, octavo_quantize &q, const Cast &how) {
  // No prologue is fused into this cast.
  const octavo_tensor &values = read(in);
  q.in = &values;
  auto c = call<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
  c.flags = q.out_t != nullptr ? how.fp4_flags : how.fp4_flags & ~uint32_t{OCTAVO_FP4_HADAMARD};
  if (c.flags == 0) return run(&octavo_kernels::quantize, q);
  c.quantize = &q;
  c.count = how.count;
  c.key = how.key;
  run(&octavo_fp4_kernels::quantize_fp4, c);
}

inline void Pass::write_fused() {
  if (measuring_) return;
  *fused_ = work_.tensor(fused_->rows, fused_->cols, fused_->dtype);  // dense, whatever x was
  auto c = call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  c.prologue = prologue_;
  c.out = fused_;
  run(&octavo_kernels::prologue, c);
}

inline void Pass::record(const octavo_tensor &in, const Operand &codes,
                         const Statistics &statistics) {
  if (!statistics.wanted) return;
  auto c = call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
  c.in = &read(in);
  c.codes = &codes.codes;
  c.scale_inv = &codes.scale_inv;
  c.saturated = statistics.sums[kSaturated];
  c.underflow = statistics.sums[kUnderflow];
  c.signal = statistics.sums[kSignal];
  c.noise = statistics.sums[kNoise];
  run(&octavo_kernels::quantize_stats, c);
}

inline void Pass::record_amax(const octavo_tensor &in, float *amax, float *nonfinite) {
  if (!measures_or(nonfinite != nullptr || amax != nullptr)) return;
  if (amax == nullptr) {
    amax = static_cast<float *>(work_.take(sizeof(float)));
    clear(amax, sizeof(float));
  }
  if (!device_.has_amax()) {
    auto q = call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    q.in = &read(in);
    q.amax = amax;
    q.nonfinite = nonfinite;
    q.rule = OCTAVO_RULE_QUOTIENT;
    q.format_max = format_max(OCTAVO_E4M3FN, 0);
    return run(&octavo_kernels::quantize, q);
  }
  auto c = call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
  c.in = &read(in);
  c.amax = amax;
  c.nonfinite = nonfinite;
  run(&octavo_kernels::compute_amax, c);
}

inline void Pass::pack(const octavo_tensor &codes, octavo_tensor packed) {
  auto c = call<octavo_pack>(OCTAVO_KIND_PACK);
  c.in = &codes;
  c.out = &packed;
  run(&octavo_kernels::pack, c);
}

// Rows [first, first + count) of an operand in codes; `first` is where a block of scales begins.
inline Operand rows_of(Operand o, int64_t first, int64_t count) {
  o.codes.data = static_cast<char *>(o.codes.data) +
                 first * static_cast<int64_t>(OCTAVO_DTYPE_BYTES(o.codes.dtype, o.codes.stride));
  o.codes.rows = count;
  const Block block = block_of(o.scale_inv.granularity);
  if (block.rows > 0 && o.scale_inv.data != nullptr) {
    const int64_t width = OCTAVO_DTYPE_BITS(o.scale_inv.dtype) / 8;
    o.scale_inv.data = static_cast<char *>(o.scale_inv.data) +
                       first / block.rows * (block.cols > 0 ? o.scale_inv.stride : 1) * width;
  }
  return o;
}

inline void Pass::multiply(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias,
                           uint32_t how) {
  const bool is_plain = a.is_plain();
  if (is_plain && a.codes.data == this) a.codes = read(a.codes);
  // Operands may hold more than this product has: `saved` more of M, panels more of N. Of the
  // summed dimension the rest is zeros.
  a.summed() = b.summed() = std::min(a.summed(), b.summed());
  if (!is_plain) {
    a.kept() = std::min(a.kept(), device_.aligned(d.rows));
    b.kept() = std::min(b.kept(), device_.aligned(d.cols));
  }
  const bool pads = !is_plain && (how & kWithPadding) == 0;
  const bool turns = a.layout == Layout::kTransposed;  // its rows are columns in memory
  if (pads && (b.kept() != d.cols || (turns && a.kept() != d.rows)))
    return multiply_wide(a, b, d, bias, how);
  if (!pads || turns || device_.alignment() == 1) return multiply_once(a, b, d, bias, how);

  // Only the last rows of a are padding: what d has room for is computed in place, and the rest
  // aside. With all of its rows, a needs as much of the kernels as each of the two.
  const int64_t whole = std::max(device_.alignment(), block_of(a.scale_inv.granularity).rows);
  if (measuring_) {
    if (device_.has_questions()) return multiply_wide(a, b, d, bias, how);
    work_.tensor(whole, b.kept(), OCTAVO_F32);
    return multiply_once(a, b, d, bias, how);
  }
  const int64_t front = a.kept() == d.rows ? d.rows : d.rows / whole * whole;
  octavo_tensor part = d;
  part.rows = front;
  if (front > 0) multiply_once(rows_of(a, 0, front), b, part, bias, how);
  if (front == d.rows) return;
  part.rows = d.rows - front;
  part.data = static_cast<char *>(d.data) + front * d.stride * (OCTAVO_DTYPE_BITS(d.dtype) / 8);
  multiply_wide(rows_of(a, front, a.kept() - front), b, part, bias, how);
}

// The operands as they are, padding and all, into d.
inline void Pass::multiply_once(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias,
                                uint32_t how) {
  auto g = call<octavo_gemm>(OCTAVO_KIND_GEMM);
  g.a = &a.codes, g.b = &b.codes;
  if (!a.is_plain()) g.a_scale_inv = &a.scale_inv, g.b_scale_inv = &b.scale_inv;
  if (a.layout == Layout::kTransposed) g.layout |= OCTAVO_GEMM_A_KM;
  if (b.layout == Layout::kTransposed) g.layout |= OCTAVO_GEMM_B_KN;
  if (b.layout == Layout::kPacked) g.layout |= OCTAVO_GEMM_B_PACKED;
  g.fast_accumulation = (how & kFastAccumulation) != 0 ? 1 : 0;
  g.bias_after = (how & kBiasAfter) != 0 && bias != nullptr ? 1 : 0;
  g.d = &d;
  g.bias = bias;
  g.accumulate = (how & kAccumulate) != 0 ? 1 : 0;
  run(&octavo_kernels::gemm, g);
}

// The same into the workspace, and from there to d what d has room for.
inline void Pass::multiply_wide(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias,
                                uint32_t how) {
  const bool accumulates = (how & kAccumulate) != 0;
  octavo_tensor wide = work_.tensor(a.kept(), b.kept(), OCTAVO_F32);
  // One rounding to the host's dtype, in the kernel; a sum is rounded after the addition.
  if (!accumulates) wide.dtype = d.dtype;
  octavo_tensor wide_bias{};
  if (bias != nullptr && bias->cols != b.kept()) {
    // In its own dtype, which the kernels may be able to add without a launch of its own.
    wide_bias = work_.tensor(1, b.kept(), bias->dtype);
    clear(wide_bias.data,
          static_cast<uint64_t>(wide_bias.cols) * (OCTAVO_DTYPE_BITS(bias->dtype) / 8));
    octavo_tensor front = wide_bias;
    front.cols = bias->cols;
    add(*bias, front, false);
    bias = &wide_bias;
  }
  multiply_once(a, b, wide, bias, how & ~uint32_t{kAccumulate});
  wide.rows = d.rows, wide.cols = d.cols;
  add(wide, d, accumulates);
}

inline void Pass::decode(const Operand &in, octavo_tensor &out, bool accumulate) {
  const octavo_tensor real{in.codes.data, out.rows, out.cols, in.codes.stride, in.codes.dtype, 0};
  auto c = call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &real;
  c.scale_inv = &in.scale_inv;
  c.out = &out;
  c.accumulate = accumulate ? 1 : 0;
  run(&octavo_kernels::dequantize, c);
}

inline void Pass::add(const octavo_tensor &in, octavo_tensor &out, bool accumulate) {
  auto c = call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &read(in);
  c.out = &out;
  c.accumulate = accumulate ? 1 : 0;
  run(&octavo_kernels::dequantize, c);
}

inline void Pass::add_column_sums(const octavo_tensor &dy, octavo_tensor &db, bool accumulate) {
  // Room for them whatever db is: a plan does not know its dtype.
  octavo_tensor sums = work_.tensor(1, dy.cols, OCTAVO_F32);
  const bool is_direct = db.dtype == OCTAVO_F32;
  auto sum = call<octavo_sum>(OCTAVO_KIND_SUM);
  sum.in = &dy, sum.out = is_direct ? db.data : sums.data;
  sum.accumulate = is_direct && accumulate ? 1 : 0;
  run(&octavo_kernels::sum_rows, sum);
  if (!is_direct) add(sums, db, accumulate);
}

inline void Pass::clear(void *out, uint64_t bytes) {
  auto c = call<octavo_copy>(OCTAVO_KIND_COPY);
  c.out = out, c.bytes = bytes;
  run(&octavo_kernels::copy, c);
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif

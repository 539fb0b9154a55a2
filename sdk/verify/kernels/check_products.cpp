// gemm and pack: small whole numbers, whose sums are exact in any order, to the bit; others within
// the bound of docs/numerics.md#gemm.
#include <algorithm>
#include <cmath>
#include <limits>

#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kOne = OCTAVO_PER_TENSOR;
constexpr float kNvfp4 = 2688;  // what the second level is divided by

struct Operand {
  Grid values;
  Grid scales = {};
  uint32_t granularity = OCTAVO_PER_TENSOR;
  float second = 1;
  bool turned = false;  // [K, rows]
  bool has_scale = true;

  int64_t rows() const { return turned ? values.cols : values.rows; }
  int64_t length() const { return turned ? values.rows : values.cols; }
  double at(int64_t row, int64_t k) const { return turned ? values.at(k, row) : values.at(row, k); }
  double scale(int64_t row, int64_t k) const {
    if (!has_scale) return 1.0;
    const double one = scale_at(scales, granularity, values, row, k);
    return is_fp4(granularity) ? one * second / kNvfp4 : one;
  }
  // All of them, times their scales.
  std::vector<double> scaled() const {
    std::vector<double> all;
    for (int64_t row = 0; row < rows(); ++row)
      for (int64_t k = 0; k < length(); ++k) all.push_back(at(row, k) * scale(row, k));
    return all;
  }
};

struct Product {
  Operand a, b;
  Grid d;
  Grid bias = {};
  bool has_bias = false, accumulate = false, bias_after = false;
  bool is_exact = false;  // whole numbers
  bool is_fast = false;   // fast_accumulation
  std::string note = {};

  uint32_t layout() const {
    return (a.turned ? uint32_t{OCTAVO_GEMM_A_KM} : 0u) |
           (b.turned ? uint32_t{OCTAVO_GEMM_B_KN} : 0u);
  }
  std::string name() const {
    return text("gemm ", a.rows(), "x", b.rows(), "x", a.length(), " of ", name_of(a.values.dtype),
                a.turned ? " [K, M]" : "", " and ", name_of(b.values.dtype),
                b.turned ? " [K, N]" : "", " to ", name_of(d.dtype), note,
                is_exact ? ", whole numbers" : "");
  }
  octavo_ability question() const {
    return asking(OCTAVO_KIND_GEMM, a.values.dtype, a.granularity, layout(), b.values.dtype,
                  b.granularity);
  }
};

// Half the distance between neighbours at `value`.
double half_step(uint32_t dtype, double value) {
  const int bits = dtype == OCTAVO_BF16 ? 8 : dtype == OCTAVO_F16 ? 11 : 24;
  const int lowest = dtype == OCTAVO_F16 ? -14 : -126;
  const int exponent = value == 0 ? lowest : std::max(std::ilogb(value), lowest);
  return std::ldexp(1.0, exponent - bits);
}

// The bound of an element: each of K - 1 additions rounds a partial sum by at most 2^-24 of it,
// and sum(|a b|) bounds all of them; a product of plain float32 is rounded once more. The product
// of the scales, the last multiplication, the bias and what d held are a few roundings more, for
// which 8 leaves room, also where the bias is larger than the sum. Then d's own rounding, two of
// them with bias_after.
std::string beyond_bound(const Product &p, const Grid &found) {
  const int64_t length = p.a.length();
  const std::vector<double> a = p.a.scaled(), b = p.b.scaled();
  for (int64_t m = 0; m < p.d.rows; ++m)
    for (int64_t n = 0; n < p.d.cols; ++n) {
      double sum = 0, weight = 0;
      for (int64_t k = 0; k < length; ++k) {
        const double one =
            a[static_cast<size_t>(m * length + k)] * b[static_cast<size_t>(n * length + k)];
        sum += one;
        weight += std::abs(one);
      }
      const double bias = p.has_bias ? static_cast<double>(p.bias.at(0, n)) : 0.0;
      const double held = p.accumulate ? static_cast<double>(p.d.at(m, n)) : 0.0;
      const double wanted = sum + bias + held;
      const double value = found.at(m, n);
      if (std::isnan(wanted) ? std::isnan(value) : std::isinf(wanted) && value == wanted) continue;
      const double roundings = static_cast<double>(length) + 8 +
                               (p.a.values.dtype == OCTAVO_F32 || p.b.values.dtype == OCTAVO_F32);
      double bound = roundings * 0x1p-24 * weight + 8 * 0x1p-24 * (std::abs(bias) + std::abs(held));
      if (p.d.dtype != OCTAVO_F32)
        bound += half_step(p.d.dtype, std::abs(wanted) + bound) +
                 (p.bias_after ? half_step(p.d.dtype, std::abs(sum) + bound) : 0.0);
      if (std::isfinite(wanted) && std::abs(value - wanted) <= bound) continue;
      return text("d[", m, ", ", n, "]: expected ", wanted, " within ", bound, ", found ", value);
    }
  return {};
}

// All that fast_accumulation leaves of a bound: fewer bits make no NaN, and hide none.
std::string other_nans(const Results &expected, const Results &found) {
  const Grid &e = expected.front().grid, &f = found.front().grid;
  for (int64_t r = 0; r < e.rows; ++r)
    for (int64_t c = 0; c < e.cols; ++c)
      if (e.is_nan(r, c) != f.is_nan(r, c))
        return text("d[", r, ", ", c, "]: expected ", e.at(r, c), ", found ", f.at(r, c));
  return {};
}

octavo_status multiply(const Product &p, Operands &m) {
  auto *c = m.make<octavo_gemm>(OCTAVO_KIND_GEMM);
  c->a = m.in("a", p.a.values);
  c->b = m.in("b", p.b.values);
  c->d = m.out("d", p.d);
  if (p.a.has_scale)
    c->a_scale_inv = m.scale_in("a_scale_inv", p.a.scales, p.a.granularity, p.a.second);
  if (p.b.has_scale)
    c->b_scale_inv = m.scale_in("b_scale_inv", p.b.scales, p.b.granularity, p.b.second);
  if (p.has_bias) c->bias = m.in("bias", p.bias);
  c->accumulate = p.accumulate;
  c->bias_after = p.bias_after;
  c->fast_accumulation = p.is_fast;
  c->layout = p.layout();
  c->workspace = m.workspace(c);
  return m.call(&octavo_kernels::gemm, c);
}

class Products {
 public:
  Products(const Bench &bench, const char *call) : trial_(bench, call), seed_(bench.seed) {
    flags_ = bench.side->caps.flags;
    alignment_ = static_cast<int64_t>(std::max<uint64_t>(bench.side->caps.alignment, 1));
  }

  int64_t rounded(int64_t size) const { return (size + alignment_ - 1) / alignment_ * alignment_; }

  Operand operand(uint32_t dtype, uint32_t granularity, int64_t rows, int64_t length, bool is_exact,
                  bool turned = false) {
    Operand o;
    o.granularity = granularity;
    o.turned = turned;
    const bool is_code = OCTAVO_DTYPE_BITS(dtype) <= 8;
    o.has_scale = is_code || granularity != kOne;
    // Codes have K contiguous and dense rows where hardware wants them.
    o.values = Grid::of(dtype, turned ? length : rows, turned ? rows : length,
                        is_code || alignment_ != 1 ? 0 : 3);
    if (is_exact) {
      whole(o.values, ++seed_, 12);  // sums beyond the bits of bfloat16
    } else {
      spread(o.values, ++seed_, -6, 3);
    }
    if (!o.has_scale) return o;
    o.scales = scales_of(granularity, rows, length, granularity == OCTAVO_PER_TENSOR ? 0 : 1);
    Numbers numbers(++seed_);
    o.second = is_exact ? kNvfp4 : std::abs(numbers.spread(-3, 6));
    for (int64_t r = 0; r < o.scales.rows; ++r)
      for (int64_t i = 0; i < o.scales.cols; ++i)
        o.scales.put(r, i,
                     is_exact || o.scales.dtype == OCTAVO_E8M0FNU
                         ? std::ldexp(1.0f, static_cast<int>(numbers.below(4)) - 1)
                         : std::abs(numbers.spread(-3, 1)));
    return o;
  }

  Product product(uint32_t a, uint32_t b, uint32_t granularity_a, uint32_t granularity_b, int64_t m,
                  int64_t n, int64_t k, bool is_exact, uint32_t d = OCTAVO_F32) {
    Product p;
    p.is_exact = is_exact;
    k = is_fp4(granularity_a) ? (rounded(k) + 15) / 16 * 16 : rounded(k);
    p.a = operand(a, granularity_a, rounded(m), k, is_exact);
    p.b = operand(b, granularity_b, rounded(n), k, is_exact);
    p.d = Grid::of(d, rounded(m), rounded(n), alignment_ == 1 ? 3 : 0);
    whole(p.d, ++seed_, 100);
    p.note = text(", ", granularity_name(granularity_a), " and ", granularity_name(granularity_b));
    return p;
  }
  void add_bias(Product &p, uint32_t dtype) {
    p.has_bias = true;
    p.bias = Grid::of(dtype, 1, p.d.cols);
    if (p.is_exact) {
      whole(p.bias, ++seed_, 100);
    } else {
      spread(p.bias, ++seed_, 0, 3);
    }
  }

  void run(const Product &p, const std::string &variant) {
    Case one;
    one.name = p.name();
    one.variant = variant;
    one.question = p.question();
    one.repeats = true;
    one.body = [p](Operands &m) { return multiply(p, m); };
    const bool bits = (flags_ & OCTAVO_CAPS_EXACT_GEMM) != 0;
    one.judge = [p, bits](const Results &expected, const Results &found) {
      if (p.is_fast && !bits) return other_nans(expected, found);
      if (bits || p.is_exact) {
        const std::string problem = differing(expected, found, !bits);
        if (!problem.empty()) return problem;
      }
      // M = 0: no output. K = 0: the sum is +0, to which no bound says more.
      if (bits || found.empty() || p.a.length() == 0) return std::string();
      return beyond_bound(p, found.front().grid);
    };
    trial_.run(one);
  }
  // Both kinds of numbers, each output, and what is done with it.
  void run_all(uint32_t a, uint32_t b, uint32_t granularity_a, uint32_t granularity_b,
               const std::string &variant) {
    const bool blocks = is_block(granularity_a);
    for (const bool is_exact : {true, false}) {
      const auto make = [&](int64_t m, int64_t n, int64_t k, uint32_t d = OCTAVO_F32) {
        return product(a, b, granularity_a, granularity_b, m, n, k, is_exact, d);
      };
      run(make(1, 1, 1), variant);
      run(make(17, 33, 65), variant);
      run(make(48, 32, blocks ? 300 : 272), variant);
      if (is_exact) run(make(0, 8, 16), variant + ", M = 0");
      if (is_exact) run_empty(make(16, 48, 0), variant + ", K = 0");
      for (const uint32_t d : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
        const std::string to = d == OCTAVO_F32 ? variant : text(variant, ", to ", name_of(d));
        Product p = make(16, 48, 64, d);
        run(p, to);
        p.accumulate = true;
        run(p, to + ", accumulate");
        p.accumulate = false;
        add_bias(p, d);
        run(p, to + ", bias");
        p.bias_after = true;
        run(p, to + ", bias_after");
        p.bias_after = false;
        p.accumulate = true;
        run(p, to + ", bias and accumulate");
      }
    }
  }
  // Without a column the sum is +0, which scales of one or rows multiply as every other.
  void run_empty(Product p, const std::string &variant) {
    for (const float scale : {0.5f, -1.0f, 0.0f, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      if (p.a.has_scale && p.a.scales.rows * p.a.scales.cols > 0) {
        if (p.a.scales.dtype != OCTAVO_F32) return run(p, variant);
        p.a.scales.fill(scale);
      }
      p.note = text(", scale ", scale);
      p.accumulate = false;
      run(p, variant);
      p.accumulate = true;
      run(p, variant);
      if (!p.a.has_scale || p.a.scales.rows * p.a.scales.cols == 0) return;
    }
  }
  void finish() { trial_.finish(); }
  uint64_t next_seed() { return ++seed_; }
  const Side &side() const { return trial_.side(); }

 private:
  Trial trial_;
  uint64_t seed_, flags_ = 0;
  int64_t alignment_ = 1;
};

}  // namespace

void check_gemm(const Bench &bench) {
  Products products(bench, "gemm of codes");
  for (const uint32_t a : {OCTAVO_E4M3FN, OCTAVO_E5M2})
    for (const uint32_t b : {OCTAVO_E4M3FN, OCTAVO_E5M2})
      products.run_all(a, b, kOne, kOne, text(name_of(a), " and ", name_of(b)));
  // NaN and Inf in one row of a and one of b reach their row and column, and nothing else.
  for (const uint32_t a : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    Product p = products.product(a, OCTAVO_E4M3FN, kOne, kOne, 16, 16, 48, false);
    p.a.values.bytes[p.a.values.offset(2, 5)] = 0x7F;
    p.b.values.bytes[p.b.values.offset(7, 9)] = 0xFF;
    if (a == OCTAVO_E5M2) p.a.values.bytes[p.a.values.offset(3, 1)] = 0x7C;
    p.note += ", with Inf and NaN";
    products.run(p, "Inf and NaN");
    p.is_fast = true;
    p.note += ", fast_accumulation";
    products.run(p, "fast_accumulation");
  }
  for (const uint32_t bias : {OCTAVO_BF16, OCTAVO_F16}) {
    Product p = products.product(OCTAVO_E4M3FN, OCTAVO_E4M3FN, kOne, kOne, 16, 16, 32, true);
    products.add_bias(p, bias);
    products.run(p, text("bias in ", name_of(bias)));
  }
  products.finish();
}

void check_gemm_plain(const Bench &bench) {
  Products products(bench, "gemm of plain operands");
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
    products.run_all(dtype, dtype, kOne, kOne, name_of(dtype));
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool is_exact : {true, false}) {
          Product p = products.product(dtype, dtype, kOne, kOne, 19, 33, 70, is_exact);
          const int64_t m = p.a.rows(), n = p.b.rows(), k = p.a.length();
          p.a = products.operand(dtype, kOne, m, k, is_exact, a_turned);
          p.b = products.operand(dtype, kOne, n, k, is_exact, b_turned);
          products.run(
              p, text(name_of(dtype), a_turned ? ", a [K, M]" : "", b_turned ? ", b [K, N]" : ""));
        }
  }
  Product mixed = products.product(OCTAVO_BF16, OCTAVO_F32, kOne, kOne, 16, 16, 32, true);
  products.run(mixed, "bfloat16 and float32");
  products.finish();
}

void check_gemm_rows(const Bench &bench) {
  Products products(bench, "gemm with scales of rows");
  products.run_all(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_PER_ROW, OCTAVO_PER_ROW, "rows of both");
  for (const bool is_exact : {true, false}) {
    products.run(
        products.product(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_PER_ROW, kOne, 17, 33, 64, is_exact),
        "rows of a");
    products.run(
        products.product(OCTAVO_E5M2, OCTAVO_E4M3FN, kOne, OCTAVO_PER_ROW, 17, 33, 64, is_exact),
        "rows of b");
  }
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
    products.run(products.product(dtype, dtype, OCTAVO_PER_ROW, OCTAVO_PER_ROW, 17, 33, 64, false),
                 text(name_of(dtype), ", rows of both"));
    products.run(products.product(dtype, OCTAVO_E5M2, kOne, OCTAVO_PER_ROW, 16, 48, 65, true),
                 text(name_of(dtype), " and codes, rows of b"));
  }
  products.finish();
}

void check_gemm_blocks(const Bench &bench) {
  Products products(bench, "gemm with scales of blocks");
  constexpr uint32_t kPairs[][2] = {
      {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128}, {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X128},
      {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128},   {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},
      {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32},    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_1X32}};
  for (const auto &[a, b] : kPairs) {
    const std::string variant = text(granularity_name(a), " and ", granularity_name(b));
    products.run_all(OCTAVO_E4M3FN, OCTAVO_E4M3FN, a, b, variant);
    products.run(products.product(OCTAVO_E5M2, OCTAVO_E4M3FN, a, b, 33, 48, 160, false),
                 text(variant, ", float8_e5m2 and float8_e4m3fn"));
  }
  products.finish();
}

// Codes of four bits, two in a byte, with both levels of scales.
void check_gemm_fp4(const Bench &bench) {
  Products products(bench, "gemm of codes of four bits");
  for (const uint32_t a : {OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16})
    for (const uint32_t b : {OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16}) {
      const std::string variant = text(granularity_name(a), " and ", granularity_name(b));
      if (a == b) products.run_all(OCTAVO_E2M1, OCTAVO_E2M1, a, b, variant);
      products.run(products.product(OCTAVO_E2M1, OCTAVO_E2M1, a, b, 33, 31, 144, true), variant);
      Product p = products.product(OCTAVO_E2M1, OCTAVO_E2M1, a, b, 17, 33, 80, false);
      p.a.scales.put_code(0, 2, 0x7F);
      p.note += ", a block of NaN";
      products.run(p, variant + ", NaN");
    }
  products.finish();
}

// Packed codes have no order that anybody else knows: the product with them is compared with the
// product of the codes, on the same kernels.
void check_pack(const Bench &bench) {
  const Side &side = *bench.side;
  const auto rows = static_cast<int64_t>(side.caps.pack_rows);
  if (side.table.pack == nullptr || rows == 0) {
    not_offered("pack");
    throw Skip("not offered: pack");
  }
  Products products(bench, "pack");
  Arena arena(side, uint64_t{8} << 20);
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2})
    for (const int64_t n : {int64_t{1}, rows, 2 * rows + 5}) {
      step(text("pack ", name_of(dtype)));
      const Product p = products.product(OCTAVO_E4M3FN, dtype, kOne, kOne, 9, n, 70, false);
      Operands plain(side, arena, Place::kEnd, p.name());
      octavo_status status = multiply(p, plain);
      expect(status == OCTAVO_OK, p.name(), ": answered ", status_name(status));
      const Results expected = plain.results();
      const int64_t columns = p.b.rows(), length = p.a.length();
      Operands m(side, arena, Place::kBegin, "pack, then " + p.name());
      auto *pack = m.make<octavo_pack>(OCTAVO_KIND_PACK);
      pack->in = m.in("in", p.b.values);
      const Grid panels = Grid::of(dtype, (columns + rows - 1) / rows * rows, length);
      uint8_t *packed = m.place_out("out", panels);
      pack->out = m.make<octavo_tensor>();
      *pack->out = {packed, panels.rows, panels.cols, panels.cols, dtype, 0};
      const octavo_tensor b = {packed, columns, length, length, dtype, 0};
      uint8_t *a_data = m.place_in("a", p.a.values), *d_data = m.place_out("d", p.d);
      float *a_scale = m.values_in("a_scale_inv", {p.a.scales.at(0, 0)});
      float *b_scale = m.values_in("b_scale_inv", {p.b.scales.at(0, 0)});
      auto *sizes = m.make<octavo_gemm>(OCTAVO_KIND_GEMM);
      const auto fill = [&](octavo_gemm *c) {
        const auto tensor = [&](const octavo_tensor &t) {
          return new (m.make<octavo_tensor>()) octavo_tensor(t);
        };
        const auto scale = [&](float *s) {
          return new (m.make<octavo_scale>())
              octavo_scale OCTAVO_SCALE(s, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
        };
        c->a =
            tensor({a_data, p.a.values.rows, p.a.values.cols, p.a.values.stride, OCTAVO_E4M3FN, 0});
        c->b = tensor(b);
        c->d = tensor({d_data, p.d.rows, p.d.cols, p.d.stride, p.d.dtype, 0});
        c->a_scale_inv = scale(a_scale);
        c->b_scale_inv = scale(b_scale);
        c->layout = OCTAVO_GEMM_B_PACKED;
      };
      fill(sizes);
      void *workspace = m.workspace(sizes);
      status = m.call(&octavo_kernels::pack, pack);
      expect(status == OCTAVO_OK, "pack answered ", status_name(status), ": ", last_message());
      auto *c = m.make<octavo_gemm>(OCTAVO_KIND_GEMM);
      fill(c);
      c->workspace = workspace;
      status = m.call(&octavo_kernels::gemm, c);
      expect(status == OCTAVO_OK, "gemm with a packed b answered ", status_name(status), ": ",
             last_message());
      const Results found = m.results();
      const std::string problem = differing({expected.back()}, {found.back()});
      expect(problem.empty(), "pack, then ", p.name(), ": ", problem,
             "; expected the bits of the product without pack");
      compared().add(m.called(), asking(OCTAVO_KIND_PACK, dtype));
      compared().add({},
                     asking(OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, kOne, OCTAVO_GEMM_B_PACKED, dtype));
    }
}

}  // namespace octavo::conformance::kernels

// numerics: y, dx, dw and db against the same products in double precision on the unquantized
// inputs.
//
// The bound of one product sum. An operand v is cast with relative error e (half a unit in the last
// place: 2^-4 for E4M3 with 3 mantissa bits, 2^-3 for E5M2 with 2, 2^-8 for bf16, 0 for f32), or,
// below the smallest normal number, with an absolute error of half a subnormal step. That step is
// 2^-9 / scale for E4M3 and 2^-16 / scale for E5M2. The scale follows from amax: at least
// 448 / amax / 2^p, where p counts what a power-of-two rule (1) and a margin take. Allowing p = 5,
//   a = amax * 2^-10 * 2^5 / 448 < amax * 2^-13,
// and 2^margin times as much where delayed scales have a margin by an option,
// which is an upper bound for E5M2, too. So |v' - v| <= e |v| + a =: d(v), and for s = sum_k u_k
// v_k
//   |s' - s| <= sum_k |u_k| d(v_k) + |v_k| d(u_k) + d(u_k) d(v_k)
// plus fp32 accumulation, K 2^-23 sum_k |u_k v_k| (products of codes are exact; the factor 2 covers
// the magnitude of the quantized terms), plus the rounding of the result to its dtype.
//
// E2M1 has steps of a third of a block's largest element, and a stochastic rounding errs by up to
// one. Where both operands are transformed by the same orthogonal matrix, 16 elements of a product
// with |u| <= U and |v| <= V become as many with norms of at most 4 U and 4 V, whose sum is off by
// at most 2 * 4 * 4 * 4 / 3 + 16 * (4 / 3)^2 < 5 * 16 times U V, and by the same share if only some
// of the 16 are not 0. An error of 2.5 amax for each element covers that: d(u) d(v) > 5 U V.
//
// Codes of 8 bits that are rounded at random err by up to a step, twice as much. The variance of
// that error is step^2 / 6 on average, less than the 4 h^2 / 3 = step^2 / 3 that follow below.
//
// Where the scale is a slot, the errors of different elements are independent roundings, so they
// cancel: the error of a sum has variance at most sum_k (u_k v_k)^2 (e_u^2 + e_v^2) / 3, because
// a uniform error in [-h, h] has variance h^2 / 3. The mean square of all elements must stay below
// twice that (plus the square of the absolute part), which is far below the worst case.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "octavo/draft/fp4.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// Largest error of one cast to any of these dtypes: as a share of the element, and of amax.
struct CastError {
  double relative;
  double of_amax;
};
CastError error_of(uint64_t dtypes) {
  if ((dtypes & dtype_bit(OCTAVO_E2M1)) != 0) return {0, 2.5};
  // Half a step; the largest code of a block is 64 or more, however its scale is rounded.
  if ((dtypes & dtype_bit(kInt8)) != 0) return {0, 0x1p-7};
  if ((dtypes & kStochasticBit) != 0) {
    const CastError nearest = error_of(dtypes & ~kStochasticBit);
    return {2 * nearest.relative, 2 * nearest.of_amax};
  }
  if ((dtypes & dtype_bit(OCTAVO_E5M2)) != 0) return {0x1p-3, 0x1p-13};
  if ((dtypes & dtype_bit(OCTAVO_E4M3FN)) != 0) return {0x1p-4, 0x1p-13};
  if ((dtypes & dtype_bit(OCTAVO_BF16)) != 0) return {0x1p-8, 0x1p-13};
  if ((dtypes & dtype_bit(OCTAVO_F16)) != 0) return {0x1p-11, 0x1p-13};
  return {0, 0};
}

struct Operand {
  Matrix m;
  bool transposed;
  double relative;  // e
  double absolute;  // a

  int64_t rows() const { return transposed ? m.cols() : m.rows(); }
  int64_t depth() const { return transposed ? m.rows() : m.cols(); }
  double at(int64_t i, int64_t k) const { return transposed ? m.at(k, i) : m.at(i, k); }
  double error(double v) const { return relative * std::fabs(v) + absolute; }
};

Operand operand(const Matrix &m, bool transposed, CastError e) {
  double amax = 0;
  for (const double v : values_of(m)) amax = std::max(amax, std::fabs(v));
  return {m, transposed, e.relative, amax * e.of_amax};
}

// Largest error of one rounding of a value to a plain dtype; f16 has a least step.
double rounding(uint32_t dtype, double value) {
  if (dtype == OCTAVO_F16) return 0x1p-11 * std::fabs(value) + 0x1p-25;
  return (dtype == OCTAVO_F32 ? 0x1p-24 : 0x1p-8) * std::fabs(value);
}

// out[i, j] = sum_k a[i, k] b[j, k] + bias[j].
void check_product(const Matrix &out, const Operand &a, const Operand &b, const Matrix *bias,
                   bool independent, const std::string &what) {
  double squares = 0;
  double allowed = 0;
  for (int64_t i = 0; i < a.rows(); ++i) {
    for (int64_t j = 0; j < b.rows(); ++j) {
      double sum = bias == nullptr ? 0 : bias->at(0, j);
      double magnitude = std::fabs(sum);
      double bound = 0;
      double variance = 0;
      double floor = 0;
      for (int64_t k = 0; k < a.depth(); ++k) {
        const double u = a.at(i, k);
        const double v = b.at(j, k);
        const double du = a.error(u);
        const double dv = b.error(v);
        sum += u * v;
        magnitude += std::fabs(u * v);
        bound += std::fabs(u) * dv + std::fabs(v) * du + du * dv;
        variance += u * u * v * v * (a.relative * a.relative + b.relative * b.relative) / 3;
        floor += std::pow(std::fabs(u) * b.absolute + std::fabs(v) * a.absolute, 2);
      }
      const double fp32 = static_cast<double>(a.depth() + 2) * 0x1p-23 * magnitude;
      const double cast = rounding(out.tensor.dtype, std::fabs(sum) + bound + fp32);
      const double error = std::fabs(out.at(i, j) - sum);
      expect(error <= bound + fp32 + cast, what, " [", i, ", ", j, "] should be ", sum, " within ",
             bound + fp32 + cast, " but is ", out.at(i, j));
      squares += error * error;
      allowed += 2 * variance + 2 * floor + 2 * std::pow(fp32 + cast, 2);
    }
  }
  const bool enough = a.rows() * b.rows() >= 128 && a.depth() >= 5;
  expect(!independent || !enough || squares <= allowed, what, ": the mean square of the error is ",
         squares / static_cast<double>(a.rows() * b.rows()),
         " but independent roundings give at most ",
         allowed / static_cast<double>(a.rows() * b.rows()));
}

// Every batch of the host, in the third of three equal steps.
void check_batches(Host &host) {
  Session &s = host.session();
  // Two steps on the same data let a scale that follows amax settle; the weights stay.
  for (int step = 0; step < 2; ++step) {
    host.quantize_weights();
    for (Batch &batch : host.batches()) host.forward(batch);
    for (Batch &batch : host.batches()) host.backward(batch);
    host.end_step();
  }
  host.quantize_weights();
  const uint64_t weight_formats = s.kernels().quantized(OCTAVO_VERB_QUANTIZE_WEIGHT);
  const uint64_t x_formats = s.kernels().quantized(OCTAVO_VERB_FORWARD);
  const uint64_t dy_formats = s.kernels().quantized(OCTAVO_VERB_BACKWARD);
  const auto error = [&](uint64_t formats) {
    const CastError e = error_of(formats);
    return CastError{e.relative, std::ldexp(e.of_amax, s.kernels().margin())};
  };
  const CastError e_w = error(weight_formats | x_formats);
  const CastError e_x = error(x_formats);
  const CastError e_dy = error(dy_formats);
  Call overwrite;
  overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
  for (Batch &batch : host.batches()) {
    const Linear &linear = s.linears()[batch.spec.linear];
    const bool independent = s.forward_reads(batch.spec.linear, OCTAVO_ROLE_SCALE);
    const Matrix &w = host.weight(linear.weight);
    host.forward(batch);
    host.backward(batch, overwrite);
    check_product(batch.y, operand(batch.x, false, e_x), operand(w, false, e_w), &batch.bias,
                  independent, text("y of ", batch.name));
    Call evaluation;
    evaluation.evaluates = true;
    evaluation.save = evaluation.record = false;
    host.forward(batch, evaluation);
    // In the host's precision: that of the narrower operand, at the most.
    const bool in_host = (linear.plan.flags & OCTAVO_LINEAR_EVALUATES_IN_HOST) != 0;
    const bool is_f32 = batch.x.tensor.dtype == OCTAVO_F32 && w.tensor.dtype == OCTAVO_F32;
    const CastError of_host = error_of(is_f32 ? 0 : dtype_bit(OCTAVO_BF16));
    check_product(batch.y, operand(batch.x, false, in_host ? of_host : e_x),
                  operand(w, false, in_host ? of_host : e_w), &batch.bias, independent,
                  text("y of an evaluation of ", batch.name));
    check_product(batch.dx, operand(batch.dy, false, e_dy), operand(w, true, e_w), nullptr,
                  independent, text("dx of ", batch.name));
    for (int64_t n = 0; n < batch.dy.cols(); ++n) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t row = 0; row < batch.dy.rows(); ++row) {
        sum += batch.dy.at(row, n);
        magnitude += std::fabs(batch.dy.at(row, n));
      }
      const double bound = static_cast<double>(batch.dy.rows()) * 0x1p-23 * magnitude +
                           rounding(batch.db.tensor.dtype, sum);
      expect(std::fabs(batch.db.at(0, n) - sum) <= bound, "db of ", batch.name, " [", n,
             "] should be ", sum, " within ", bound, " but is ", batch.db.at(0, n),
             "; it sums dy before the cast");
    }
    if (linear.plan.gradient == OCTAVO_GRADIENT_NONE) continue;
    host.gradient(linear.weight);
    Matrix dw = host.dw(linear.weight);
    Operand dy = operand(batch.dy, true, e_dy);
    // A gradient slot is cast once more: fold that cast into the error of one operand.
    if (linear.plan.gradient == OCTAVO_GRADIENT_SLOT) dy.relative = (1 + dy.relative) * 1.125 - 1;
    check_product(dw, dy, operand(batch.x, true, e_x), nullptr,
                  independent && linear.plan.gradient == OCTAVO_GRADIENT_TENSOR,
                  text("dw of ", batch.name));
  }
}

// What the standard model has too little of: K, N, rows of a batch, linears.
void check_large(const Context &context) {
  Model model{{{"deep", 3, 1100}, {"tall", 1100, 3}}, {{"deep", "deep"}, {"tall", "tall"}}};
  for (int i = 0; i < 12; ++i) {
    const std::string name = text("small", i);
    model.parameters.push_back({name, 4 + i, 3 + i});
    model.linears.push_back({name, name});
  }
  Session s(context);
  s.add(model);
  s.seal();
  Host host(s, context.seed);
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    const std::string &name = s.linears()[id].name;
    const int64_t rows = name == "small0" ? 33000 : name == "small1" ? 300 : 6;
    Batch &batch = host.add_batch({id, rows, mix(context.seed, 700 + id)});
    // Few terms, from all parts of K: their sum has a narrow bound.
    for (Matrix *m : {&batch.x, &batch.dy})
      for (int64_t row = 0; row < rows && m->cols() > 100; ++row)
        for (int64_t col = 0; col < m->cols(); ++col)
          if (col % 137 != 136 && col != m->cols() - 1) m->set(row, col, 0);
  }
  check_batches(host);
}

// x, y, bias, dy, dx, db, weight and gradient in other dtypes than one another.
void check_mixtures(const Context &context) {
  const uint32_t all[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
  for (int turn = 0; turn < 3; ++turn) {
    Session s(context);
    const auto dtype = [&](int i) {
      const uint32_t wanted = all[(turn + i) % 3];
      return s.kernels().reads(wanted) ? wanted : uint32_t{OCTAVO_F32};
    };
    const uint32_t weight = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    s.add({{{"alike", 17, 33, weight, dtype(0), dtype(0)},
            {"apart", 24, 40, weight, dtype(0), dtype(1)}},
           {{"alike", "alike"}, {"apart", "apart"}}},
          true);
    s.seal();
    Host host(s, context.seed);
    for (uint32_t id = 0; id < s.linears().size(); ++id) {
      BatchSpec spec{id, 20, mix(context.seed, 800 + id), dtype(0), dtype(0), 0, 0};
      host.add_batch(spec);
      spec.y_dtype = dtype(1);
      spec.bias_dtype = spec.dy_dtype = dtype(2);
      spec.dx_dtype = dtype(1);
      spec.db_dtype = dtype(0);
      host.add_batch(spec);
    }
    check_batches(host);
  }
}

// Where a cast of f32 goes over to the next code says what it was made of: behind a rounding to 16
// bits, the border lies in the middle between two values of 16 bits, every time.
struct Border {
  const char *operand, *result;
  Matrix &in, &out;
  std::function<void()> verbs;
};

uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void check_border(const Border &b, const std::string &linear) {
  constexpr int kBorders = 6;
  int of_bf16 = 0, of_f16 = 0, found = 0;
  for (int i = 0; i < kBorders; ++i) {
    const auto result = [&](float value) {
      b.in.set(0, 1, static_cast<double>(value));
      b.verbs();
      return bytes_of(b.out);
    };
    float low = 0.31F + 0.017F * static_cast<float>(i), high = low * 1.4F;
    const std::vector<uint8_t> below = result(low);
    if (result(high) == below) continue;
    while (bits_of(high) - bits_of(low) > 1) {
      const uint32_t bits = bits_of(low) + (bits_of(high) - bits_of(low)) / 2;
      float middle = 0;
      std::memcpy(&middle, &bits, sizeof middle);
      (result(middle) == below ? low : high) = middle;
    }
    ++found;
    // The border is between low and high: at the middle, on whichever side of it.
    const auto is_middle = [&](uint32_t rest, uint32_t half) {
      return (bits_of(low) & rest) == half || (bits_of(high) & rest) == half;
    };
    of_bf16 += is_middle(0xFFFF, 0x8000) ? 1 : 0;
    of_f16 += is_middle(0x1FFF, 0x1000) ? 1 : 0;
  }
  const char *of = of_bf16 == found ? "bf16" : of_f16 == found ? "f16" : nullptr;
  expect(found < 3 || of == nullptr, b.operand, " in f32 is rounded to ", of == nullptr ? "" : of,
         " before its cast: ", b.result, " of '", linear, "' changes where ", b.operand,
         " passes the middle between two such numbers, in ", found, " of ", found, " cases");
}

void check_borders(const Context &context) {
  Session s(context);
  s.add({{{"few", 16, 16}}, {{"few", "few"}}});
  s.seal();
  Host host(s, context.seed);
  Batch &batch = host.add_batch({0, 1, context.seed});
  const uint32_t weight = s.linears()[0].weight;
  Matrix &w = host.weight(weight), &dw = host.dw(weight);
  for (Matrix *m : {&batch.x, &batch.dy, &w}) m->set(0, 0, 2);  // the amax, whatever the rest
  host.write_weight(weight);
  Call overwrite;
  overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
  const auto forward = [&] { host.forward(batch); };
  const auto backward = [&] { host.backward(batch, overwrite); };
  for (int step = 0; step < 2; ++step) {
    host.quantize_weights();
    forward();
    backward();
    host.end_step();
  }
  host.quantize_weights();
  uint64_t formats = 0;
  for (const uint32_t verb :
       {OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD})
    formats |= s.kernels().quantized(verb);
  const uint64_t fp8 = dtype_bit(OCTAVO_E4M3FN) | dtype_bit(OCTAVO_E5M2);
  if (formats == 0 || (formats & ~fp8) != 0) return;  // 16 bits are a format here, or random ones
  const Border borders[] = {
      {"x", "y", batch.x, batch.y, forward},
      {"dy", "dx", batch.dy, batch.dx, [&] { backward(); }},
      {"x", "dw", batch.x, dw, [&] { forward(), backward(), host.gradient(weight); }},
      {"dy", "dw", batch.dy, dw, [&] { backward(), host.gradient(weight); }},
      {"w", "y", w, batch.y,
       [&] { host.write_weight(weight), host.quantize_weights(), forward(); }},
  };
  for (const Border &border : borders) {
    // A backend's own form of a weight may have 16 bits.
    if (border.in.tensor.data == w.tensor.data && !s.is_native(weight, OCTAVO_ROLE_WEIGHT))
      continue;
    if (border.in.tensor.dtype == OCTAVO_F32) check_border(border, s.linears()[0].name);
  }
}

}  // namespace

void check_numerics(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    Batch &batch =
        host.add_batch({id, 40, mix(context.seed, 600 + id), OCTAVO_F32, OCTAVO_F32, 1, 0});
    vary_rows(batch.x);
    vary_rows(batch.dy);
  }
  check_batches(host);
  check_large(context);
  check_mixtures(context);
  check_borders(context);
}

}  // namespace octavo::conformance

// rows: a row of y is the same whatever rows came with it, unless its scale follows from them.
//
// That is so with a scale from a slot, with scales of single rows or parts of rows, and without
// scales. In a batch that repeats its rows it is so with any scale. Padding must not show either,
// so every M from 1 to 33 is tried, at the start and at the end of the batch.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "all_checks.h"
#include "between.h"
#include "host.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr int64_t kRows = 33;  // no weight of the model has as many

// Kernels that notice which scales follow from several rows of a batch of kRows rows, and whether a
// product or a decoding reads one.
class BatchScales : public KernelsBetween<BatchScales> {
 public:
  explicit BatchScales(const Context &context) : KernelsBetween(context) {
    table_.quantize = quantize;
    table_.gemm = gemm;
    table_.dequantize = dequantize;
    table_.get_extension = get_extension;
    real_tables_ = KernelsTables(&real(), context.target.desc.kernels_ctx);
    if (const octavo_fp4_kernels *fp4 = real_tables_.get<octavo_fp4_kernels>()) {
      fp4_ = *fp4;
      fp4_.quantize_fp4 = quantize_fp4;
    }
  }
  void forget() {
    addresses_.clear();
    are_read_ = false;
  }
  bool are_read() const { return are_read_; }

 private:
  static bool spans_rows(uint32_t granularity) {
    return granularity != OCTAVO_PER_ROW && granularity != OCTAVO_BLOCK_1X128 &&
           granularity != OCTAVO_BLOCK_1X32;
  }
  void write(const octavo_scale *scale, bool is_of_batch) {
    if (scale == nullptr) return;
    if (is_of_batch)
      addresses_.insert(scale->data);
    else
      addresses_.erase(scale->data);
  }
  void read(const octavo_scale *scale) {
    are_read_ |= scale != nullptr && addresses_.count(scale->data) != 0;
  }
  static octavo_status quantize(void *ctx, const octavo_quantize *c) {
    note(c);
    return watching_->real().quantize(ctx, c);
  }
  static const void *get_extension(void *ctx, octavo_str id) {
    const void *found = watching_->real().get_extension(ctx, id);
    return found != nullptr && found == watching_->real_tables_.get<octavo_fp4_kernels>()
               ? &watching_->fp4_
               : found;
  }
  static octavo_status quantize_fp4(void *ctx, const octavo_quantize_fp4 *c) {
    note(c->quantize);
    return watching_->real_tables_.get<octavo_fp4_kernels>()->quantize_fp4(ctx, c);
  }
  static void note(const octavo_quantize *c) {
    // A scale that is given is no constant either: this linear reads none from a slot.
    const bool is_of_batch =
        c->in->rows == kRows && (c->rule != OCTAVO_RULE_GIVEN || c->scale != nullptr);
    if (c->out_scale_inv != nullptr)
      watching_->write(c->out_scale_inv, is_of_batch && spans_rows(c->out_scale_inv->granularity));
    watching_->write(c->out_t_scale_inv, is_of_batch);  // its rows are columns of x
  }
  static octavo_status gemm(void *ctx, const octavo_gemm *c) {
    watching_->read(c->a_scale_inv);
    watching_->read(c->b_scale_inv);
    return watching_->real().gemm(ctx, c);
  }
  static octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
    watching_->read(c->scale_inv);
    return watching_->real().dequantize(ctx, c);
  }

  std::set<const void *> addresses_;
  KernelsTables real_tables_;
  octavo_fp4_kernels fp4_{};
  bool are_read_ = false;
};

// A batch that repeats another has its scales, whatever they span: y and dx repeat, and dw and db
// are so many times theirs. `few` divides what is a block of rows anywhere.
void check_repeated(Host &host, uint32_t linear, int64_t few, int64_t times, uint64_t seed) {
  Session &s = host.session();
  Batch &one = host.add_batch({linear, few, seed});
  Batch &all = host.add_batch({linear, few * times, seed});
  const auto repeat = [&](const Matrix &from, Matrix &to) {
    const auto width = static_cast<size_t>(from.cols()) * sizeof(float);
    for (int64_t row = 0; row < to.rows(); ++row)
      std::memcpy(to.element(row, 0), from.element(row % few, 0), width);
  };
  repeat(one.x, all.x);
  repeat(one.dy, all.dy);
  all.bias = one.bias;
  const uint32_t weight = s.linears()[linear].weight;
  Call overwrite;
  overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
  std::vector<double> dw[2];
  Batch *const batches[] = {&one, &all};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    host.forward(*batches[i]);
    host.backward(*batches[i], overwrite);
    dw[i] = host.gradient(weight);
  }
  const std::string what = text(" of '", s.linears()[linear].name, "' with ", few, " rows, ", times,
                                " times in one batch, against once");
  std::vector<uint8_t> expected;
  const auto expect_repeated = [&](const Matrix &single, const Matrix &found, const char *name) {
    expected.clear();
    const std::vector<uint8_t> bytes = bytes_of(single);
    for (int64_t i = 0; i < times; ++i) expected.insert(expected.end(), bytes.begin(), bytes.end());
    expect_equal_bits(found, expected, name + what);
  };
  expect_repeated(one.y, all.y, "y");
  const uint64_t at_random = kStochasticBit | dtype_bit(OCTAVO_E2M1);
  if ((s.kernels().quantized(OCTAVO_VERB_BACKWARD) & at_random) != 0) return;
  expect_repeated(one.dx, all.dx, "dx");
  const auto expect_times = [&](const std::vector<double> &part, const std::vector<double> &sum,
                                double tolerance, const char *name) {
    double largest = 0;
    for (const double v : part) largest = std::max(largest, std::fabs(v));
    const auto n = static_cast<double>(times);
    for (size_t i = 0; i < part.size(); ++i)
      expect(std::fabs(sum[i] - n * part[i]) <= tolerance * n * largest, name, what, ": element ",
             i, " should be ", n * part[i], " but is ", sum[i]);
  };
  expect_times(values_of(one.db), values_of(all.db), 0x1p-8, "db");
  const octavo_linear_plan &plan = s.linears()[linear].plan;
  // A gradient slot is cast, to E5M2 at the coarsest, once in each of the two calls.
  const double cast = plan.gradient == OCTAVO_GRADIENT_SLOT ? 0x1p-2 : 0x1p-8;
  if (plan.gradient != OCTAVO_GRADIENT_NONE && few % 32 == 0)
    expect_times(dw[0], dw[1], cast, "dw");
}

}  // namespace

void check_rows(const Context &context) {
  if ((context.target.desc.caps->flags & OCTAVO_CAPS_EXACT_GEMM) == 0)
    throw Skip("the products of these kernels are not exact to the bit");
  BatchScales scales(context);
  Standard standard(scales.context());
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.train_step();
  // Warm-up is over: a counter that forward reads stands where long training would leave it.
  for (uint32_t slot = 0; slot < s.slots().size(); ++slot) {
    const octavo_slot &d = s.slots()[slot].desc;
    if (d.role != OCTAVO_ROLE_COUNTER || d.dtype != OCTAVO_F32) continue;
    if (d.access[OCTAVO_VERB_FORWARD] != OCTAVO_ACCESS_READ) continue;
    for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
      encode(OCTAVO_F32, 1 << 20, host.address(slot) + at);
    }
  }
  host.quantize_weights();
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    Batch &whole = host.add_batch({id, kRows, mix(context.seed, 400 + id)});
    vary_rows(whole.x);
    check_repeated(host, id, 32, 4, mix(context.seed, 450 + id));
    check_repeated(host, id, 1, 101, mix(context.seed, 470 + id));
    const int64_t elements = host.weight(s.linears()[id].weight).rows() * whole.x.cols();
    if (elements < 10) check_repeated(host, id, 32, 1040, mix(context.seed, 490 + id));
    scales.forget();
    host.forward(whole);
    if (!s.forward_reads(id, OCTAVO_ROLE_SCALE) && scales.are_read()) continue;
    const auto bytes = bytes_of(whole.y);
    const size_t width = bytes.size() / kRows;
    for (int64_t m = 1; m < kRows; ++m) {
      Batch &part = host.add_batch({id, m, 0});
      part.bias = whole.bias;
      for (const int64_t first : {int64_t{0}, kRows - m}) {
        for (int64_t row = 0; row < m; ++row) {
          std::memcpy(part.x.element(row, 0), whole.x.element(first + row, 0),
                      static_cast<size_t>(part.x.cols()) * sizeof(float));
        }
        host.forward(part);
        const auto begin = bytes.begin() + first * static_cast<int64_t>(width);
        const std::vector<uint8_t> expected(begin, begin + m * static_cast<int64_t>(width));
        expect_equal_bits(part.y, expected,
                          text("y of rows ", first, " to ", first + m - 1, " of '",
                               s.linears()[id].name, "' alone, against a batch of ", kRows));
      }
    }
  }
}

}  // namespace octavo::conformance

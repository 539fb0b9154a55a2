// sum_rows, sum_of_squares and prologues, to the bit.
#include <cmath>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kAll[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};

bool is_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}

// Columns that cancel but for a little: what fp64 drops on the way shows in the result, so another
// order of the additions has other bits.
Grid cancelling(uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Grid g = Grid::of(dtype, rows, cols, 3);
  spread(g, seed, dtype == OCTAVO_F32 ? 0 : -5, dtype == OCTAVO_F32 ? 40 : 5);
  Numbers numbers(seed);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows / 2; ++r) g.put(rows - 1 - r * 5 % (rows / 2), c, -g.at(r, c));
  for (int64_t c = 0; c < cols && rows > 2; ++c) g.put(rows / 2, c, numbers.spread(-5, 0));
  return g;
}

Case sum_case(const Grid &in, bool squares, bool accumulate, bool with_workspace) {
  Case one;
  one.name =
      text(squares ? "sum_of_squares" : "sum_rows", " of ", name_of(in.dtype), " ", shape_text(in),
           accumulate ? ", accumulate" : "", with_workspace ? "" : ", no workspace");
  one.variant = text(name_of(in.dtype), accumulate && !squares ? ", accumulate" : "");
  one.question = asking(OCTAVO_KIND_SUM, in.dtype);
  one.body = [=](Operands &m) {
    auto *c = m.make<octavo_sum>(OCTAVO_KIND_SUM);
    c->in = m.in("in", in);
    if (is_code(in.dtype))
      c->in_scale_inv = m.scale_in("in_scale_inv", Grid::of_values({0.37f}), OCTAVO_PER_TENSOR);
    std::vector<float> out(squares ? 1 : static_cast<size_t>(in.cols));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = accumulate ? 0.125f * static_cast<float>(i + 1) : 0;
    c->out = m.values_out("out", out);
    c->accumulate = accumulate && !squares;
    if (with_workspace) c->workspace = m.workspace(c);
    return squares ? m.call(&octavo_adam_kernels::sum_of_squares, c)
                   : m.call(&octavo_kernels::sum_rows, c);
  };
  return one;
}

// `ability` has one question for both sums; what the table lacks is not there.
void expect_offered(bool is_there, const char *name) {
  if (is_there) return;
  not_offered(name);
  throw Skip(text("not offered: ", name));
}

}  // namespace

void check_sum_rows(const Bench &bench) {
  expect_offered(bench.side->table.sum_rows != nullptr, "sum_rows");
  Trial trial(bench, "sum_rows");
  uint64_t seed = bench.seed * 500;
  for (const uint32_t dtype : kAll)
    for (const auto &[rows, cols] :
         {std::pair{0, 5}, {1, 1}, {31, 3}, {33, 65}, {257, 40}, {600, 17}, {1030, 5}})
      for (const bool accumulate : {false, true}) {
        const Grid in = cancelling(dtype, rows, cols, ++seed);
        trial.run(sum_case(in, false, accumulate, true));
        if (rows == 600) trial.run(sum_case(in, false, accumulate, false));
      }
  Grid spoiled = cancelling(OCTAVO_F32, 40, 9, seed);
  spoil(spoiled, true, true);
  trial.run(sum_case(spoiled, false, false, true));
  trial.finish();
}

void check_squares(const Bench &bench) {
  expect_offered(bench.side->drafts.get<octavo_adam_kernels>() != nullptr, "sum_of_squares");
  Trial trial(bench, "sum_of_squares");
  uint64_t seed = bench.seed * 600;
  for (const uint32_t dtype : kAll)
    for (const auto &[rows, cols] : {std::pair{0, 5}, {1, 1}, {17, 65}, {64, 300}, {3, 9001}}) {
      Grid in = Grid::of(dtype, rows, cols, 2);
      spread(in, ++seed, -8, 4);
      trial.run(sum_case(in, true, rows == 17, true));
    }
  // 4097 squared is a tie of fp32. Each 2^-15 squared is below half of the last bit of that in
  // fp64, so only the order of the contract, which adds them up first, leaves the tie upwards.
  Grid tie = Grid::of(OCTAVO_F32, 1, 4096);
  tie.fill(0x1p-15f);
  tie.put(0, 0, 4097);
  trial.run(sum_case(tie, true, false, true));
  trial.run(sum_case(tie, true, false, false));
  trial.finish();
}

namespace {

struct Prologue {
  uint32_t op;
  Grid in;
  uint32_t weights = OCTAVO_F32;
  bool beta = false, statistics = true;

  bool is_norm() const { return op <= OCTAVO_PROLOGUE_RMS_NORM; }
  int64_t cols() const { return op == OCTAVO_PROLOGUE_SWIGLU ? in.cols / 2 : in.cols; }

  octavo_prologue *describe(Operands &m) const {
    auto *p = m.make<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
    p->op = op;
    p->in = m.in("in", in);
    if (!is_norm()) return p;
    p->eps = 1e-5f;
    Grid gamma = Grid::of(weights, 1, in.cols);
    spread(gamma, 9, -1, 1);
    p->gamma = m.in("gamma", gamma);
    if (beta) {
      spread(gamma, 10, -2, 1);
      p->beta = m.in("beta", gamma);
    }
    if (!statistics) return p;
    const std::vector<float> rows(static_cast<size_t>(in.rows), 0.5f);
    if (op == OCTAVO_PROLOGUE_LAYER_NORM) p->mean = m.values_out("mean", rows);
    p->rstd = m.values_out("rstd", rows);
    return p;
  }
};

const char *op_name(uint32_t op) {
  constexpr const char *kNames[] = {"", "LAYER_NORM", "RMS_NORM", "GELU", "GELU_TANH", "SWIGLU"};
  return kNames[op];
}

std::vector<Prologue> prologues(uint64_t seed) {
  std::vector<Prologue> all;
  for (uint32_t op = OCTAVO_PROLOGUE_LAYER_NORM; op <= OCTAVO_PROLOGUE_SWIGLU; ++op)
    for (const uint32_t dtype : kPlain)
      for (const auto &[rows, cols] : {std::pair{1, 1}, {17, 67}, {5, 520}, {0, 9}}) {
        if (rows == 0 && dtype != OCTAVO_F32) continue;
        const int64_t width = op == OCTAVO_PROLOGUE_SWIGLU ? 2 * cols : cols;
        Prologue p{op, Grid::of(dtype, rows, width, 3)};
        spread(p.in, ++seed, -6, 2);
        p.beta = op == OCTAVO_PROLOGUE_LAYER_NORM;
        all.push_back(p);
        if (rows == 17) {
          spoil(p.in, true, true);
          p.beta = p.statistics = false;
          p.weights = OCTAVO_BF16;
          all.push_back(p);
        }
      }
  return all;
}

}  // namespace

void check_prologue(const Bench &bench) {
  expect_offered(bench.side->table.prologue != nullptr, "prologue");
  Trial trial(bench, "prologue");
  for (const Prologue &p : prologues(bench.seed * 700))
    for (const uint32_t out : kPlain) {
      Case one;
      one.name = text("prologue ", op_name(p.op), " of ", name_of(p.in.dtype), " ",
                      shape_text(p.in), " to ", name_of(out));
      one.variant = text(op_name(p.op), " of ", name_of(p.in.dtype));
      one.question = asking(OCTAVO_KIND_PROLOGUE_CALL, p.in.dtype);
      one.body = [p, out](Operands &m) {
        auto *c = m.make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
        c->prologue = p.describe(m);
        c->out = m.out("out", Grid::of(out, p.in.rows, p.cols(), 2));
        return m.call(&octavo_kernels::prologue, c);
      };
      trial.run(one);
    }
  trial.finish();
}

void check_prologue_quantize(const Bench &bench) {
  expect_offered(bench.side->table.prologue_quantize != nullptr, "prologue_quantize");
  Trial trial(bench, "prologue_quantize");
  for (const Prologue &p : prologues(bench.seed * 800))
    for (const uint32_t granularity :
         {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X32}) {
      Cast cast{.in = Grid{p.in.dtype, p.in.rows, p.cols(), p.cols()}};
      cast.granularity = granularity;
      if (granularity == OCTAVO_BLOCK_1X32) cast.rule = OCTAVO_RULE_MX_UP;
      cast.out_t = true;
      cast.gap = 2;
      Case one;
      one.name = text("prologue_quantize ", op_name(p.op), ": ", cast.name());
      one.variant =
          text(op_name(p.op), " of ", name_of(p.in.dtype), ", ", granularity_name(granularity));
      one.question = asking(OCTAVO_KIND_PROLOGUE_CALL, p.in.dtype);
      one.body = [p, cast](Operands &m) {
        auto *c = m.make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
        c->prologue = p.describe(m);
        c->quantize = cast.describe(m);
        // As a plan asks, for every op.
        auto *any = m.make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
        any->quantize = c->quantize;
        c->workspace = m.workspace(cast.granularity == OCTAVO_PER_TENSOR ? c : any);
        return m.call(&octavo_kernels::prologue_quantize, c);
      };
      trial.run(one);
    }
  trial.finish(false);
}

}  // namespace octavo::conformance::kernels

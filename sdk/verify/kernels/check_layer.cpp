// A layer: what it passes on, and its own calls, whose numbers only its author knows.
#include <algorithm>

#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kOfContract[] = {OCTAVO_F32,  OCTAVO_BF16,    OCTAVO_F16, OCTAVO_E4M3FN,
                                    OCTAVO_E5M2, OCTAVO_E8M0FNU, OCTAVO_I32, OCTAVO_U8};

template <typename Table>
struct PassedOn {
  static void expect_of(const Side &both, const Side &below) {
    expect(below.get<Table>() == nullptr || both.get<Table>() != nullptr, "get_extension hides ",
           text_of(KernelsTableId<Table>::id),
           ", which the kernels below have: a layer answers null for an id that is not its own");
  }
};

// Whatever the kernels below execute, both execute, in the same memory.
void expect_passed_on(const Side &both, const Side &below) {
  for (const uint32_t call : kCalls)
    for (const uint32_t dtype : kOfContract)
      for (uint32_t granularity = 0; granularity < 9; ++granularity)
        for (uint32_t flags = 0; flags < 8; ++flags) {
          const octavo_ability q = asking(call, dtype, granularity, flags, dtype, granularity);
          expect(below.decision(q) == OCTAVO_DECLINE || both.decision(q) != OCTAVO_DECLINE,
                 "ability declines call ", call, " of ", name_of(dtype), ", ",
                 granularity_name(granularity), ", flags ", flags,
                 ", which the kernels below execute: a layer answers OCTAVO_UNSUPPORTED there");
        }
  std::apply([&](auto... table) { (table.expect_of(both, below), ...); },
             OfDraftTables<PassedOn>());
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_E4M3FN}) {
    octavo_tensor a = {nullptr, 512, 768, 768, dtype, 0}, b = {nullptr, 256, 768, 768, dtype, 0};
    octavo_tensor d = {nullptr, 512, 256, 256, OCTAVO_F32, 0};
    const octavo_scale scale = OCTAVO_SCALE(nullptr, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
    auto c = octavo::make<octavo_gemm>(OCTAVO_KIND_GEMM);
    c.a = &a, c.b = &b, c.d = &d;
    if (dtype == OCTAVO_E4M3FN) c.a_scale_inv = c.b_scale_inv = &scale;
    uint64_t bytes[2] = {};
    octavo_status status[2];
    const Side *sides[] = {&below, &both};
    for (int i = 0; i < 2; ++i)
      status[i] = sides[i]->table.workspace_bytes(sides[i]->ctx, &c, &bytes[i]);
    expect(status[0] != OCTAVO_OK || (status[1] == OCTAVO_OK && bytes[0] == bytes[1]),
           "workspace_bytes of a gemm of ", name_of(dtype), " is ", bytes[1],
           "; expected the answer of the kernels below, ", bytes[0]);
  }
}

struct Format {
  uint32_t dtype, granularity;
};

// Casts to elements of whole bytes in dtypes that the contract does not have.
std::vector<Format> own_formats(const Side &both, const Side &below) {
  std::vector<Format> all;
  for (const uint32_t bits : {8u, 16u, 32u})
    for (uint32_t code = 0; code < 256; ++code)
      for (uint32_t granularity = 0; granularity < 9; ++granularity) {
        const uint32_t dtype = bits << 8 | code;
        const octavo_ability q = asking(OCTAVO_KIND_QUANTIZE, dtype, granularity);
        if (std::find(std::begin(kOfContract), std::end(kOfContract), dtype) ==
                std::end(kOfContract) &&
            below.decision(q) == OCTAVO_DECLINE && both.decision(q) != OCTAVO_DECLINE)
          all.push_back({dtype, granularity});
      }
  return all;
}

// A matrix in the layer's dtype, as bytes.
Grid bytes_of(const Format &f, int64_t rows, int64_t cols) {
  Grid g = Grid::of(OCTAVO_U8, rows, cols * OCTAVO_DTYPE_BITS(f.dtype) / 8, 4);
  std::fill(g.bytes.begin(), g.bytes.end(), uint8_t{0x11});
  return g;
}
octavo_tensor *named(octavo_tensor *t, const Format &f) {
  const int64_t element = OCTAVO_DTYPE_BITS(f.dtype) / 8;
  t->cols /= element, t->stride /= element;
  t->dtype = f.dtype;
  return t;
}

// Twice where the operands end at a guard, once where they begin behind one.
Results run_everywhere(const Bench &bench, Arena &arena, const std::string &name, const Body &body,
                       bool *is_refused) {
  Results first;
  const bool repeats = (bench.side->caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0;
  for (const Place place : {Place::kEnd, Place::kEnd, Place::kBegin}) {
    Operands m(*bench.side, arena, place, name);
    const octavo_status status = body(m);
    Results found = m.results();
    *is_refused = status == OCTAVO_UNSUPPORTED;
    if (*is_refused) return {};
    expect(status == OCTAVO_OK, name, ": answered ", status_name(status), ": ", last_message());
    if (first.empty()) first = found;
    const std::string problem = differing(first, found);
    expect(!repeats || problem.empty(), name,
           place == Place::kEnd ? ": the same call gave other bits: " : ": NaN around operands: ",
           problem);
  }
  return first;
}

void check_own(const Bench &bench, const Format &f, Arena &arena) {
  const int64_t rows = 33, cols = 70;
  Grid in = Grid::of(OCTAVO_F32, rows, cols, 3);
  spread(in, bench.seed + 90, -6, 3);
  const std::string format = text("dtype ", f.dtype, ", ", granularity_name(f.granularity));
  Results cast;
  bool is_refused = true;
  for (uint32_t rule = OCTAVO_RULE_DEEPGEMM_POW2 + 1; rule > 0 && is_refused; --rule)
    cast = run_everywhere(
        bench, arena, "quantize to " + format,
        [&](Operands &m) {
          auto *c = m.make<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
          c->in = m.in("in", in);
          c->out = named(m.out("out", bytes_of(f, rows, cols)), f);
          c->out_scale_inv =
              m.scale_out("out_scale_inv", scales_of(f.granularity, rows, cols), f.granularity);
          c->format_max = 127;
          c->rule = rule - 1;
          c->workspace = m.workspace(c);
          return m.call(&octavo_kernels::quantize, c);
        },
        &is_refused);
  expect(!is_refused, "quantize to ", format,
         ": ability accepts it, but the call is refused with every rule: ", last_message());
  for (const uint32_t layout : {0u, uint32_t{OCTAVO_GEMM_A_KM}, uint32_t{OCTAVO_GEMM_B_KN},
                                uint32_t{OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN}}) {
    if (bench.side->decision(asking(OCTAVO_KIND_GEMM, f.dtype, f.granularity, layout, f.dtype,
                                    f.granularity)) == OCTAVO_DECLINE)
      continue;
    const bool a_km = (layout & OCTAVO_GEMM_A_KM) != 0, b_kn = (layout & OCTAVO_GEMM_B_KN) != 0;
    if (a_km != b_kn) continue;  // one matrix as both operands: K is its rows, or its columns
    const int64_t size = a_km ? cols : rows;
    run_everywhere(
        bench, arena, text("gemm of ", format, ", layout ", layout),
        [&](Operands &m) {
          auto *c = m.make<octavo_gemm>(OCTAVO_KIND_GEMM);
          Grid d = Grid::of(OCTAVO_F32, size, size, 2);
          d.fill(0.5f);
          c->a = named(m.in("a", cast[0].grid), f);
          c->b = named(m.in("b", cast[0].grid), f);
          c->d = m.out("d", d);
          c->a_scale_inv = m.scale_in("a_scale_inv", cast[1].grid, f.granularity);
          c->b_scale_inv = m.scale_in("b_scale_inv", cast[1].grid, f.granularity);
          c->layout = layout;
          c->workspace = m.workspace(c);
          return m.call(&octavo_kernels::gemm, c);
        },
        &is_refused);
    expect(!is_refused, "gemm of ", format, ", layout ", layout,
           ": ability accepts it, but the call is refused: ", last_message());
  }
}

}  // namespace

void check_layer(const Bench &bench) {
  if (bench.below == nullptr) throw Skip("no layer");
  Tables tables;
  tables.run = bench.below;
  const Side below(tables, silent_host());
  step("what it passes on");
  expect_passed_on(*bench.side, below);
  Arena arena(*bench.side, uint64_t{2} << 20);
  for (const Format &f : own_formats(*bench.side, below)) {
    step(text("dtype ", f.dtype, ", ", granularity_name(f.granularity)));
    check_own(bench, f, arena);
  }
}

}  // namespace octavo::conformance::kernels

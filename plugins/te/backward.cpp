// dgrad and wgrad, each on codes, on plain operands or on decoded codes, and the end of a step.
#include "te.h"

namespace octavo::te {

using namespace plugin;

// dx = dy w, dw += dy^T x, db += column sums of dy
void Te::backward(Pass &p, const BackwardCall &c) const {
  const Recipe &r = recipe_;
  const bool dgrad = c.wants_dx() && r.dgrad == Operands::kFp8;
  const bool wgrad = c.wants_dw() && r.wgrad == Operands::kFp8;

  // What is kept of x comes first: a call that lacks it is refused before a kernel runs.
  octavo_tensor plain_x{};
  if (c.wants_dw() && r.wgrad == Operands::kPlain) plain_x = c.x();
  const Codes x =
      c.wants_dw() && r.wgrad != Operands::kPlain
          ? p.saved_codes(wgrad ? kColumns : kRows, c.k(), r.operand_dtype, r.operand_granularity)
          : Codes();

  // dy to codes, where a product reads them. Else only a look at it, so that its amax and the flag
  // do not depend on which gradients are wanted.
  const Observation seen = c[dy_];
  const bool rows = dgrad || (wgrad && seen.statistics.wanted);
  const auto directions = static_cast<Directions>((rows ? kRows : 0) | (wgrad ? kColumns : 0));
  Codes dy = dgrad || wgrad
                 ? p.codes(c.m(), c.n(), r.gradient_dtype, directions, r.operand_granularity)
                 : Codes();
  Cast way = by_recipe(seen);
  way.fp4_flags = r.dy_flags;
  way.is_stochastic = r.is_stochastic() && !r.is_fp4();
  way.key = static_cast<uint64_t>(options().rounding_seed) << 32 | c.linear.id;
  way.count = c[count_];
  // While dy may still be in a cache.
  if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  if (dgrad || wgrad) p.cast(c.dy(), dy, way);
  if (rows) p.record(c.dy(), dy.by_rows(), seen.statistics);
  if (p.measures_or(!dgrad && !wgrad)) p.record_amax(c.dy(), seen.amax, c[nonfinite_]);

  if (dgrad) {
    p.multiply(dy.by_rows(), c[cache_].by_columns(), c.dx());
  } else if (c.wants_dx()) {
    if (r.dgrad == Operands::kDequantized) {
      octavo_tensor w = p.workspace().tensor(c.n(), c.k(), c.dy().dtype);
      p.decode(c[cache_].by_rows(), w);
      p.multiply(plain(c.dy()), transposed(w), c.dx());
    } else {
      multiply_plain(p, c.dy(), transposed(c[weight_]), c.dx());
    }
  }

  if (c.wants_dw()) {
    const uint32_t how = c.accumulates() ? uint32_t{kAccumulate} : 0;
    if (wgrad) {
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr, how);
    } else {
      if (r.wgrad == Operands::kDequantized) {
        plain_x = p.workspace().tensor(c.m(), c.k(), c.dy().dtype);
        p.decode(x.by_rows(), plain_x);
      }
      p.multiply(transposed(c.dy()), transposed(plain_x), c.dw(), nullptr, how);
    }
  }
}

// Delayed scaling: the next scales from the amax of this step. Stochastic rounding: other random
// numbers, except after a step that hosts skip, as if it had not been.
void Te::finish_step(Pass &p, const StepCall &c) const {
  const auto update = [&](const ObservedSlot &operand, uint32_t dtype) {
    update_scales(
        p, c, operand,
        {format_max(dtype), recipe_.rule, recipe_.history, static_cast<int32_t>(options().margin),
         options().amax_compute_algo == Algorithm::kMax});
  };
  update(w_, OCTAVO_E4M3FN);
  update(x_, OCTAVO_E4M3FN);
  update(dy_, recipe_.gradient_dtype);
  if (!recipe_.is_stochastic()) return;
  auto count = p.call<octavo_count>(OCTAVO_KIND_COUNT);
  count.count = c[count_];
  count.skip = c[nonfinite_];
  p.run(&octavo_rounding_kernels::count, count);
}

}  // namespace octavo::te

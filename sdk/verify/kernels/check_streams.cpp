// Every call on other streams, captured, and while another device is current (provisional).
#include "checks.h"
#include "ways.h"

namespace octavo::conformance::kernels {
namespace {

// Those whose cases are of one Trial.
constexpr void (*kChecks[])(const Bench &) = {check_copy,
                                              check_quantize,
                                              check_quantize_nonfinite,
                                              check_quantize_delayed,
                                              check_quantize_rows,
                                              check_quantize_blocks,
                                              check_quantize_states,
                                              check_quantize_special,
                                              check_dequantize,
                                              check_fp4,
                                              check_amax,
                                              check_scale,
                                              check_history,
                                              check_gemm,
                                              check_gemm_plain,
                                              check_gemm_rows,
                                              check_gemm_blocks,
                                              check_gemm_fp4,
                                              check_sum_rows,
                                              check_squares,
                                              check_stats,
                                              check_prologue,
                                              check_prologue_quantize,
                                              check_adam,
                                              check_msamp,
                                              check_rounding,
                                              check_one_pass};

void run_all(const Bench &bench, std::unique_ptr<Ways> ways) {
  Bench own = bench;
  own.ways = ways.get();
  for (const auto check : kChecks) {
    try {
      check(own);
    } catch (const Skip &) {  // the check itself lists what is not offered
      take_not_offered();
    }
  }
}

}  // namespace

void check_streams(const Bench &bench) {
  streams_of(*bench.side);
  if (bench.side->table.copy == nullptr) {
    not_offered("copy, which brings operands on a stream");
    throw Skip("not offered: copy, which brings operands on a stream");
  }
  run_all(bench, on_streams(*bench.side));
}
void check_capture(const Bench &bench) {
  streams_of(*bench.side);
  run_all(bench, in_graphs(*bench.side));
}
void check_current_device(const Bench &bench) {
  streams_of(*bench.side);
  run_all(bench, on_other_devices(*bench.side));
}

}  // namespace octavo::conformance::kernels

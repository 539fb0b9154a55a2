/* The hot kernels, each once, as cubins whose machine code static_check.py reads.
 *
 * Taking an address instantiates a kernel without naming its parameters. A kernel that is new, or
 * has another name or other template arguments, needs its line here and its row in kernels.csv.
 */
#include "kernels/cuda/device/adam_one_pass.cuh"
#include "kernels/cuda/device/dequantize.cuh"
#include "kernels/cuda/device/gemm_finish.cuh"
#include "kernels/cuda/device/quantize_blocks.cuh"
#include "kernels/cuda/device/quantize_rows.cuh"
#include "kernels/cuda/device/quantize_tensor.cuh"
#include "kernels/cuda/device/sums.cuh"

namespace octavo::cuda {

using Source = TensorSource<Bf16>;

template <typename Kernel>
const void *hot(Kernel *kernel) {
  return reinterpret_cast<const void *>(kernel);
}

extern const void *const kHot[];
const void *const kHot[] = {
    hot(cast_rows_kernel<Source, E4m3, kWide>),
    hot(cast_kernel<Source, E4m3, kWide>),
    hot(measure_kernel<Source, kWide>),
    hot(quantize_blocks_kernel<Source, E4m3, kWide>),
    hot(quantize_rows_kernel<Source, E4m3, kWide>),
    hot(cast_rows_and_cols_kernel<Source, E4m3, kWide>),
    hot(measure_rows_kernel<Source, kWide>),
    hot(measure_adam_kernel<CodeItems>),
    hot(write_adam_kernel<CodeItems, AdamRounding::kShrinking>),
    hot(peak_adam_kernel<CodeItems>),
    hot(pass_adam_kernel<CodeItems, AdamRounding::kShrinking>),
    hot(sum_rows_kernel<Bf16>),
    hot(squares_kernel<F32>),
    hot(sum_quantized_kernel<E4m3>),
    hot(dequantize_wide_kernel<E4m3, Bf16>),
    hot(finish_gemm_kernel<kPack>),
};

}  // namespace octavo::cuda

"""The table of planted.py: each defect as a change of the sources, and the test that must fail then.

Where a text is gone, planted.py says so: write the defect anew for what stands there now, or drop it
where it cannot be written any more.
"""

from typing import NamedTuple


class Defect(NamedTuple):
    name: str
    # What to replace, each found exactly once: (file, text, by what).
    changes: list
    # The files to compile again: those with the change, or some that include it.
    compiles: list
    program: str
    test: str


GEMM_ERRORS = "kernels_cuda_gemm_errors_test"
NCCL = "ranks_nccl_test"
PENDING = "host_adapters/ranks/nccl/pending.cpp"
VERBS = "kernels_cuda_verbs_test"
K = "kernels/cuda/"

DEFECTS = [
    Defect("a failed capture loses the device",
           [(K + "context.cu", "    default: return false;\n", "    default: return error >= 700;\n")],
           [K + "context.cu"], VERBS, "CudaVerbs.work_again_after_a_capture_that_failed"),
    Defect("cuBLASLt is opened by the first product, under capture or not",
           [(K + "gemm_state.cu", "  open_state(context);\n  context.caller = caller;\n",
             "  context.caller = caller;\n"),
            (K + "gemm_state.cu", "  if (capture != cudaStreamCaptureStatusNone)\n", "  if (false)\n")],
           [K + "gemm_state.cu"], VERBS, "CudaVerbs.may_all_be_captured_first"),
    Defect("a launch loads code in the mode of the host",
           [(K + "launch.h", "    const CaptureMode relaxed(cudaStreamCaptureModeRelaxed);\n", "")],
           [K + "scales.cu"], VERBS, "CudaVerbs.may_all_be_captured_first"),
    Defect("the watcher of NCCL asks for events in global mode",
           [(PENDING, "  const CaptureMode relaxed(cudaStreamCaptureModeRelaxed);\n", "")],
           [PENDING], NCCL, "PendingTest.looking_leaves_captures_alone"),
    Defect("a stream is known by its handle",
           [(PENDING, "cudaStreamGetId(stream, &last_stream_)",
             "(last_stream_ = reinterpret_cast<uintptr_t>(stream), cudaSuccess)"),
            (PENDING, "cudaStreamGetId(stream, &id)",
             "(id = reinterpret_cast<uintptr_t>(stream), cudaSuccess)")],
           [PENDING], NCCL, "PendingTest.order_behind_a_stream_that_is_gone"),
    Defect("the epilogue gets a bias at any address",
           [(K + "gemm_blas.cu",
             "  if (reinterpret_cast<uintptr_t>(c.bias->data) % 16 != 0) return false;\n", "")],
           [K + "gemm_blas.cu"], GEMM_ERRORS,
           "CudaGemmErrors.a_bias_at_an_odd_address_is_added_later"),
    Defect("the thread's device stays changed",
           [(K + "device_scope.h", "    if (changed_) cudaSetDevice(before_);\n", "")],
           [K + "memory.cpp", K + "scales.cu"], VERBS, "CudaVerbs.leave_the_current_device"),
    Defect("a product that cuBLASLt refuses when it is called fails",
           [(K + "gemm_once.cu", "  if (!is_possible || answer == CUBLAS_STATUS_NOT_SUPPORTED)",
             "  if (!is_possible)")],
           [K + "gemm_once.cu"], GEMM_ERRORS, "CudaGemmErrors.a_refused_call_takes_another_way"),
    Defect("the grid is as high as the tensor has tiles",
           [(K + "quantize_launch.cuh", "  const int64_t deep = divide_up(down, 65535);\n",
             "  const int64_t deep = 1;\n")],
           ["tests/kernels/cuda/quantize_test.cpp"], "kernels_cuda_quantize_test",
           "CudaQuantize.more_tiles_than_a_grid_is_high"),
    Defect("a device without code is opened",
           [(K + "context.cu", "    if (has_none) {\n", "    if (has_none && false) {\n")],
           [K + "context.cu"], GEMM_ERRORS, "CudaGemmErrors.a_device_without_code_is_refused"),
    Defect("a launch does not look whether its device is current",
           [(K + "launch.h", "        status_(checked(context, verb, scope_.error())) {}\n",
             "        status_(OCTAVO_OK) {}\n")],
           [K + "scales.cu"], VERBS,
           "CudaVerbs.launch_nothing_where_the_device_cannot_be_made_current"),
    Defect("sums of a stream share memory by its handle",
           [(K + "sums.cu", "  return OCTAVO_HAS(&c, Call, workspace) ? c.workspace : nullptr;\n",
             "  static void *handles[64], *slots[64];\n"
             "  for (int i = 0;; ++i) {\n"
             "    if (slots[i] == nullptr) handles[i] = c.stream, cudaMalloc(&slots[i], 1 << 20);\n"
             "    if (handles[i] == c.stream) return slots[i];\n"
             "  }\n")],
           [K + "sums.cu"], VERBS,
           "CudaVerbs.on_several_streams_at_once_compute_what_one_computes"),
    Defect("sums of calls at once are added without atomics",
           [(K + "device/sums.cuh",
             "  if (threadIdx.x == 0) atomicAdd(out, static_cast<float>(sums[0]));\n",
             "  if (threadIdx.x == 0) *out += static_cast<float>(sums[0]);\n"),
            (K + "device/sums.cuh",
             "    if (added != nullptr) atomicAdd(added, static_cast<float>(count) * count_as);\n",
             "    if (added != nullptr) *added += static_cast<float>(count) * count_as;\n")],
           [K + "sums.cu"], VERBS, "CudaVerbs.accumulate_by_atomics"),
]

"""What is compared for each goal: see the column `what`. Ratios above 1 speak for Octavo, unless said.

Shapes are those of one layer of the 5B model in Transformer Engine's example of GEMM profiling:
15,872 tokens, width 4096, four linears, each with its forward, dgrad and wgrad.
"""
import torch

import layers
import training
from gpu_kernels import BLOCK_128X128, BLOCK_1X128, PER_ROW, PER_TENSOR, Codes
from results import Goal, Result, mean

COLUMNS = 4096


def shapes(bench):
    """M, N, K of the twelve products."""
    if bench.small:
        return [(64, 128, 256), (128, 256, 128)]
    products = []
    for n, k in layers.LINEARS:
        products += [(layers.TOKENS, n, k), (layers.TOKENS, k, n), (n, k, layers.TOKENS)]
    return products


def operands(bench, m, n, k, kinds=(PER_TENSOR, PER_TENSOR)):
    codes = [Codes(rows, k, bench.device, kind) for rows, kind in zip((m, n), kinds)]
    for c in codes:
        bench.kernels.quantize(bench.random(c.out.shape[0], k), c)()
    return codes, torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)


def per_shape(bench, sides_of, ours, other):
    """The geometric mean over the products of time(other) / time(ours)."""
    details = []
    for m, n, k in shapes(bench):
        times = bench.compare(**sides_of(m, n, k))
        details.append({"m": m, "n": n, "k": k, "ratio": times[other] / times[ours], **times})
    return Result(mean([d["ratio"] for d in details]), details)


def against_scaled_mm(bench):
    def sides(m, n, k):
        (a, b), out = operands(bench, m, n, k)
        scales = a.inverse.reshape(()), b.inverse.reshape(())
        return {"octavo": bench.kernels.multiply(a, b, out),
                "torch": lambda: torch._scaled_mm(a.out, b.out.t(), scale_a=scales[0],
                                                  scale_b=scales[1], out_dtype=torch.bfloat16,
                                                  use_fast_accum=True)}
    return per_shape(bench, sides, "octavo", "torch")


def against_bf16(bench):
    def sides(m, n, k):
        (a, b), out = operands(bench, m, n, k)
        x, w = bench.random(m, k), bench.random(n, k)
        return {"octavo": bench.kernels.multiply(a, b, out),
                "bf16": lambda: torch.matmul(x, w.t(), out=out)}
    return per_shape(bench, sides, "octavo", "bf16")


def granularity(kinds):
    def measure(bench):
        def sides(m, n, k):
            plain, out = operands(bench, m, n, k)
            scaled, _ = operands(bench, m, n, k, kinds)
            return {"tensor": bench.kernels.multiply(*plain, out),
                    "scaled": bench.kernels.multiply(*scaled, out)}
        return per_shape(bench, sides, "scaled", "tensor")
    return measure


def share_of_copy(bench, call, moved, **others):
    """Bytes a second of `call` over those of a copy on the device, and the times of all sides."""
    source = torch.empty(max(moved // 2, 1), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    times = bench.compare(octavo=call, copy=lambda: target.copy_(source), **others)
    return (moved / times["octavo"]) / (2 * source.numel() / times["copy"]), times


def cast(bench):
    rows = bench.size(16384, 64)
    source, codes = bench.random(rows, COLUMNS), Codes(rows, COLUMNS, bench.device)
    value, times = share_of_copy(bench, bench.kernels.quantize(source, codes, delayed=True),
                                 3 * source.numel())
    return Result(value, [times])


def cast_transpose(bench):
    details = []
    for side in (8192, 1024):
        side = bench.size(side, 128)
        source = bench.random(side, side)
        codes = Codes(side, side, bench.device, transposed=True)
        value, times = share_of_copy(bench, bench.kernels.quantize(source, codes, delayed=True),
                                     4 * source.numel())
        details.append({"side": side, "share_of_copy": value, **times})
    return Result(details[0]["share_of_copy"], details)


def with_casts(delayed):
    def measure(bench):
        def sides(m, n, k):
            (a, b), out = operands(bench, m, n, k)
            multiply = bench.kernels.multiply(a, b, out)
            casts = [bench.kernels.quantize(bench.random(rows, k), c, delayed)
                     for rows, c in ((m, a), (n, b))]

            def full():
                for one in casts:
                    one()
                multiply()
            return {"full": full, "product": multiply}
        result = per_shape(bench, sides, "full", "product")
        products = sum(d["product"] for d in result.details)
        return Result(products / sum(d["full"] for d in result.details), result.details)
    return measure


def host_cost(bench):
    m, n, k = 64, 128, 128
    (a, b), out = operands(bench, m, n, k)
    x, w = bench.random(m, k), bench.random(n, k)
    quantize = bench.kernels.quantize(x, a, delayed=True)
    multiply = bench.kernels.multiply(a, b, out)

    def forward():
        quantize()
        multiply()
    forward()
    ours = bench.clock.host(forward)
    torchs = bench.clock.host(lambda: torch.nn.functional.linear(x, w))
    return Result(ours, [{"octavo_us": ours, "torch_bf16_us": torchs, "calls through": "ctypes"}])


def adam(one_pass):
    def measure(bench):
        rows = bench.size(65536, 64)  # so many that the host's part of torch's step does not show
        hyper = torch.tensor([1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.0, 0.0], device=bench.device)
        item = {"hyper": hyper, "step": torch.zeros(1, dtype=torch.int32, device=bench.device)}
        for name, dtype in (("weight", torch.float16), ("gradient", torch.float8_e4m3fn),
                            ("exp_avg", torch.float8_e4m3fn), ("exp_avg_sq", torch.float16)):
            item[name] = torch.zeros(rows, COLUMNS, device=bench.device, dtype=dtype)
            item[name + "_scale_inv"] = torch.ones(1, device=bench.device)
        item["gradient"].copy_(torch.randn(rows, COLUMNS, device=bench.device))
        plain = torch.zeros(rows, COLUMNS, device=bench.device, requires_grad=True)
        plain.grad = torch.randn(rows, COLUMNS, device=bench.device)
        torchs = torch.optim.AdamW([plain], fused=True)
        # Weight and both states are read and written, the gradient is read; for bounds it is read twice.
        each = 12 if one_pass else 11
        share, times = share_of_copy(bench, bench.kernels.adam([item], one_pass), each * plain.numel(),
                                     torch=torchs.step)
        return Result(times["torch"] / times["octavo"],
                      [{"share_of_copy": share, "bytes_per_element": each, **times}])
    return measure


def all_reduce(bench):
    count = bench.size(1 << 26, 1 << 12)
    details = []
    for shards in (2, 4, 8, 16):
        codes = torch.randn(shards, count // shards, device=bench.device).to(torch.float8_e4m3fn)
        out = torch.empty(count // shards, dtype=torch.float8_e4m3fn, device=bench.device)
        share, times = share_of_copy(bench, bench.kernels.sum_quantized(codes, out),
                                     count + count // shards)
        details.append({"shards": shards, "share_of_copy": share, **times})
    growth = details[-1]["octavo"] / details[0]["octavo"]
    details.append({"time at 16 over time at 2": growth})
    return Result(min(d["share_of_copy"] for d in details[:-1]), details)


GOALS = (
    Goal("G1", "tensor-scaled product: torch._scaled_mm's time over ours, 12 shapes", 1.02, 1.06,
         against_scaled_mm),
    Goal("G2", "the same: torch's bf16 time over ours", 1.70, 1.88, against_bf16),
    Goal("G3", "row-scaled product: tensor-scaled time over it", 0.95, 0.98,
         granularity((PER_ROW, PER_ROW))),
    Goal("G4", "1x128 by 128x128: tensor-scaled time over it", 0.85, 0.92,
         granularity((BLOCK_1X128, BLOCK_128X128))),
    Goal("G5", "cast with amax, 64 Mi elements: bytes a second over a copy's", 0.90, 0.97, cast),
    Goal("G6", "cast with transpose and amax, 8192 x 8192: the same", 0.85, 0.93, cast_transpose),
    Goal("G7c", "products over casts and products, current scaling", 0.855, 0.88, with_casts(False)),
    Goal("G7d", "the same, delayed scaling", 0.90, 0.92, with_casts(True)),
    Goal("G8", "linears with bias, forward and backward, delayed: the limit of this GPU over our time",
         0.955, 0.985, layers.layer),
    Goal("G9", "small layers as graphs, placed by layers.min_gain: bf16 time over it, worst", 0.97, 0.99,
         layers.small_layer),
    Goal("G10", "microseconds of the host for a forward (less is better)", 10, 7, host_cost, less=True),
    Goal("G11", "Adam on 8-bit and 16-bit states: torch's fused AdamW in fp32 over it", 2.0, 2.25, adam(False)),
    Goal("G11b", "the same with scales from bounds, in one pass", 2.0, 2.25, adam(True)),
    Goal("G12", "sums of codes of 2 to 16 ranks: bytes a second over a copy's, worst", 0.80, 0.90,
         all_reduce),
    Goal("G13", "training of a GPT in FP8: tokens a second over bf16's, at equal losses", 1.25, 1.38,
         training.measure),
)

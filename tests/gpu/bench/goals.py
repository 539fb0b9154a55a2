"""What is compared for each goal: see the column `what`. Ratios above 1 speak for Octavo, unless said.

Shapes are those of one layer of the 5B model in Transformer Engine's example of GEMM profiling:
15,872 tokens, width 4096, four linears, each with its forward, dgrad and wgrad.
"""
import dataclasses
import math
import typing

import torch

from gpu_kernels import BLOCK_128X128, BLOCK_1X128, PER_ROW, PER_TENSOR, Codes

TOKENS, WIDTH = 15872, 4096
LINEARS = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))  # N, K
COLUMNS = 4096


@dataclasses.dataclass
class Result:
    value: float
    details: list


@dataclasses.dataclass
class Goal:
    name: str
    what: str
    wanted: str
    moonshot: str
    measure: typing.Callable


def shapes(bench):
    """M, N, K of the twelve products."""
    if bench.small:
        return [(64, 128, 256), (128, 256, 128)]
    products = []
    for n, k in LINEARS:
        products += [(TOKENS, n, k), (TOKENS, k, n), (n, k, TOKENS)]
    return products


def mean(ratios):
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))


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


def layer_sides(bench, m, n, k):
    """Forward, dgrad and wgrad of one linear: torch in bf16, and delayed scaling."""
    x, w, dy = bench.random(m, k), bench.random(n, k), bench.random(m, n)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
    cx, cw, cy = (Codes(*t.shape, bench.device, transposed=True) for t in (x, w, dy))
    verbs = [bench.kernels.quantize(t, c, delayed=True) for t, c in ((x, cx), (w, cw), (dy, cy))]
    verbs += [bench.kernels.multiply(cx, cw, y),
              bench.kernels.multiply(cy, (cw, "t"), dx, fast=False),
              bench.kernels.multiply((cy, "t"), (cx, "t"), dw, fast=False)]

    def fp8():
        for verb in verbs:
            verb()

    def bf16():
        torch.matmul(x, w.t(), out=y)
        torch.matmul(dy, w, out=dx)
        torch.matmul(dy.t(), x, out=dw)

    def products():
        for verb in verbs[3:]:
            verb()
    return {"octavo": fp8, "bf16": bf16, "products": products}, 4 * (x.numel() + w.numel() + dy.numel())


def layer(bench):
    source = torch.empty(bench.size(1 << 30, 1 << 16), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    details, totals = [], {"octavo": 0.0, "bf16": 0.0, "limit": 0.0}
    for n, k in bench.size(LINEARS, ((128, 256),)):
        sides, moved = layer_sides(bench, bench.size(TOKENS, 64), n, k)
        times = bench.compare(copy=lambda: target.copy_(source), **sides)
        limit = times["products"] + moved * times["copy"] / (2 * source.numel())
        details.append({"n": n, "k": k, "limit": limit, **times})
        for name, value in (("octavo", times["octavo"]), ("bf16", times["bf16"]), ("limit", limit)):
            totals[name] += value
    details.append({"bf16 / octavo": totals["bf16"] / totals["octavo"]})
    return Result(totals["limit"] / totals["octavo"], details)


def small_layer(bench):
    details = []
    for width in bench.size((512, 1024, 2048), (128,)):
        for m in bench.size((256, 1024, 4096), (64,)):
            sides, _ = layer_sides(bench, m, width, width)
            if not bench.small:
                sides = {name: replayed(bench.kernels, call) for name, call in sides.items()}
            times = bench.compare(**sides)
            details.append({"m": m, "width": width, "ratio": times["bf16"] / times["octavo"], **times})
    # Under layers.min_gain the slower of the two is not taken.
    return Result(min(max(d["ratio"], 1.0) for d in details), details)


def replayed(kernels, call):
    """The call as a captured graph."""
    call()  # plans are made before
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.follow_torch()
        call()
    kernels.follow_torch()
    return graph.replay


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


def adam(bench):
    rows = bench.size(8192, 64)
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
    moved = 11 * plain.numel()  # weight, both states read and written, the gradient read
    share, times = share_of_copy(bench, bench.kernels.adam([item]), moved, torch=torchs.step)
    return Result(times["torch"] / times["octavo"],
                  [{"share_of_copy": share, "bytes_per_element": 11, **times}])


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
    Goal("G1", "tensor-scaled product: torch._scaled_mm's time over ours, 12 shapes", "1.02", "1.06",
         against_scaled_mm),
    Goal("G2", "the same: torch's bf16 time over ours", "1.70", "1.88", against_bf16),
    Goal("G3", "row-scaled product: tensor-scaled time over it", "0.95", "0.98",
         granularity((PER_ROW, PER_ROW))),
    Goal("G4", "1x128 by 128x128: tensor-scaled time over it", "0.85", "0.92",
         granularity((BLOCK_1X128, BLOCK_128X128))),
    Goal("G5", "cast with amax, 64 Mi elements: bytes a second over a copy's", "0.90", "0.97", cast),
    Goal("G6", "cast with transpose and amax, 8192 x 8192: the same", "0.85", "0.93", cast_transpose),
    Goal("G7c", "products over casts and products, current scaling", "0.855", "0.88",
         with_casts(False)),
    Goal("G7d", "the same, delayed scaling", "0.90", "0.92", with_casts(True)),
    Goal("G8", "linears forward and backward, delayed: the limit of this GPU over our time", "0.955",
         "0.985", layer),
    Goal("G9", "small layers as graphs, the faster of the two taken: bf16 time over it, worst", "0.97",
         "0.99", small_layer),
    Goal("G10", "microseconds of the host for a forward (less is better)", "10", "7", host_cost),
    Goal("G11", "Adam on 8-bit and 16-bit states: torch's fused AdamW in fp32 over it", "2.0", "2.25",
         adam),
    Goal("G12", "sums of codes of 2 to 16 ranks: bytes a second over a copy's, worst", "0.80", "0.90",
         all_reduce),
)

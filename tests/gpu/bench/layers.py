"""G8 and G9: whole linears with bias, forward and backward, against torch in bf16.

A layer casts x, w and dy, multiplies three times and sums the columns of dy. The limit of a GPU is the
products and one read and write of what is cast; dy is read there, so its sums cost a limit nothing.
"""
import torch

import transformer_engine_side
from gpu_kernels import Codes
from results import Result

TOKENS, WIDTH = 15872, 4096
LINEARS = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))  # N, K
# layers.min_gain = "auto" on a device with FP8 units: sdk/src/negotiate/min_gain.cpp.
MOST_SMALL_N, MOST_SMALL_K = 1024, 4096


def stays_with_host(n, k):
    return n <= MOST_SMALL_N and k <= MOST_SMALL_K


def layer_sides(bench, m, n, k):
    """Both sides of one linear, and bytes that casts with transposes move."""
    x, w, dy = bench.random(m, k), bench.random(n, k), bench.random(m, n)
    bias, db = bench.random(1, n), torch.empty(1, n, device=bench.device)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
    cx, cw, cy = (Codes(*t.shape, bench.device, transposed=True) for t in (x, w, dy))
    casts = [bench.kernels.quantize(t, c, delayed=True) for t, c in ((x, cx), (w, cw), (dy, cy))]
    multiplies = [bench.kernels.multiply(cx, cw, y, bias=bias),
                  bench.kernels.multiply(cy, (cw, "t"), dx, fast=False),
                  bench.kernels.multiply((cy, "t"), (cx, "t"), dw, fast=False)]
    sums = [bench.kernels.sum_rows(dy, db)]
    bf16_bias = bias.reshape(-1)

    def fp8():
        for verb in casts + multiplies + sums:
            verb()

    def bf16():
        torch.addmm(bf16_bias, x, w.t(), out=y)
        torch.matmul(dy, w, out=dx)
        torch.matmul(dy.t(), x, out=dw)
        dy.sum(0)

    def products():
        for verb in multiplies:
            verb()
    return {"octavo": fp8, "bf16": bf16, "products": products}, 4 * (x.numel() + w.numel() + dy.numel())


def layer(bench):
    source = torch.empty(bench.size(1 << 30, 1 << 16), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    others, missing = transformer_engine_side.find(bench.device)
    details, totals = [], {"octavo": 0.0, "bf16": 0.0, "limit": 0.0}
    for n, k in bench.size(LINEARS, ((128, 256),)):
        m = bench.size(TOKENS, 64)
        sides, moved = layer_sides(bench, m, n, k)
        times = bench.compare(copy=lambda: target.copy_(source), **sides,
                              **({"te": others.layer(m, n, k)} if others else {}))
        limit = times["products"] + moved * times["copy"] / (2 * source.numel())
        details.append({"n": n, "k": k, "limit": limit, **times})
        for name, value in {**times, "limit": limit}.items():
            totals[name] = totals.get(name, 0.0) + value
    details.append({"bf16 / octavo": totals["bf16"] / totals["octavo"],
                    "te / octavo": totals["te"] / totals["octavo"] if others else missing})
    return Result(totals["limit"] / totals["octavo"], details)


def small_layer(bench):
    details = []
    for width in bench.size((512, 1024, 2048), (128,)):
        for m in bench.size((256, 1024, 4096), (64,)):
            sides, _ = layer_sides(bench, m, width, width)
            if not bench.small:
                sides = {name: replayed(bench.kernels, call) for name, call in sides.items()}
            times = bench.compare(**sides)
            placed = "bf16" if stays_with_host(width, width) else "octavo"
            details.append({"m": m, "width": width, "placed": placed, "ratio": times["bf16"] / times[placed],
                            "faster": min(("bf16", "octavo"), key=times.get), **times})
    return Result(min(d["ratio"] for d in details), details)


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

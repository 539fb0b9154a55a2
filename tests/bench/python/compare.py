"""Octavo's CPU kernels against torch in one process: current-scaling casts, and FP8 linears.

  .cache/torch/bin/python tests/bench/python/compare.py [--build DIR] [--repetitions N] [--small]

Run by hand after tests/environment/install.sh and a build of octavo and octavo_plugin_reference. One
thread each, random normal data. Every repetition calls all sides in a new order; medians are
compared, and results are checked against each other first.

  quantize   amax, scale, clamp, cast: one kernels call, against the same in torch's eager mode
  linear     y = x w^T, dx = dy w, dw = dy^T x from fp32 operands, the casts of x, w and dy included,
             against torch._scaled_mm with torch's casts, and against torch in bf16
"""
import argparse
import pathlib
import random
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from octavo_kernels import LARGEST, Codes, Kernels

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SHAPES = ((576, 768, 768), (1152, 1024, 1024), (2304, 2048, 2048), (144, 4096, 4096))


def medians(sides, repetitions):
    """Seconds of this thread for each side, in random order; the first calls do not count."""
    for call in sides.values():
        call()
    times = {name: [] for name in sides}
    order = list(sides)
    for _ in range(repetitions):
        random.shuffle(order)
        for name in order:
            start = time.thread_time()
            sides[name]()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def eager_quantize(values, dtype):
    """Codes and 1 / scale, as torch's users write it."""
    top = LARGEST[dtype]
    scale = top / values.abs().amax()
    return (values * scale).clamp(-top, top).to(dtype), scale.reciprocal()


def compare_quantize(kernels, elements, name, repetitions):
    cols = 4096 if elements >= 1 << 20 else 512
    values = torch.randn(elements // cols, cols)
    codes = Codes(*values.shape, E4M3)
    kernels.quantize(values, codes)
    expected, inverse = eager_quantize(values, E4M3)
    same = (codes.out.view(torch.uint8) == expected.view(torch.uint8)).float().mean().item()
    # One rounding of the scale may differ, which moves few codes.
    if same < 0.999 or not torch.allclose(codes.inverse, inverse, rtol=1e-6):
        raise RuntimeError(f"{name}: expected torch's codes, found {same:.2%} of them equal")
    calls = max(1, (1 << 20) // elements)
    found = medians({"octavo": lambda: [kernels.quantize(values, codes) for _ in range(calls)],
                     "torch": lambda: [eager_quantize(values, E4M3) for _ in range(calls)]},
                    repetitions)
    rate = {k: elements * calls / v / 1e9 for k, v in found.items()}
    print(f"{name:<28}{rate['octavo']:>9.2f}{rate['torch']:>14.2f}"
          f"{rate['octavo'] / rate['torch']:>9.2f}")


class OctavoLinear:
    """Forward and backward with current scaling: E4M3 x and w, E5M2 dy."""

    def __init__(self, kernels, x, w, dy):
        self.kernels, self.given = kernels, (x, w, dy)
        m, k = x.shape
        n = w.shape[0]
        self.x = Codes(m, k, E4M3, transposed=True)
        self.w = Codes(n, k, E4M3, transposed=True)
        self.dy = Codes(m, n, E5M2, transposed=True)
        self.out = torch.empty(m, n), torch.empty(m, k), torch.empty(n, k)

    def __call__(self):
        for values, codes in zip(self.given, (self.x, self.w, self.dy)):
            self.kernels.quantize(values, codes)
        x, w, dy, multiply = self.x, self.w, self.dy, self.kernels.multiply
        y, dx, dw = self.out
        multiply(x.row, x.scale, w.row, w.scale, y)
        multiply(dy.row, dy.scale, w.column, w.scale, dx)
        multiply(dy.column, dy.scale, x.column, x.scale, dw)
        return self.out


def scaled_mm(a, b):
    """a [R, C] times b [S, C]^T of codes with their 1 / scale."""
    return torch._scaled_mm(a[0], b[0].t(), scale_a=a[1], scale_b=b[1], out_dtype=torch.float32)


def torch_linear(x, w, dy):
    qx, qw, qdy = eager_quantize(x, E4M3), eager_quantize(w, E4M3), eager_quantize(dy, E5M2)
    turned = [(q[0].t().contiguous(), q[1]) for q in (qx, qw, qdy)]
    return scaled_mm(qx, qw), scaled_mm(qdy, turned[1]), scaled_mm(turned[2], turned[0])


def bf16_linear(x, w, dy):
    return x @ w.t(), dy @ w, dy.t() @ x


def compare_linear(kernels, m, n, k, repetitions):
    x, w, dy = torch.randn(m, k), torch.randn(n, k), torch.randn(m, n)
    narrow = [t.bfloat16() for t in (x, w, dy)]
    ours = OctavoLinear(kernels, x, w, dy)
    for found, expected in zip(ours(), torch_linear(x, w, dy)):
        error = ((found - expected).norm() / expected.norm()).item()
        if not error < 1e-3:
            raise RuntimeError(f"{m}x{n}x{k}: relative difference {error} to torch._scaled_mm")
    found = medians({"octavo": ours, "scaled_mm": lambda: torch_linear(x, w, dy),
                     "bf16": lambda: bf16_linear(*narrow)}, repetitions)
    rate = {name: 6 * m * n * k / t / 1e9 for name, t in found.items()}
    print(f"{m}x{n}x{k:<18}"[:28].ljust(28) + f"{rate['octavo']:>9.1f}{rate['scaled_mm']:>14.1f}"
          f"{rate['octavo'] / rate['scaled_mm']:>9.2f}{rate['bf16']:>14.1f}"
          f"{rate['octavo'] / rate['bf16']:>9.2f}", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/cpu", help="where the preset built")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="the smallest sizes only")
    given = parser.parse_args(argv)
    if given.repetitions < 1:
        parser.error(f"--repetitions: expected at least 1, found {given.repetitions}")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    try:
        kernels = Kernels(given.build)
    except (OSError, RuntimeError) as e:
        parser.error(f"--build: {e}")
    print(f"torch {torch.__version__}, kernels {kernels.level}, one thread, medians of "
          f"{given.repetitions}\n")
    print(f"{'quantize, 1e9 elements/s':<28}{'octavo':>9}{'torch eager':>14}{'ratio':>9}")
    compare_quantize(kernels, 1 << 17, "512 KiB of fp32", given.repetitions)
    if not given.small:
        compare_quantize(kernels, 1 << 26, "256 MiB of fp32", given.repetitions)
    print(f"\n{'linear, 1e9 FLOP/s':<28}{'octavo':>9}{'_scaled_mm':>14}{'ratio':>9}"
          f"{'torch bf16':>14}{'ratio':>9}")
    for m, n, k in SHAPES[:1] if given.small else SHAPES:
        compare_linear(kernels, m, n, k, given.repetitions)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the torch oracles share: data, a linear of Octavo run by linear_probe, and the comparison."""

import math
import pathlib
import subprocess
import tempfile

import numpy

# An fp32 sum of K products of equal codes under equal scales: every term and every addition rounds
# by at most 2^-24 relatively, so the error is near 2^-24 sqrt(K) of the result's size where nothing
# cancels, -120 dB for K = 1000; cancellation costs a few dB. One code that differs by one step (2^-4
# of one element) out of 10 000 is an error near -64 dB, which has to show.
EQUAL_CODES_DB = 100.0


def sqnr(expected, found):
    """Signal to noise in dB of `found` against `expected`: 20 log10(|expected| / |difference|).

    Infinite for equal arrays, minus infinity when NaN or Inf stands in one only.
    """
    expected, found = numpy.float64(expected), numpy.float64(found)
    if not numpy.array_equal(numpy.isfinite(expected), numpy.isfinite(found)):
        return -math.inf
    noise = numpy.linalg.norm(expected - found)
    signal = numpy.linalg.norm(expected)
    if noise == 0:
        return math.inf
    return 20 * math.log10(signal / noise) if signal > 0 else -math.inf


def octavo_linear(program, options, x, w, dy, steps=1, backend="te"):
    """y, dx, dw of the last of `steps` equal steps with a backend.

    options: lines of the table [fp8.<backend>]; x [M, K], w [N, K], dy [M, N] float32.
    """
    lines = ["schema = 1", "[fp8]", f'backend = "{backend}"', f"[fp8.{backend}]", *options]
    config = "".join(f"{line}\n" for line in lines)
    (m, k), n = x.shape, w.shape[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "octavo.toml").write_text(config)
        for file, array in (("x", x), ("w", w), ("dy", dy)):
            assert array.dtype == numpy.float32
            array.tofile(folder / f"{file}.f32")
        command = [program, folder / "octavo.toml", folder, *(str(v) for v in (m, n, k, steps))]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"linear_probe {m} {n} {k} {options}: {result.stderr.strip()}")
        read = lambda file, shape: numpy.fromfile(folder / file, numpy.float32).reshape(shape)
        return read("y.f32", (m, n)), read("dx.f32", (m, k)), read("dw.f32", (n, k))


def normal(random, shape):
    return random.standard_normal(shape)


def uniform(random, shape):
    return random.uniform(-1, 1, shape)


def positive(random, shape):
    """As after a ReLU: half of the elements are zero, and sums do not cancel."""
    return numpy.maximum(random.standard_normal(shape), 0)


def heavy_tailed(random, shape):
    """Student's t with two degrees of freedom: the largest element dwarfs the others."""
    return random.standard_t(2, shape)


def wide(random, shape):
    """Exponents over 2^-20 to 2^20: most elements become subnormal codes or zero."""
    return random.standard_normal(shape) * numpy.exp2(random.uniform(-20, 20, shape))


def tiny(random, shape):
    """As gradients late in training."""
    return random.standard_normal(shape) * 1e-7


def outlier_column(random, shape):
    """One channel a thousand times as large, as transformers have."""
    values = random.standard_normal(shape)
    values[:, shape[1] // 2] *= 1000
    return values


def zeros(random, shape):
    return numpy.zeros(shape)


DISTRIBUTIONS = (normal, uniform, positive, heavy_tailed, wide, tiny, outlier_column)


def operands(seed, shape, distribution, gradient=None):
    """x [M, K], w [N, K] and dy [M, N] in float32; weights as a new layer has them."""
    m, n, k = shape
    random = numpy.random.default_rng(seed)
    x = distribution(random, (m, k))
    w = random.standard_normal((n, k)) / math.sqrt(k)
    dy = (gradient or distribution)(random, (m, n)) / m
    return tuple(a.astype(numpy.float32) for a in (x, w, dy))


class Report:
    """Counts comparisons and prints those that fail."""

    def __init__(self):
        self.count, self.failed, self.lowest = 0, 0, math.inf

    def at_least(self, db, expected, found, what):
        value = sqnr(expected, found)
        self.lowest = min(self.lowest, value)
        self.expect(value >= db, f"{what}: expected at least {db} dB, found {value:.1f} dB")

    def at_most(self, db, expected, found, what):
        value = sqnr(expected, found)
        self.expect(value <= db, f"{what}: expected at most {db} dB, found {value:.1f} dB")

    def expect(self, holds, text):
        self.count += 1
        if not holds:
            self.failed += 1
            print(f"FAILED {text}")

    def exit_code(self):
        print(f"{self.count} comparisons, {self.failed} failed; lowest signal to noise "
              f"{self.lowest:.1f} dB")
        return 1 if self.failed or not self.count else 0

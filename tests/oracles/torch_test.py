"""Casts of torch and ml_dtypes, and torch._scaled_mm on the CPU, against te with current scaling.

The scales are computed here: s = M / amax in fp64, rounded to fp32 (M = 448 for E4M3, 57344 for
E5M2). torch casts clamp(x s) to codes, and _scaled_mm multiplies the codes with both 1 / s.

Usage: torch_test.py <linear_probe>
"""

import sys

import ml_dtypes
import numpy
import torch

import probe

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ML_DTYPES = {E4M3: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}
CURRENT = ['recipe = "current"']


def quantize(values, dtype):
    """Codes of a float32 tensor [R, C] and 1 / s; a tensor of zeros has s = 1."""
    top = torch.finfo(dtype).max
    amax = values.abs().max().double()
    scale = (top / amax).float() if amax > 0 else torch.tensor(1.0)
    return (values * scale).clamp(-top, top).to(dtype), scale.reciprocal()


def multiply(a, b):
    """a [R, C] times b [C, S], both as quantize gives them; _scaled_mm wants b by columns."""
    return torch._scaled_mm(a[0], b[0].t().contiguous().t(), scale_a=a[1], scale_b=b[1],
                            out_dtype=torch.float32).numpy()


def transposed(a):
    return a[0].t().contiguous(), a[1]


def torch_linear(x, w, dy):
    """y = x w^T, dx = dy w, dw = dy^T x of the codes."""
    qx, qw = (quantize(torch.from_numpy(v), E4M3) for v in (x, w))
    qdy = quantize(torch.from_numpy(dy), E5M2)
    return multiply(qx, transposed(qw)), multiply(qdy, qw), multiply(transposed(qdy), qx)


def check_products(report, program):
    for shape in ((16, 16, 16), (64, 48, 96), (17, 33, 19), (1, 64, 1000), (5, 1, 7)):
        for distribution in (probe.normal, probe.heavy_tailed, probe.wide):
            data = probe.operands(11, shape, distribution)
            found = probe.octavo_linear(program, CURRENT, *data)
            for name, e, f in zip(("y", "dx", "dw"), torch_linear(*data), found):
                report.at_least(probe.EQUAL_CODES_DB, e, f,
                                f"_scaled_mm, {distribution.__name__} {shape}: {name}")


def check_codes(report, program):
    """Casts, element by element: a product with the identity shows the codes themselves.

    Its only nonzero term is code(x) code(1) / (s_x s_1), five roundings of 2^-24 at most, while
    neighbouring codes are 2^-4 (E4M3) or 2^-3 (E5M2) apart.
    """
    size = 64
    identity = numpy.eye(size, dtype=numpy.float32)
    for distribution in probe.DISTRIBUTIONS:
        random = numpy.random.default_rng(5)
        x, dy = (distribution(random, (256, size)).astype(numpy.float32) for _ in range(2))
        y, dx, _ = probe.octavo_linear(program, CURRENT, x, identity, dy)
        for name, source, found, dtype in (("x", x, y, E4M3), ("dy", dy, dx, E5M2)):
            codes, inverse = quantize(torch.from_numpy(source), dtype)
            top = torch.finfo(dtype).max
            scale = numpy.float32(top / numpy.float64(numpy.abs(source).max()))
            scaled = numpy.clip(source * scale, -top, top)
            encoded = {"torch": codes.double().numpy(),
                       "ml_dtypes": scaled.astype(ML_DTYPES[dtype]).astype(numpy.float64)}
            for library, values in encoded.items():
                expected = values * inverse.double().numpy()
                off = numpy.abs(expected - found) > 5 * 2.0**-24 * numpy.abs(expected)
                report.expect(not off.any(), f"codes of {name}, {distribution.__name__}: "
                              f"{off.sum()} of {off.size} differ from the cast of {library}")


def main(program):
    report = probe.Report()
    check_products(report, program)
    check_codes(report, program)

    # What the limit has to tell apart: one code of x that is its neighbour.
    data = probe.operands(11, (64, 48, 96), probe.normal)
    found = probe.octavo_linear(program, CURRENT, *data)[0]
    x, w = (quantize(torch.from_numpy(v), E4M3) for v in data[:2])
    x[0].view(torch.uint8)[3, 5] ^= 1
    report.at_most(probe.EQUAL_CODES_DB, multiply(x, transposed(w)), found, "one code changed: y")
    return report.exit_code()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

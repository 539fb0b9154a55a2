"""torchao's MX casts against the backend te with the recipe mx, forward and backward.

Both give 32 elements one power of two: Transformer Engine's way rounds amax / M up, which torchao
calls RCEIL, and OCP Microscaling 1.0 takes the exponent of amax, which it calls FLOOR (profile
"ocp-mx"). Each operand is cast along the sum of its product, so x, w and dy have two forms each. The
products of what the codes stand for are computed here in fp64.

Usage: torchao_mx_test.py <linear_probe>
"""

import sys

import numpy
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

import probe

BLOCK = 32
PROFILES = {"te2-mx": ScaleCalculationMode.RCEIL, "ocp-mx": ScaleCalculationMode.FLOOR}
FORMATS = {"E4M3": torch.float8_e4m3fn, "HYBRID": torch.float8_e5m2}  # that of dy


def cast(values, dtype, mode):
    """What the codes of values [R, C] stand for, in fp64, with blocks along C."""
    scales, codes = to_mx(torch.from_numpy(numpy.ascontiguousarray(values)), dtype, BLOCK, mode)
    return to_dtype(codes, scales, dtype, BLOCK, torch.float32).numpy().astype(numpy.float64)


def torchao_linear(x, w, dy, gradient_dtype, mode):
    """y = x w^T, dx = dy w, dw = dy^T x, each operand with blocks along the sum."""
    e4m3 = torch.float8_e4m3fn
    y = cast(x, e4m3, mode) @ cast(w, e4m3, mode).T
    dx = cast(dy, gradient_dtype, mode) @ cast(w.T, e4m3, mode).T
    dw = cast(dy.T, gradient_dtype, mode) @ cast(x.T, e4m3, mode).T
    return y, dx, dw


def main(program):
    report = probe.Report()
    for profile, mode in PROFILES.items():
        for format_name, dtype in FORMATS.items():
            options = ['recipe = "mx"', f'profile = "{profile}"', f'fp8_format = "{format_name}"']
            for shape in ((32, 32, 32), (64, 96, 128), (160, 64, 32)):
                for distribution in probe.DISTRIBUTIONS:
                    data = probe.operands(13, shape, distribution)
                    expected = torchao_linear(*data, dtype, mode)
                    found = probe.octavo_linear(program, options, *data)
                    case = f"{profile}, {format_name}, {distribution.__name__} {shape}"
                    for name, e, f in zip(("y", "dx", "dw"), expected, found):
                        report.at_least(probe.EQUAL_CODES_DB, e, f, f"{case}: {name}")

    # What the limit has to tell apart: the other rule saturates the largest elements, and the
    # default of the format is E4M3.
    data = probe.operands(13, (64, 96, 128), probe.normal)
    up, floor = (torchao_linear(*data, torch.float8_e4m3fn, m) for m in PROFILES.values())
    found = probe.octavo_linear(program, ['recipe = "mx"'], *data)
    report.at_least(probe.EQUAL_CODES_DB, up[1], found[1], "mx with defaults: dx")
    report.at_most(50, floor[1], found[1], "FLOOR instead of RCEIL: dx")
    return report.exit_code()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

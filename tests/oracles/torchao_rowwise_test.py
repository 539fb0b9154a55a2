"""torchao's recipes rowwise and rowwise_with_gw_hp against te's recipe rowwise and the sample
rowwise_plugin, forward and backward.

With emulate=True torchao multiplies in fp32 what the codes stand for, on a CPU and without rounding
to bfloat16. Ours have the same scales, and so the same codes; the results may differ by the order of
fp32 sums only. The sample is found through OCTAVO_PLUGIN_PATH.

Usage: torchao_rowwise_test.py <linear_probe>
"""

import dataclasses
import sys

import numpy
import torch
from torchao.float8 import Float8LinearConfig
from torchao.float8.float8_linear import Float8Linear

import probe

SHAPES = ((16, 16, 16), (32, 48, 64), (128, 64, 256), (1, 1, 1), (5, 7, 3), (17, 33, 19),
          (1, 64, 1000), (127, 129, 131))


# torchao's recipe: the backend that has it, and its options.
BACKENDS = {"rowwise": ("te", ['recipe = "rowwise"']), "rowwise_with_gw_hp": ("rowwise", [])}
WITH_GW_HP = "rowwise_with_gw_hp"


def torchao_linear(x, w, dy, recipe=WITH_GW_HP, **changes):
    """y, dx, dw of torchao's layer with float32 master weights."""
    plain = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    with torch.no_grad():
        plain.weight.copy_(torch.from_numpy(w))
    config = Float8LinearConfig.from_recipe_name(recipe)
    config = dataclasses.replace(config, emulate=True, **changes)
    layer = Float8Linear.from_float(plain, config=config)
    tx = torch.from_numpy(x).requires_grad_()
    y = layer(tx)
    y.backward(torch.from_numpy(dy))
    return y.detach().numpy(), tx.grad.numpy(), layer.weight.grad.numpy()


def octavo_linear(program, data, recipe=WITH_GW_HP):
    backend, options = BACKENDS[recipe]
    return probe.octavo_linear(program, options, *data, backend=backend)


def compare(report, program, case, data):
    for recipe in BACKENDS:
        found = octavo_linear(program, data, recipe)
        for name, e, f in zip(("y", "dx", "dw"), torchao_linear(*data, recipe=recipe), found):
            report.at_least(probe.EQUAL_CODES_DB, e, f, f"{recipe}, {case}: {name}")


def uneven_rows(random, shape):
    """Every row has a magnitude of its own, from 2^-16 to 2^16."""
    return random.standard_normal(shape) * numpy.exp2(random.integers(-16, 17, (shape[0], 1)))


def below_epsilon(random, shape):
    """Rows below torchao's lower bound of an amax, 1e-12: most elements become subnormal codes."""
    return random.standard_normal(shape) * 1e-17


def scales_of_w(program, report):
    """dgrad has one scale for all of w, though its columns are from 2^-16 to 1 as large.

    dx is compared with each column divided by that size, or the small ones would not count.
    """
    x, w, dy = probe.operands(5, (64, 48, 96), probe.normal)
    sizes = numpy.exp2(numpy.random.default_rng(9).integers(-16, 1, (1, w.shape[1])))
    data = x, w * sizes.astype(numpy.float32), dy
    dx = octavo_linear(program, data)[1] / sizes
    report.at_least(probe.EQUAL_CODES_DB, torchao_linear(*data)[1] / sizes, dx, "uneven w: dx")
    other = torchao_linear(*data, recipe="rowwise")[1] / sizes
    report.at_most(50, other, dx, "rowwise, scales of rows of w: dx")


def main(program):
    report = probe.Report()
    for shape in SHAPES:
        for seed in range(2):
            data = probe.operands(seed, shape, probe.normal)
            compare(report, program, f"normal {shape}, seed {seed}", data)
    for distribution in (*probe.DISTRIBUTIONS, uneven_rows, below_epsilon):
        for gradient in (None, probe.tiny, probe.heavy_tailed):
            for shape in ((64, 48, 96), (33, 17, 65)):
                data = probe.operands(7, shape, distribution, gradient)
                names = f"{distribution.__name__}, dy {(gradient or distribution).__name__}"
                compare(report, program, f"{names} {shape}", data)
    compare(report, program, "x of zeros",
            probe.operands(3, (16, 32, 16), probe.zeros, probe.normal))
    compare(report, program, "dy of zeros",
            probe.operands(3, (16, 32, 16), probe.normal, probe.zeros))

    # What the limit has to tell apart: scales that are no powers of two, and torchao's plain recipe,
    # whose dgrad has scales of the rows of w and whose wgrad is cast.
    data = probe.operands(0, (64, 48, 96), probe.normal)
    y, dx, dw = octavo_linear(program, data)
    other = torchao_linear(*data, round_scales_to_power_of_2=False)
    report.at_most(50, other[0], y, "no powers of two: y")
    report.at_most(50, other[1], dx, "no powers of two: dx")
    data = probe.operands(0, (64, 48, 96), probe.wide)
    y, dx, dw = octavo_linear(program, data)
    other = torchao_linear(*data, recipe="rowwise")
    report.at_least(probe.EQUAL_CODES_DB, other[0], y, "rowwise: y, which is the same")
    report.at_most(50, other[2], dw, "rowwise: dw")
    scales_of_w(program, report)
    return report.exit_code()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

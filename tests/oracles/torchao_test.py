"""torchao's Float8Linear against the backend te, forward and backward.

Float8LinearConfig(emulate=True) is dynamic scaling by tensor on a CPU: E4M3 for x and w, E5M2 for
dy, products in fp32 of what the codes stand for. te with current scaling computes the same scale,
M / amax, and so the same codes; the results may differ by the order of fp32 sums only.

Usage: torchao_test.py <linear_probe>
"""

import sys

import torch
from torchao.float8 import Float8LinearConfig
from torchao.float8.float8_linear import Float8Linear

import probe

# M, N, K: multiples of 16 as GPUs want them, and any others.
SHAPES = ((16, 16, 16), (32, 48, 64), (128, 64, 256), (1, 1, 1), (5, 7, 3), (17, 33, 19),
          (1, 64, 1000), (127, 129, 131))


def torchao_linear(x, w, dy):
    """y, dx, dw of torchao's layer with float32 master weights."""
    plain = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    with torch.no_grad():
        plain.weight.copy_(torch.from_numpy(w))
    layer = Float8Linear.from_float(plain, config=Float8LinearConfig(emulate=True))
    tx = torch.from_numpy(x).requires_grad_()
    y = layer(tx)
    y.backward(torch.from_numpy(dy))
    return y.detach().numpy(), tx.grad.numpy(), layer.weight.grad.numpy()


def compare(report, program, options, case, data, steps=1):
    found = probe.octavo_linear(program, options, *data, steps=steps)
    for name, e, f in zip(("y", "dx", "dw"), torchao_linear(*data), found):
        report.at_least(probe.EQUAL_CODES_DB, e, f, f"{case}: {name}")


def main(program):
    report = probe.Report()
    current = ['recipe = "current"']
    for shape in SHAPES:
        for seed in range(2):
            data = probe.operands(seed, shape, probe.normal)
            compare(report, program, current, f"current, normal {shape}, seed {seed}", data)
    for distribution in probe.DISTRIBUTIONS:
        for gradient in (None, probe.tiny, probe.heavy_tailed):
            for shape in ((64, 48, 96), (33, 17, 65)):
                data = probe.operands(7, shape, distribution, gradient)
                names = f"{distribution.__name__}, dy {(gradient or distribution).__name__}"
                compare(report, program, current, f"current, {names} {shape}", data)
    compare(report, program, current, "current, x of zeros",
            probe.operands(3, (16, 32, 16), probe.zeros, probe.normal))
    compare(report, program, current, "current, dy of zeros",
            probe.operands(3, (16, 32, 16), probe.normal, probe.zeros))

    # With a history of one step, delayed scaling on the same data is current scaling one step later.
    delayed = ['recipe = "delayed"', "amax_history_len = 1"]
    for seed in range(3):
        data = probe.operands(seed, (48, 32, 80), probe.normal)
        compare(report, program, delayed, f"delayed, second step, seed {seed}", data, steps=2)

    # What the limit has to tell apart: another scale by a margin, and another format of dy.
    data = probe.operands(0, (64, 48, 96), probe.normal)
    y, dx, dw = torchao_linear(*data)
    found = probe.octavo_linear(program, ['recipe = "current"', 'fp8_format = "E4M3"'], *data)
    report.at_least(probe.EQUAL_CODES_DB, y, found[0], "E4M3: y, which has no gradient in it")
    report.at_most(50, dx, found[1], "E4M3 instead of E5M2 for dy: dx")
    report.at_most(50, dw, found[2], "E4M3 instead of E5M2 for dy: dw")
    tiny = probe.operands(0, (64, 48, 96), probe.tiny)
    found = probe.octavo_linear(program, [*delayed, 'profile = "te2-delayed-fused"'], *tiny)
    report.at_most(50, torchao_linear(*tiny)[0], found[0], "delayed, first step with scale 1: y")
    return report.exit_code()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

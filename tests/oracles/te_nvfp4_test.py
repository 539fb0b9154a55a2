"""Transformer Engine's reference of NVFP4 against the CPU kernels and the backend te, bit for bit.

Codes, scales and amax of a million blocks, half of them of transposed matrices, with scales of 1x16
and of 16x16 and transformed; y, dx and dw of a linear with each set of options; and the golden vectors of
tests/data, made again.

Usage: te_nvfp4_test.py <fp4_probe> <linear_probe>
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import probe
import te_nvfp4

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data"))
import packs

ROWS, COLS = 256, 2048


def octavo_casts(program, values):
    """{way: {part: array}}"""
    rows, cols = values.shape
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        values.tofile(folder / "in.f32")
        result = subprocess.run([program, folder, str(rows), str(cols)], capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"fp4_probe {rows} {cols}: {result.stderr.strip()}")
        read = lambda way, part: numpy.fromfile(folder / f"{way}.{part}", numpy.uint8)
        return {way: {part: read(way, part) for part in te_nvfp4.PARTS} for way in te_nvfp4.WAYS}


def repeated(scales, blocks):
    """Scales of 16x16 elements as the reference has them, for each row."""
    return numpy.repeat(scales.reshape(-1, blocks), 16, axis=0)


def check_casts(report, reference, program, name, values, ways=te_nvfp4.WAYS):
    found = octavo_casts(program, values)
    for way in ways:
        expected = te_nvfp4.arrays(reference, torch.from_numpy(values), way)
        for part, array in expected.items():
            mine = found[way][part]
            if way == "square" and part.startswith("scales"):
                mine = repeated(mine, array.shape[1])
            wrong = numpy.count_nonzero(mine.reshape(-1) != array.view(numpy.uint8).reshape(-1))
            report.expect(wrong == 0, f"{name}, {way}: expected equal {part}, found {wrong} other bytes")


def on_a_grid(values):
    """Integers up to 200 times a power of two: fp32 rounds no sum of the transform."""
    largest = max(float(numpy.abs(values).max()), 1e-30)
    step = 2.0 ** numpy.ceil(numpy.log2(largest / 200))
    return (numpy.round(values / step) * step).astype(numpy.float32)


def differences(reference, program, options, data, transforms, square):
    """{product: how many of its elements differ}"""
    found = probe.octavo_linear(program, ['recipe = "nvfp4"', "disable_stochastic_rounding = true"] + options,
                                *data)
    x, w, dy = (torch.from_numpy(a) for a in data)
    x, w, dy = (reference.cast(x, transforms=transforms), reference.cast(w, square=square),
                reference.cast(dy, transforms=transforms))
    products = (x, w, "fprop"), (dy, w, "dgrad"), (dy, x, "wgrad")
    expected = [reference.product(*product).numpy() for product in products]
    return {kind: numpy.count_nonzero(e.view(numpy.uint32) != f.view(numpy.uint32))
            for (_, _, kind), e, f in zip(products, expected, found)}


def check_linear(report, reference, program, options, data, name, transforms, square):
    for kind, wrong in differences(reference, program, options, data, transforms, square).items():
        report.expect(wrong == 0, f"{name} {options}, {kind}: expected equal bits, found {wrong} different")


def check_vectors(report):
    files, _ = te_nvfp4.vectors()
    tree = pathlib.Path(__file__).resolve().parents[2]
    kept = packs.read(packs.path_of(tree, "vectors/nvfp4"))
    report.expect(files == kept, f"vectors/nvfp4: expected what the reference gives now, found another "
                                 f"{sorted(n for n in files | kept if files.get(n) != kept.get(n))[:3]}")


def main(fp4_probe, linear_probe):
    report = probe.Report()
    reference = te_nvfp4.Reference()
    random = numpy.random.default_rng(1)
    # 16 matrices of 32768 blocks, each in both forms.
    for turn in range(8):
        values = probe.DISTRIBUTIONS[turn % 7](random, (ROWS, COLS)).astype(numpy.float32)
        check_casts(report, reference, fp4_probe, f"matrix {turn}", values, (("plain", "square")[turn % 2],))
        check_casts(report, reference, fp4_probe, f"matrix {turn} on a grid", on_a_grid(values), ("hadamard",))
    for value in (0, 1e-45, 1e-38, 7.9e-36, 3.4e38):
        values = (random.uniform(-1, 1, (32, 64)) * value).astype(numpy.float32)
        check_casts(report, reference, fp4_probe, f"up to {value}", values, ("plain", "square"))
    for shape in ((32, 32, 32), (64, 96, 128), (160, 64, 32)):
        for distribution in probe.DISTRIBUTIONS:
            x, w, dy = probe.operands(13, shape, distribution)
            name = f"{distribution.__name__} {shape}"
            check_linear(report, reference, linear_probe, ["disable_rht = true"], (x, w, dy), name, False, True)
            check_linear(report, reference, linear_probe,
                         ["disable_rht = true", "disable_2d_quantization = true"], (x, w, dy), name, False, False)
            check_linear(report, reference, linear_probe, [], (on_a_grid(x), w, on_a_grid(dy)), name, True, True)
    check_vectors(report)

    # What the comparison has to notice: another form, and a linear that is not transformed.
    data = probe.operands(13, (64, 96, 128), probe.normal)
    options = ["disable_rht = true"]
    for transforms, square, wrong in ((True, True, ["wgrad"]), (False, False, ["fprop", "dgrad"])):
        found = differences(reference, linear_probe, options, data, transforms, square)
        report.expect([k for k, n in found.items() if n] == wrong,
                      f"planted: expected {wrong} to differ, found {found}")
    return report.exit_code()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

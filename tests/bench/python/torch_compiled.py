"""What torch.compile leaves of the cost of calling octavo: torch's and octavo's linear layers, eager
and compiled by inductor.

  OCTAVO_LIBRARY_DIR=build/torch/lib PYTHONPATH=host_adapters/python \\
    .cache/torch/bin/python tests/bench/python/torch_compiled.py [--sizes 4 256 1024]
    [--backends delayed msamp] [--depth N] [--seconds S]

Run by hand after a build of the preset torch; inductor needs a C++ compiler. One thread, a chain of
--depth layers [n, n], a batch of n rows, float32 and bfloat16. Medians of interleaved timings,
microseconds of this thread for one call of the chain:

  no grad   y = model(x) under torch.no_grad()
  step      y = model(x); y.backward(dy)

`octavo / torch` compares both eager and both compiled. `call` is what one compiled layer adds to the
backend's own op, called with its lists ready, and the same for torch with torch.addmm: what is left
of the call itself.
"""
import argparse
import itertools
import sys

import torch
from torch import nn

import octavo
from torch_adapter import BACKENDS, medians

MODES = ("no grad", "step")
CALLS, TIMINGS = 60, 75  # at most, of each side: short ones, so that other work spoils few of them


def chain(depth, n, dtype, overrides=None):
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(n, n, dtype=dtype) for _ in range(depth)))
    return octavo.prepare(model, None, None, overrides=overrides)[0] if overrides else model


def modes(call, model, x, dy):
    def no_grad():
        with torch.no_grad():
            return call(x)

    def step():
        call(x).backward(dy)
        x.grad = None
        for p in model.parameters():
            p.grad = None

    return {"no grad": no_grad, "step": step}


def kernel(model, x):
    """One forward of the first layer without its call: the op alone."""
    layer, x = model[0], x.detach()
    bias = layer.bias.detach()
    if "octavo_session" not in model.__dict__:
        w = layer.weight.detach().t()
        return lambda: torch.addmm(bias, x, w)
    site = layer.octavo_site
    weight, ops = layer.weight.detach() if site.is_native else None, octavo.torch.ops
    flags = ops.NO_BACKWARD | ops.QUIET
    return lambda: ops.linear_forward(site.run, site.id, flags, 0, x, weight, bias)


def measure(n, dtype, name, depth, seconds):
    """{(side, "eager" or "compiled" or "kernel", mode): microseconds}."""
    torch.manual_seed(2)
    x, dy = torch.randn(n, n, dtype=dtype).requires_grad_(), torch.randn(n, n, dtype=dtype)
    sides = {}
    for side, overrides in (("torch", None), ("octavo", BACKENDS[name])):
        model = chain(depth, n, dtype, overrides)
        compiled = torch.compile(model, fullgraph=True, dynamic=False)
        for how, call in (("eager", model), ("compiled", compiled)):
            sides.update({(side, how, m): f for m, f in modes(call, model, x, dy).items()})
        sides[side, "kernel", "no grad"] = kernel(model, x)
    for call in sides.values():  # compiles
        call()
    once = max(medians(sides, 1, 1).values()) / 1e6
    calls = max(1, min(CALLS, int(0.1 * seconds / once)))
    return medians(sides, max(3, min(TIMINGS, int(seconds / (calls * once)))), calls)


def show(found, title, depth):
    for mode in MODES:
        cells = []
        for how in ("eager", "compiled"):
            a, b = found["torch", how, mode], found["octavo", how, mode]
            cells += [f"{a:>12.1f}{b:>12.1f}{b / a:>7.2f}"]
        if mode == "no grad":
            cells += [f"{found[side, 'compiled', mode] / depth - found[side, 'kernel', mode]:>9.1f}"
                      for side in ("torch", "octavo")]
        print(f"{title:<26}{mode:<8}" + "".join(cells), flush=True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 256, 1024])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["delayed", "msamp"])
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each side of a row, about")
    given = parser.parse_args(argv)
    if min(*given.sizes, given.depth) < 1 or given.seconds <= 0:
        parser.error("--sizes, --depth: expected at least 1; --seconds: more than 0")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {given.depth} layers, microseconds a call\n")
    print(f"{'':<34}{'eager':>31}{'compiled':>31}{'call of a layer':>18}")
    print(f"{'':<34}" + 2 * f"{'torch':>12}{'octavo':>12}{'ratio':>7}" +
          f"{'torch':>9}{'octavo':>9}")
    for name, n, dtype in itertools.product(given.backends, given.sizes,
                                            (torch.float32, torch.bfloat16)):
        found = measure(n, dtype, name, given.depth, given.seconds)
        show(found, f"{name}, n={n}, {str(dtype).removeprefix('torch.')}", given.depth)
        torch._dynamo.reset()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

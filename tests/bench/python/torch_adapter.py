"""What a call of a prepared torch.nn.Linear costs beside torch's own, at sizes where only the call
counts.

  OCTAVO_LIBRARY_DIR=build/torch/lib PYTHONPATH=host_adapters/python \\
    .cache/torch/bin/python tests/bench/python/torch_adapter.py [--rows N] [--repetitions N]

Run by hand after a build of the preset torch. One thread, x [rows, 4], weight [4, 4]; the four
recipes of te, and msamp. Every repetition times all sides in a new order, microseconds of this thread
a call; medians are compared. torch_compiled.py does the same for compiled models.

  no grad   y = linear(x) under torch.no_grad()
  forward   y = linear(x), recorded
  step      y = linear(x); y.backward(dy)

`function` rows call F.linear and octavo.torch.linear, `module` rows torch.nn.Linear and what
octavo.prepare made of one. The parts show where octavo's time goes: `op` is the op with its lists
ready, the kernels included; `Function` is an autograd.Function of the same signature that computes
nothing; `lists` is what a call does to have its tensors. Exit code 1: a row costs more than 2.5 of
torch's.
"""
import argparse
import random
import statistics
import sys
import time

import torch
from torch import nn

import octavo

GATE = 2.5
CALLS = 60  # in one timing: short, so that other work on the machine spoils few of them
BACKENDS = {**{r: {"fp8.backend": "te", "fp8.te.recipe": r} for r in ("delayed", "current", "block",
                                                                      "mx")},
            "msamp": {"fp8.backend": "msamp"}}


def medians(sides, repetitions, calls=CALLS):
    """Microseconds a call of each side, in random order; the first round does not count."""
    times = {name: [] for name in sides}
    order = list(sides)
    for repetition in range(repetitions + 1):
        random.shuffle(order)
        for name in order:
            call = sides[name]
            start = time.thread_time()
            for _ in range(calls):
                call()
            if repetition:
                times[name].append((time.thread_time() - start) / calls * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


class Nothing(torch.autograd.Function):
    """As many tensors in and out as octavo's, without the op."""

    @staticmethod
    def forward(ctx, x, weight, bias, y):
        ctx.save_for_backward(y)
        ctx.shape = x
        return y.detach()

    @staticmethod
    def backward(ctx, dy):
        return ctx.saved_tensors[0], ctx.shape, None, None


def modes(call, leaves, x, dy):
    """{mode: call} of y = call(x); leaves get gradients."""
    def no_grad():
        with torch.no_grad():
            return call(x)

    def step():
        call(x).backward(dy)
        for leaf in leaves:
            leaf.grad = None

    return {"no grad": no_grad, "forward": lambda: call(x), "step": step}


def prepared(name, n=4):
    return octavo.prepare(nn.Linear(n, n), None, None, overrides=BACKENDS[name])[0]


def compare(title, plain, ours, x, dy, repetitions):
    """Prints one row a mode; sides are (call, parameters). Returns the largest ratio."""
    sides = {(side, mode): f for side, (call, leaves) in (("torch", plain), ("octavo", ours))
             for mode, f in modes(call, (x, *leaves), x, dy).items()}
    found, worst = medians(sides, repetitions), 0.0
    for mode in ("no grad", "forward", "step"):
        a, b = found["torch", mode], found["octavo", mode]
        print(f"{title:<20}{mode:<10}{a:>9.2f}{b:>9.2f}{b / a:>8.2f}", flush=True)
        worst = max(worst, b / a)
    return worst


def functions(plain, ours):
    """F.linear and octavo.torch.linear on these modules' tensors, as sides of compare."""
    site, linear = ours.octavo_site, octavo.torch.linear
    w, b, own_w, own_b = plain.weight, plain.bias, ours.weight, ours.bias
    return ((lambda x: nn.functional.linear(x, w, b), (w, b)),
            (lambda x: linear(site, x, own_w, own_b), (own_w, own_b)))


def modules(*given):
    return [(m, tuple(m.parameters())) for m in given]


def parts(ours, x, dy, repetitions):
    """Where the time of one layer goes."""
    site, weight, bias = ours.octavo_site, ours.weight, ours.bias.detach()
    forward = torch.ops.octavo.linear_forward.default
    backward = torch.ops.octavo.linear_backward.default
    plain = x.detach()
    native = weight.detach()
    saved = forward(site.run, site.id, 0, 0, plain, native, bias)[1]
    y = torch.zeros(x.shape[0], 4)

    function = modes(lambda x: Nothing.apply(x, weight, ours.bias, y), (x, weight), x, dy)
    sides = {
        "op, forward": lambda: forward(site.run, site.id, 0, 0, plain, native, bias),
        "op, version asked": lambda: forward(site.run, site.id, 0, -1, plain, native, bias),
        "op, backward": lambda: backward(site.run, site.id, 1, 7, dy, None, saved, native, None),
        "Function, forward": function["forward"], "Function, step": function["step"]}
    for name, value in medians(sides, repetitions).items():
        print(f"  {name:<30}{value:>9.2f}")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=75)
    given = parser.parse_args(argv)
    if given.rows < 1 or given.repetitions < 1:
        parser.error("--rows and --repetitions: expected at least 1")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x, dy = torch.randn(given.rows, 4).requires_grad_(), torch.randn(given.rows, 4)
    print(f"torch {torch.__version__}, one thread, microseconds a call, medians of "
          f"{given.repetitions}\n")
    print(f"{'':<30}{'torch':>9}{'octavo':>9}{'ratio':>8}")
    worst, plain = 0.0, nn.Linear(4, 4)
    for name in BACKENDS:
        ours = prepared(name)
        for title, sides in (("function", functions(plain, ours)), ("module", modules(plain, ours))):
            worst = max(worst, compare(f"{title}, {name}", *sides, x, dy, given.repetitions))
    print("\nparts, te delayed")
    parts(prepared("delayed"), x, dy, given.repetitions)
    print(f"\nlargest ratio: {worst:.2f}, allowed {GATE}")
    return 0 if worst <= GATE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

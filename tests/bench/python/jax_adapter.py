"""What a linear of octavo.jax costs beside jax.numpy's dot where only the call counts, and beside the
kernels' own time where they do.

  OCTAVO_LIBRARY_DIR=build/torch/lib PYTHONPATH=host_adapters/python:tests/host_adapters/python \\
    .cache/torch/bin/python tests/bench/python/jax_adapter.py [--repetitions N]

Run by hand after a build with OCTAVO_BUILD_JAX=ON. One core, recipe current of te; CPU time of the
process; sides take turns, and ratios are medians of those of each round, so that other programs on the machine matter
less.

  n = 4      a compiled program of 50 products in a row, microseconds a product: dot, forward without
             and with gradients. A product of octavo is two calls: the cast of the weight, and forward
  n = 1024   y, dx and dw of x [1024, 1024] by one compiled program, and by the same verbs through
             ctypes: the kernels' own time. Exit code 1: more than 1.05 of it
"""
import argparse
import os
import statistics
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before XLA counts the cores

import jax
import jax.numpy as jnp
import torch

import octavo.jax as oj
from plain_host import PlainHost

GATE = 1.05
OVERRIDES = {"mixed_precision": "fp8", "layers.min_gain": "off", "fp8.backend": "te",
             "fp8.te.recipe": "current", "fp8.te.use_autocast_during_eval": True}
COUNT = 50


def rounds(sides, repetitions, calls):
    """Microseconds of CPU a call of each side, in each round; the first one does not count."""
    times = {name: [] for name in sides}
    for repetition in range(repetitions + 1):
        for name, call in sides.items():
            start = time.process_time()
            for _ in range(calls):
                call()
            if repetition:
                times[name].append((time.process_time() - start) / calls * 1e6)
    return times


def line(what, found, one, other, count=1):
    """Prints two sides and returns the ratio of the second to the first."""
    ratio = statistics.median(b / a for a, b in zip(found[one], found[other]))
    a, b = (statistics.median(found[name]) / count for name in (one, other))
    print(f"{what}   {a:9.2f} us   octavo {b:9.2f} us   ratio {ratio:6.3f}")
    return ratio


def compiled(function, *arguments):
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def small(repetitions):
    weights, x = [jnp.eye(4) * (1 + i / 1024) for i in range(COUNT)], jnp.ones((4, 4))
    state = oj.init({"l": weights[0]}, overrides=OVERRIDES)

    def chain(product):
        def run(weights, x):
            for weight in weights:  # all different: XLA would make one call of equal ones
                x = product(weight, x)
            return x
        return run

    by_dot = chain(lambda weight, x: jnp.dot(x, weight.T, precision="highest"))
    by_octavo = chain(lambda weight, x: oj.linear("l", x, weight))
    sides = {}
    for name, run in (("dot", by_dot), ("octavo", by_octavo)):
        gradient = jax.grad(lambda w, x, run=run: run(w, x).sum(), (0, 1))
        if name == "octavo":
            run, gradient = (lambda *a, f=f: oj.evaluate(f)(state, *a) for f in (run, gradient))
        sides[name, "forward"] = compiled(run, weights, x)
        sides[name, "step"] = compiled(gradient, weights, x)
    found = rounds(sides, repetitions, 20)
    for mode in ("forward", "step"):
        line(f"n = 4     {mode:<8} dot    ", found, ("dot", mode), ("octavo", mode), COUNT)


def large(repetitions):
    n = 1024
    random = torch.Generator().manual_seed(0)
    weight, x, dy = (torch.randn(n, n, generator=random) for _ in range(3))
    host = PlainHost(OVERRIDES, weight, torch.zeros(n))

    def by_kernels():
        host.quantize()
        host.forward(x)
        host.backward(dy)

    arrays = [jnp.asarray(t.numpy()) for t in (weight, torch.zeros(n), x, dy)]
    state = oj.init({"l": arrays[0]}, overrides=OVERRIDES)

    def step(weight, bias, x, dy):
        y, back = jax.vjp(lambda *a: oj.linear("l", a[2], a[0], a[1]), weight, bias, x)
        return y, back(dy)

    def step_of(state):
        return lambda *a: oj.record(step)(state, *a)[0]

    found = rounds({"kernels": by_kernels, "octavo": compiled(step_of(state), *arrays)}, repetitions, 1)
    return line("n = 1024  step     kernels", found, "kernels", "octavo")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    small(repetitions)
    return large(repetitions)


if __name__ == "__main__":
    sys.exit(main() > GATE)

"""What a prepared model costs where no FP8 product is: an evaluation in the host's precision, and the look for
weights that code wrote through `.data` in a step of several micro-batches.

  OCTAVO_LIBRARY_DIR=build/torch/lib PYTHONPATH=host_adapters/python \\
    .cache/torch/bin/python tests/bench/python/torch_loops.py [--seconds N]

Run by hand after a build of the preset torch. One thread, its own time, medians in random order.

  evaluation      a chain of four layers [n, n] to torch's, both in eval mode under no_grad, batches of m rows
  micro-batches   a step of N forwards and backwards of one [n, n] layer and an SGD step: detect_writes=True to False

Exit code 1: an evaluation takes more than 1.1 of torch's time.
"""
import argparse
import sys

import torch
from torch import nn

import octavo
from torch_adapter import BACKENDS, medians

GATE = 1.1
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def timed(sides, seconds):
    """Medians of rounds that take some `seconds` in all."""
    first = medians(sides, 2, calls=1)
    once = sum(first.values()) * 1e-6
    calls = max(1, min(60, int(seconds / 30 / once)))
    return medians(sides, max(9, min(75, int(seconds / once / calls))), calls=calls)


def chain(n):
    return nn.Sequential(*(nn.Linear(n, n) for _ in range(4)))


def evaluations(seconds):
    print(f"{'evaluation':<12}{'n':>6}{'m':>6}{'torch us':>12}{'ratio':>8}")
    worst = 0.0
    for title, dtype in DTYPES.items():
        for n in (256, 1024, 4096):
            plain = chain(n).to(dtype).eval()
            ours = octavo.prepare(chain(n).to(dtype), overrides=BACKENDS["delayed"])[0].eval()
            for m in (1, 16, 512):
                x = torch.randn(m, n, dtype=dtype)
                with torch.no_grad():
                    found = timed({"torch": lambda: plain(x), "octavo": lambda: ours(x)}, seconds)
                ratio = found["octavo"] / found["torch"]
                worst = max(worst, ratio)
                print(f"{title:<12}{n:>6}{m:>6}{found['torch']:>12.1f}{ratio:>8.2f}", flush=True)
    return worst


def step_of(detect_writes, n, rows, micro_batches):
    torch.manual_seed(1)
    model = nn.Linear(n, n)
    model, optimizer = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3),
                                      overrides=BACKENDS["delayed"], detect_writes=detect_writes)
    x, dy = torch.randn(rows, n), torch.randn(rows, n)

    def step():
        for _ in range(micro_batches):
            model(x).backward(dy)
        optimizer.step()
        optimizer.zero_grad()

    return step


def micro_batches(seconds):
    print(f"\n{'micro-batches':<15}{'n':>6}{'m':>6}{'off, us':>12}{'ratio':>8}")
    for n, rows in ((256, 64), (1024, 64), (1024, 512)):
        for count in (1, 4, 16):
            sides = {on: step_of(on, n, rows, count) for on in (True, False)}
            found = timed(sides, seconds)
            print(f"{count:<15}{n:>6}{rows:>6}{found[False]:>12.1f}{found[True] / found[False]:>8.3f}", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each row")
    given = parser.parse_args(argv)
    if given.seconds <= 0:
        parser.error("--seconds: expected more than 0")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    worst = evaluations(given.seconds)
    micro_batches(given.seconds)
    if worst > GATE:
        print(f"error: expected evaluations within {GATE} of torch's time, found {worst:.2f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What octavo.telemetry costs a training: steps of an MLP with it, and without.

  OCTAVO_LIBRARY_DIR=build/torch/lib PYTHONPATH=host_adapters/python \\
    .cache/torch/bin/python tests/bench/python/telemetry.py [--width N] [--repetitions N]

Run by hand after a build of the preset torch. One thread, te with delayed scaling, 256 rows through four
linears of `width`. Every repetition times 25 steps of each side in a new order, milliseconds of this
thread a step; medians are compared with `plain`, which has no slots for counts. Exit code 1: `off`
costs more than 1 %, or telemetry in every 25th step more than 2 %.
"""
import argparse
import pathlib
import sys

import torch
from torch import nn

import octavo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from torch_adapter import medians

ROWS, STEPS = 256, 25
GOALS = {"off": 1.01, "every 25th step": 1.02}


def side(width, telemetry, every):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
    x = torch.randn(ROWS, width)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()), record_every_n_steps=every,
                                      overrides={"fp8.backend": "te", "fp8.te.telemetry": telemetry})

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--width", type=int, default=512)
    arguments.add_argument("--repetitions", type=int, default=21)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    sides = {"plain": side(given.width, False, 0), "off": side(given.width, True, 0),
             "every 25th step": side(given.width, True, 25), "every step": side(given.width, True, 1)}
    times = medians(sides, given.repetitions, STEPS)
    failed = False
    for name, time in times.items():
        ratio = time / times["plain"]
        is_missed = ratio > GOALS.get(name, float("inf"))
        failed |= is_missed
        print(f"{name:16} {time / 1e3:8.3f} ms {ratio:7.4f}{'  missed' if is_missed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

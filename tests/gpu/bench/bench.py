"""Goals G1 to G13: kernels-cuda against torch in one process, on one GPU.

  python3 bench.py --plugin kernels-cuda.so [--out FILE] [--only REGEX] [--repetitions N] [--device D]

Sides of a goal are called in random order, each repetition for at least 2 ms between two CUDA events;
medians are compared. Before that, every kind of call is checked against torch's arithmetic on a small
matrix. Prints one line per goal and writes all figures as JSON, after each goal. Exit codes: 1, a result was
wrong or a goal broke off; 4, a goal was missed; 5, a goal was not measured, with the reason in print; 77,
there is no GPU.

--device cpu goes through all of it with a plugin that the CPU executes, on small matrices: a test of
this program, whose times mean nothing and miss no goal.
"""
import argparse
import json
import os
import random
import re
import statistics
import sys
import time
import traceback

import torch

from checks import check_all
from goals import GOALS
from gpu_kernels import GpuKernels
from results import NotMeasured


class Clock:
    """Milliseconds of a call, by events of the device or the CPU's clock."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"

    def once(self, call, count):
        if not self.on_gpu:
            start = time.perf_counter()
            for _ in range(count):
                call()
            return 1e3 * (time.perf_counter() - start) / count
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    def host(self, call, count=200):
        """Microseconds of the host for a call whose work is only queued."""
        if self.on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        passed = time.perf_counter() - start
        if self.on_gpu:
            torch.cuda.synchronize()
        return 1e6 * passed / count

    def compare(self, sides, repetitions):
        """The median milliseconds of each side."""
        counts = {}
        for name, call in sides.items():
            call()  # plans are made, memory is mapped
            counts[name] = max(1, min(200, int(2.0 / max(self.once(call, 1), 1e-4)))) \
                if self.on_gpu else 1
        times = {name: [] for name in sides}
        order = list(sides)
        for _ in range(repetitions):
            random.shuffle(order)
            for name in order:
                times[name].append(self.once(sides[name], counts[name]))
        return {name: statistics.median(t) for name, t in times.items()}


class Bench:
    """What a goal may use."""

    def __init__(self, arguments):
        self.device = arguments.device
        self.small = arguments.device == "cpu"
        self.repetitions = arguments.repetitions
        self.clock = Clock(arguments.device)
        self.kernels = GpuKernels(os.path.abspath(arguments.plugin), arguments.device)

    def compare(self, **sides):
        return self.clock.compare(sides, self.repetitions)

    def random(self, rows, cols, dtype=torch.bfloat16):
        return torch.randn(rows, cols, device=self.device).to(dtype)

    def size(self, full, small):
        return small if self.small else full


def machine(device):
    if device == "cpu":
        return {"device": "cpu", "torch": torch.__version__}
    p = torch.cuda.get_device_properties(0)
    return {"device": p.name, "capability": f"{p.major}.{p.minor}", "torch": torch.__version__,
            "multiprocessors": p.multi_processor_count, "cuda": torch.version.cuda}


def judge(goal, bench):
    """Measures one goal, prints its line and gives its figures."""
    entry = {"goal": goal.name, "what": goal.what, "wanted": goal.wanted, "moonshot": goal.moonshot}
    try:
        result = goal.measure(bench)
    except NotMeasured as reason:
        print(f"{goal.name:5} not measured: {reason}", flush=True)
        return {**entry, "not_measured": str(reason)}
    except Exception as error:  # pylint: disable=broad-except -- the other goals are measured all the same
        print(f"{goal.name:5} broke off: {traceback.format_exc()}", flush=True)
        return {**entry, "verdict": "broke off", "not_measured": f"{type(error).__name__}: {error}"}
    verdict = "met" if goal.is_met(result) else "missed"
    print(f"{goal.name:5} {result.value:10.3f} {goal.wanted:>7} {goal.moonshot:>9} {verdict:8} {goal.what}"
          f"{'; ' + result.wrong if result.wrong else ''}", flush=True)
    return {**entry, "measured": result.value, "verdict": verdict, "wrong": result.wrong,
            "details": result.details}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True, help="the library kernels-cuda.so")
    parser.add_argument("--out", help="JSON file of all figures")
    parser.add_argument("--only", default="", help="goals whose name matches, as in 'G[12]$'")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch finds no GPU here")
        return 77
    torch.manual_seed(1)
    random.seed(1)
    # The fastest of several algorithms, as a training would have it.
    os.environ.setdefault("OCTAVO_CUDA_TUNE", "8")
    bench = Bench(arguments)
    wrong = check_all(bench)
    for text in wrong:
        print("WRONG", text)
    figures = {"machine": machine(arguments.device), "repetitions": arguments.repetitions,
               "goals": []}
    print(f"{'goal':5} {'measured':>10} {'goal':>7} {'moonshot':>9} {'':8} what")
    verdicts = set()
    for goal in GOALS:
        if not re.search(arguments.only, goal.name):
            continue
        figures["goals"].append(judge(goal, bench))
        verdicts.add(figures["goals"][-1].get("verdict", "not measured"))
        if arguments.out:  # after each goal: the next one may be cut off
            with open(arguments.out, "w", encoding="utf-8") as out:
                json.dump(figures, out, indent=1)
    bench.kernels.close()
    if wrong or "broke off" in verdicts:
        return 1
    if "missed" in verdicts and not bench.small:
        return 4
    return 5 if "not measured" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())

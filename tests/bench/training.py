#!/usr/bin/env python3
"""Speed of whole training steps: tokens a second of train_gpt's runs, as ratios within one call.

Every repetition starts train_gpt once with all runs, in a rotated order, and takes the median of the
steps of each run; a ratio is the median over repetitions of ratios within one of them.

Exit codes: 0; 1 where an FP8 run is slower than the program's own bf16 or fp32; 2 for bad usage.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HOST_RUNS = ["fp32", "bf16"]
FP8_RUNS = ["te:recipe=delayed", "te:recipe=current", "te:recipe=block", "te:recipe=mx",
            "msamp:opt_level=O2"]
WARM_UP = 3  # steps that are left out: caches and the first quantization of weights


def rotated(runs, by):
    by %= len(runs)
    return runs[by:] + runs[:by]


def medians(lines):
    """Median tokens a second of each run, from the lines of metrics.jsonl."""
    speeds = {}
    for line in lines:
        step = json.loads(line)
        if step.get("step", 0) > WARM_UP and "tokens_per_s" in step:
            speeds.setdefault(step["run"], []).append(step["tokens_per_s"])
    return {run: statistics.median(values) for run, values in speeds.items()}


def ratios(repetitions, run, opponent):
    return statistics.median(one[run] / one[opponent] for one in repetitions)


def measure(train_gpt, runs, steps, config, threads):
    with tempfile.TemporaryDirectory() as folder:
        command = [train_gpt, str(config), "--quiet", "--steps", str(steps), "--threads",
                   str(threads), "--telemetry-every", "0", "--out", folder, "--run", *runs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return medians((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/cpu"))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="of each run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report-only", action="store_true", help="never exit with 1")
    options = parser.parse_args()
    train_gpt = options.build / "bin" / "train_gpt"
    if not train_gpt.is_file():
        parser.error(f"{train_gpt} does not exist; build the target train_gpt, or say --build")
    if options.steps <= WARM_UP or options.repetitions < 1:
        parser.error(f"expected more than {WARM_UP} steps and at least one repetition")

    runs = HOST_RUNS + FP8_RUNS
    config = pathlib.Path(__file__).resolve().parents[2] / "samples" / "train_gpt" / "octavo.toml"
    repetitions = [measure(train_gpt, rotated(runs, i), options.steps, config, options.threads)
                   for i in range(options.repetitions)]
    print("| run | tokens/s | to bf16 | to fp32 |")
    print("|---|---|---|---|")
    is_slower = False
    for run in runs:
        speed = statistics.median(one[run] for one in repetitions)
        to_bf16 = ratios(repetitions, run, "bf16")
        to_fp32 = ratios(repetitions, run, "fp32")
        is_slower |= run in FP8_RUNS and (to_bf16 < 1 or to_fp32 < 1)
        print(f"| {run} | {speed:.0f} | {to_bf16:.2f} | {to_fp32:.2f} |")
    if is_slower:
        print("an FP8 run is slower than the program's own bf16 or fp32")
    return 1 if is_slower and not options.report_only else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs bench_cpu and holds its ratios against floors and moonshots.

  gates.py [--build DIR] [--repetitions N] [--filter C6[,C1*...]]
           [--json FILE] [--svg FILE] [--markdown FILE]

--build       where the preset built (build/cpu)
--repetitions of every row, in random order; medians are compared (15)
--filter      gates by name or pattern, separated by commas; without it all, and all other rows
--json        ratios, medians and peaks of the run
--svg         a chart of the ratios
--markdown    rewrites the part between two markers of this file, and gates and rates in .csv files next to it

Exit codes: 0 all floors met, 1 a floor missed, 2 bad usage or no usable run, 77 not to be judged:
peaks moved during the run, twice, or a gate for two threads had no two free cores.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import gate_chart
import gate_output
from gate_rules import BELOW, SKIPPED, BadRun, classify, had_two_cores, judge_all, parse
from gate_table import GATES


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/cpu", help="where the preset built")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--filter", default="", help="gates by name or pattern, with commas")
    parser.add_argument("--json", help="file for ratios, medians and peaks")
    parser.add_argument("--svg", help="file for the chart")
    parser.add_argument("--markdown", help="file whose tables are rewritten between two markers")
    given = parser.parse_args(argv)
    if given.repetitions < 1:
        parser.error(f"--repetitions: expected at least 1, found {given.repetitions}")
    return parser, given


def chosen(parser, patterns):
    names = [p for p in patterns.split(",") if p]
    for name in names:
        if not any(fnmatch.fnmatchcase(g.id, name) for g in GATES):
            parser.error(f"--filter: no gate {name}; expected one of "
                         f"{', '.join(g.id for g in GATES)}")
    return [g for g in GATES if not names or any(fnmatch.fnmatchcase(g.id, n) for n in names)]


def row_filter(gates):
    rows = {r for g in gates for row, opponents in g.pairs for r in (row, *opponents)}
    return f"^({'|'.join(sorted(re.escape(r) for r in rows))})(/.*_time)?(/iterations:.*)?$"


def run_bench(program, repetitions, rows):
    """One run, parsed. OMP_NUM_THREADS: opponents begin with the one thread that ours use."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "rows.json")
        peaks = pathlib.Path(folder, "peaks.json")
        command = [str(program), f"--peaks_out={peaks}", f"--benchmark_out={out}",
                   "--benchmark_out_format=json", f"--benchmark_repetitions={repetitions}",
                   "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.05",
                   "--benchmark_report_aggregates_only=true", f"--benchmark_filter={rows}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise BadRun(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")
        return parse(out.read_text(encoding="utf-8"), peaks.read_text(encoding="utf-8"))


def steady_run(program, repetitions, rows, gates):
    """A run whose peaks were the same before and after, with two free cores where a gate needs
    them; at the second attempt or not at all."""
    for attempt in (1, 2):
        run = run_bench(program, repetitions, rows)
        machine = classify(run)
        has_cores = all(g.threads == 1 or had_two_cores(run, machine, g) for g in gates)
        if machine.trusted and machine.steady_copy and has_cores:
            break
        print(f"attempt {attempt}: {'; '.join(machine.notes)}", file=sys.stderr)
    return run, machine


def as_json(run, machine, results):
    return {
        "column": machine.column, "trusted": machine.trusted, "notes": machine.notes,
        "context": run.context, "peaks": run.peaks, "medians": run.medians, "errors": run.errors,
        "gates": [{"id": r.gate.id, "title": r.gate.title, "value": r.value,
                   "floor": r.goal.floor, "moonshot": r.goal.moonshot, "verdict": r.verdict,
                   "reason": r.reason,
                   "parts": [{"row": row, "opponent": other, "ratio": value}
                             for row, other, value in r.parts]} for r in results]}


def main(argv):
    parser, given = arguments(argv)
    gates = chosen(parser, given.filter)
    program = pathlib.Path(given.build, "tests", "bench_cpu")
    if not program.is_file():
        parser.error(f"--build: expected a build with {program}, found none; build the target "
                     "bench_cpu first")
    try:
        rows = row_filter(gates) if given.filter else "."
        run, machine = steady_run(program, given.repetitions, rows, gates)
        results = judge_all(run, machine, gates)
        if given.markdown:
            gate_output.write_markdown(given.markdown, run, machine, results, given.svg)
        if given.svg:
            pathlib.Path(given.svg).write_text(
                gate_chart.svg(results, " ".join(gate_output.machine_lines(run, machine)[:1])),
                encoding="utf-8")
        if given.json:
            pathlib.Path(given.json).write_text(
                json.dumps(as_json(run, machine, results), indent=1) + "\n", encoding="utf-8")
    except (BadRun, OSError, ValueError) as e:
        print(f"gates.py: {e}", file=sys.stderr)
        return 2
    print("\n".join(gate_output.machine_lines(run, machine)))
    print(gate_output.table(results))
    verdicts = {r.verdict for r in results}
    return 1 if BELOW in verdicts else 77 if SKIPPED in verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

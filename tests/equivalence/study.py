"""Whether FP8 training ends where bf16 training ends: a study with a plan that came before the results.

  python3 tests/equivalence/study.py run --minutes 20 --jobs 1   the next runs, one core each
  study.py report          docs/results/equivalence.md, its table and its picture, from the ledger
  study.py report --check  exit code 1 when they differ from what the ledger gives
  study.py pilot           the runs that the number of seeds was chosen from; power: what they give
  study.py accept --reason TEXT   keeps runs of another plan or build, and repeats some with this one

The plan is plan.toml; docs/results/equivalence.md explains it. An interrupted run is begun again by the
next call.
"""
import argparse
import pathlib
import sys
import time

sys.dont_write_bytecode = True

import chart
import page
from analysis import pilot, rows, seeds_by_power
from errors import StudyError, expect
from ledger import Ledger
from plan import load
from runner import Program, check_text, pending, repeat, run_until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# By the name of the plan: the page in docs/results, and the ledger, the picture and the table below it.
STUDIES = {"rounding": ("te.md", "equivalence/rounding.jsonl", "equivalence/rounding.svg", "equivalence/rounding.csv")}
OF_PLAN = ("equivalence.md", "equivalence/runs.jsonl", "equivalence/intervals.svg", "equivalence/intervals.csv")


def say(line):
    print(line, flush=True)


def run(options, plan):
    """The runs of the study or of its pilot that are missing, until the time is over."""
    deadline = time.monotonic() + 60.0 * options.minutes
    ledger, program = Ledger(options.results / options.ledger), Program(options.build)
    check_text(plan)
    if options.command == "pilot":
        work = pending([plan.recipe(name) for name in plan.pilot["recipes"]], plan.pilot_seeds(), ledger)
    else:
        ledger.guard(plan, program.build)
        work = pending(plan.everything, plan.seeds(), ledger)
    with ledger.open():
        done = run_until(program, plan, ledger, work, deadline, options.jobs, say)
    say(f"{done} runs done, {len(work) - done} to do")


def report(options, plan):
    ledger = Ledger(options.results / options.ledger)
    ledger.guard(plan)
    name, picture = options.results / options.page, options.results / options.picture
    text = page.replaced(name.read_text(), page.block(plan, ledger, options.picture, options.table), str(name))
    margins = [m.percent for m in plan.margins]
    image = chart.svg(rows(plan, ledger, plan.margins[0]), margins, 100.0 - 200.0 * plan.test["alpha"])
    for path, content in ((name, text), (picture, image), (options.results / options.table, page.table(plan, ledger))):
        if options.check:
            expect(path.is_file() and path.read_text() == content, str(path), "what the ledger gives", "another content",
                   "Run: python3 tests/equivalence/study.py report")
        else:
            path.write_text(content)


def show_power(options, plan):
    found = pilot(plan, Ledger(options.results / "equivalence/pilot.jsonl"))
    for name, deviation in found.deviations.items():
        say(f"{name}: deviation of a difference {deviation:.3f} %")
    say(f"pooled {found.pooled:.3f} % with {found.freedom} degrees of freedom, "
        f"below {found.bound:.3f} % with {100.0 * plan.test['confidence']:.0f} % confidence")
    for margin, needed, power in seeds_by_power(plan, found.bound):
        say(f"margin {margin.percent:g} %, true difference {margin.assumed_difference:g} %: {needed} seeds; "
            f"the plan's {margin.seeds} have power {power:.2f}")


def accept(options, plan):
    ledger, program = Ledger(options.results / options.ledger), Program(options.build)
    foreign = {kind: ledger.foreign(kind, own) for kind, own in (("plan", plan.hash), ("build", program.build))}
    expect(any(foreign.values()), str(ledger.path), "runs of another plan or build", "none", "Nothing is to be done.")
    expect(options.reason.endswith("."), "--reason", "a sentence for the page", repr(options.reason), "Write one.")
    with ledger.open():
        ledger.append({"accept": {"plan": [*foreign["plan"], plan.hash], "build": [*foreign["build"], program.build],
                                  "reason": options.reason, "repeated": repeat(program, plan, ledger, say)}})


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report", "pilot", "power", "accept"])
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no run after so many")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one core each")
    parser.add_argument("--build", default=str(ROOT / "build/torch"), help="folder with bin/train_gpt and lib")
    parser.add_argument("--plan", default=str(HERE / "plan.toml"))
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "docs/results")
    parser.add_argument("--check", action="store_true", help="report: write nothing")
    parser.add_argument("--reason", default="", help="accept: a sentence for the page")
    options = parser.parse_args(arguments)
    options.page, options.ledger, options.picture, options.table = STUDIES.get(pathlib.Path(options.plan).stem, OF_PLAN)
    if options.command == "pilot":
        options.ledger = "equivalence/pilot.jsonl"
    commands = {"run": run, "pilot": run, "report": report, "power": show_power, "accept": accept}
    try:
        commands[options.command](options, load(options.plan))
    except StudyError as e:
        print(f"study.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("study.py: interrupted; what has ended is in the ledger", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

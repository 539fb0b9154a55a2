"""Where the time of a test run goes, from what tests/run.sh printed.

  bash tests/run.sh | tee out/main.log; python3 tests/clock.py out/main.log
  clock.py --self-test

Prints one table of builds and test runs, one of seconds by label, and the 20 slowest tests, in
Markdown; docs/results/clock.md keeps the totals. Seconds by label are processor seconds as ctest
sums them: tests run side by side, and a test with two labels counts in both.
"""
import re
import sys

BUILT = re.compile(r"^== (\S+): built in (\d+) s ==$")
TEST = re.compile(r"^ *\d+/\d+ +Test +#\d+: (.+?) \.{2,} *(\S.*?) +(\d+\.\d+) sec")
LABEL = re.compile(r"^(\S+) += +(\d+\.\d+) sec\*proc +\((\d+) tests?\)")
TOTAL = re.compile(r"^Total Test time \(real\) = +(\d+\.\d+) sec")
SUMMARY = re.compile(r"^(\d+)% tests passed, (\d+) tests? failed out of (\d+)")
SLOWEST = 20


def read(lines):
    """One dictionary for each preset: name, build, real, tests, failed, labels, slow."""
    runs = []
    for line in lines:
        if match := BUILT.match(line):
            runs.append({"name": match[1], "build": int(match[2]), "real": 0.0, "tests": 0,
                         "failed": 0, "labels": {}, "slow": []})
            continue
        if not runs:
            continue
        run = runs[-1]
        if match := TEST.match(line):
            run["slow"].append((float(match[3]), match[1]))
        elif match := LABEL.match(line):
            run["labels"][match[1]] = (float(match[2]), int(match[3]))
        elif match := TOTAL.match(line):
            run["real"] = float(match[1])
        elif match := SUMMARY.match(line):
            run["failed"], run["tests"] = int(match[2]), int(match[3])
    return runs


def report(runs):
    out = ["| Preset | build, s | tests, s | tests | failed |", "|---|---:|---:|---:|---:|"]
    for run in runs:
        out.append(f"| {run['name']} | {run['build']} | {run['real']:.0f} | {run['tests']} "
                   f"| {run['failed']} |")
    total = sum(run["build"] + run["real"] for run in runs)
    out += [f"| together | | {total:.0f} | {sum(run['tests'] for run in runs)} "
            f"| {sum(run['failed'] for run in runs)} |", ""]
    out += ["| Preset | label | processor seconds | tests |", "|---|---|---:|---:|"]
    for run in runs:
        for label, (seconds, count) in sorted(run["labels"].items(), key=lambda item: -item[1][0]):
            out.append(f"| {run['name']} | {label} | {seconds:.0f} | {count} |")
    out += ["", "| Preset | test | s |", "|---|---|---:|"]
    slow = [(seconds, run["name"], name) for run in runs for seconds, name in run["slow"]]
    for seconds, preset, name in sorted(slow, reverse=True)[:SLOWEST]:
        out.append(f"| {preset} | `{name}` | {seconds:.1f} |")
    return "\n".join(out)


SAMPLE = """== cpu: built in 61 s ==
      Start  1: A.b
 1/2 Test  #1: A.b ..................................   Passed    0.50 sec
 2/2 Test #12: C.d/a b [ e ] ........................***Skipped  21.25 sec
50% tests passed, 1 tests failed out of 2

Label Time Summary:
unit    =  21.75 sec*proc (2 tests)

Total Test time (real) =  22.00 sec
"""


def self_test():
    runs = read(SAMPLE.splitlines())
    expected = [{"name": "cpu", "build": 61, "real": 22.0, "tests": 2, "failed": 1,
                 "labels": {"unit": (21.75, 2)}, "slow": [(0.5, "A.b"), (21.25, "C.d/a b [ e ]")]}]
    if runs != expected:
        return f"expected {expected}, found {runs}"
    text = report(runs)
    wanted = ["| cpu | 61 | 22 | 2 | 1 |", "| together | | 83 | 2 | 1 |", "| cpu | unit | 22 | 2 |",
              "| cpu | `C.d/a b [ e ]` | 21.2 |"]
    return "".join(f"expected the line {line}\n" for line in wanted if line not in text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test() or 0)
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    found = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as log:
            found += read(log.read().splitlines())
    if not found:
        sys.exit(f"expected lines '== <preset>: built in <n> s ==' as tests/run.sh prints them, "
                 f"found none in {', '.join(sys.argv[1:])}")
    print(report(found))

"""Do the unit tests notice a changed line? A sample of the mutants that universalmutator makes, one at a time.

  mutation.py [--group NAME...] [--seed N] [--count N] [--folder build/mutation] [--again]
  mutation.py --list | --self-test

Each mutant changes one line of a copy of the tree (scratch.py). One that does not compile or gives the same machine code
counts for nothing; the others are built into the test programs of their group (groups.py), until --count of them were
tested. A survivor that changes nothing that a test could see is in equivalent.toml with its reason. out/mutation has what
became of each; --again tries its survivors alone. Exit code 1: a group's score is below the goal, more surely than by the
chance of the sample; 77: universalmutator is missing.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import sys

try:
    import tomllib
except ImportError:
    print("skipped: expected Python 3.11 or newer, which reads TOML, found", sys.version.split()[0])
    sys.exit(77)

import mutants
from groups import GROUPS, ROOT
from parser import Parser
from scratch import Scratch

GOAL = 0.9
Z = 1.96  # of a confidence of 95 %
TESTED = ("killed", "timeout", "survived", "equivalent")


def interval(killed, count):
    """Wilson's, for a share in a sample."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = killed / count, Z * Z / count
    middle, half = share + z2 / 2, Z * math.sqrt(share * (1 - share) / count + z2 / count / 4)
    return max(0.0, (middle - half) / (1 + z2)), min(1.0, (middle + half) / (1 + z2))


def equivalents():
    """The key of each known equivalent mutant -> why it is one."""
    with open(pathlib.Path(__file__).with_name("equivalent.toml"), "rb") as file:
        return {(m["file"], m["found"], m["put"]): m["why"] for m in tomllib.load(file).get("mutant", [])}


def judge(scratch, group, mutant, parser, code, limits):
    """(what became of it, by which case)."""
    with scratch.with_text(mutant.file, mutant.text()):
        if not parser.accepts() or not scratch.make(scratch.object_of(mutant.file), cached=False)[0]:
            return "not compiled", ""
        if scratch.code_of(mutant.file) == code:
            return "equal code", ""
        built, said = scratch.make(*group.targets())
        if not built:  # an inline function that is gone, say
            return "not compiled", said[-200:]
        by, _ = scratch.test(group, limits)
    return ("survived", "") if by is None else ("timeout", "") if by == "timeout" else ("killed", by)


def in_order(group, mutator, options, file):
    """The mutants to try: those drawn, or the survivors of the last run."""
    every = mutants.drawn(mutator, group.files(), options.seed)
    if not options.again:
        return every
    left = {(entry["line"], *entry["key"]) for entry in map(json.loads, file.read_text().splitlines())
            if entry["verdict"] in ("survived", "equivalent")}
    return [m for m in every if (m.line, *m.key()) in left]


def run_group(group, mutator, scratch, options, known):
    file = ROOT / f"out/mutation/{group.name}-{options.seed}{'-again' if options.again else ''}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    todo = in_order(group, mutator, options, ROOT / f"out/mutation/{group.name}-{options.seed}.jsonl")
    built, said = scratch.make(*group.targets())
    if not built:
        sys.exit(f"error: {group.name}: the tree without a mutant does not compile:\n{said[-3000:]}")
    by, seconds = scratch.test(group)
    if by:
        sys.exit(f"error: {group.name}: the tree without a mutant fails {by}")
    code = {name: scratch.code_of(name) for name in group.files()}
    parsers = {name: Parser(scratch.build, scratch.folder / name) for name in group.files()}
    counts = collections.Counter()
    with open(file, "w") as log:
        for mutant in todo:
            if sum(counts[name] for name in TESTED) >= options.count:
                break
            verdict, by = judge(scratch, group, mutant, parsers[mutant.file], code[mutant.file],
                                [10 + 5 * s for s in seconds])
            if verdict == "survived" and mutant.key() in known:
                verdict, by = "equivalent", known[mutant.key()]
            counts[verdict] += 1
            log.write(json.dumps({"key": mutant.key(), "line": mutant.line, "verdict": verdict, "by": by}) + "\n")
            log.flush()
            if verdict in ("survived", "equivalent"):
                print(f"{verdict}{': ' + by if by else ''}\n{mutant.diff()}\n", flush=True)
    return counts


def row(name, counts):
    killed = counts["killed"] + counts["timeout"]
    low, high = interval(killed, killed + counts["survived"])
    share = killed / max(1, killed + counts["survived"])
    return (f"| {name} | {sum(counts.values())} | {counts['not compiled']} | {counts['equal code']} | {counts['killed']} "
            f"| {counts['timeout']} | {counts['survived']} | {counts['equivalent']} "
            f"| {100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f} %) |"), high


def self_test():
    low, high = interval(54, 60)
    assert 0.798 < low < 0.80 and 0.953 < high < 0.954, (low, high)
    line, high = row("x", collections.Counter({"killed": 50, "timeout": 4, "survived": 6, "not compiled": 9}))
    assert line == "| x | 69 | 9 | 0 | 50 | 4 | 6 | 0 | 90 % (80 to 95 %) |", line
    texts = {group.name: {name: (ROOT / name).read_text() for name in group.files()} for group in GROUPS}
    for name, found, _ in equivalents():
        lines = [line.strip() for files in texts.values() for line in files.get(name, "").splitlines()]
        assert found in lines, f"equivalent.toml: expected a line of {name}, found {found}"
    print("self-test passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--group", nargs="+", choices=[group.name for group in GROUPS])
    parser.add_argument("--seed", type=int, default=int(os.environ.get("OCTAVO_SEED", "1")))
    parser.add_argument("--count", type=int, default=60, help="mutants to test, of each group")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutation")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true", help="the groups, and how many mutants each has")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    mutator = mutants.tool()
    if mutator is None:
        print("skipped: universalmutator is missing; run bash tests/environment/install.sh mutation")
        return 77
    chosen = [group for group in GROUPS if group.name in (options.group or [group.name])]
    if options.list:
        for group in chosen:
            print(f"{group.name:11} {len(mutants.drawn(mutator, group.files(), 1)):5} mutants of {group.sources}")
        return 0
    scratch = Scratch(options.folder)
    scratch.refresh()
    scratch.configure()
    rows = [row(group.name, run_group(group, mutator, scratch, options, equivalents())) for group in chosen]
    print("| Group | Mutants | Not compiled | Equal code | Killed | Timeout | Survived | Equivalent | Score |")
    print("\n".join(["|---|---:|---:|---:|---:|---:|---:|---:|---|"] + [line for line, _ in rows]))
    return 0 if options.again else int(any(high < GOAL for _, high in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Compares today's ABI with a frozen one, and lets nothing pass that is not written down.

  guard.py <snapshot dir> <include dir> <layout table> [--approved FILE] [--cc CC] [--abidiff PROGRAM]

Two witnesses, neither of which knows the other: the tables of abi_table.py (sizes, offsets, values,
declarations; they know what may grow), and libabigail's abidiff over the debug information of
witness.py (every type that is reachable). Each change needs an entry in the file of approved changes:

    octavo_gemm: why this is right, in one line
      breaks: FIELD octavo_gemm.layout: ...
      type size changed from 768 to 832 (in bits)

A line that is not indented names what changed and gives the reason; the indented lines below it are
the change as this script prints it. An entry that nothing needs is an error, too, so the file never
says more than the truth. Exits with 77 where abidiff is not installed, after the comparison of tables.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import witness

APPROVED = pathlib.Path(__file__).parent / "approved_changes"


def read_rows(table):
    """What a line of a table promises -> its numbers and texts."""
    rows = {}
    for line in pathlib.Path(table).read_text().splitlines():
        match = re.fullmatch(r"(FROZEN|GROWABLE|FIELD|VALUE|TEXT|DECLARATION)\((\w+), (.*)\)", line)
        if not match:
            continue
        kind, name, rest = match.groups()
        if kind == "FIELD":
            field, rest = rest.split(", ", 1)
            rows[(name, f"FIELD {name}.{field}")] = rest
        else:
            rows[(name, f"{kind} {name}")] = rest
    return rows


def has_grown(old, new):
    """Whether "size, alignment, kind" of a struct that can grow says what growth may change."""
    was, now = old.split(", "), new.split(", ")
    return was[1:] == now[1:] and int(now[0]) > int(was[0]) and int(now[0]) % 8 == 0


def table_changes(old_table, new_table):
    """Subject -> what breaks; an appended field, a new struct, value or function does not."""
    old, new = read_rows(old_table), read_rows(new_table)
    if len(old) < 300:
        sys.exit(f"{old_table}: only {len(old)} lines were understood; expected the whole ABI")
    changes = {}
    for (subject, promise), was in old.items():
        now = new.get((subject, promise))
        if now == was or (promise.startswith("GROWABLE") and now and has_grown(was, now)):
            continue
        found = "gone" if now is None else f"({now})"
        changes.setdefault(subject, []).append(f"breaks: {promise}: was ({was}), is {found}")
    return changes


def subject_of(line):
    """The name that a line of abidiff's report is about, or None for a line of detail."""
    match = re.match(r"'?(?:struct|type|union|enum) (octavo_\w+)\b.*changed", line)
    match = match or re.match(r"\[[ACD]\] '.*?\bwitness_(octavo_\w+)\b", line)
    return match[1] if match else None


def parse_report(report):
    """Subject -> lines of detail of abidiff's report on leaf types, without counts and places."""
    changes, subject = {}, None
    for line in report.splitlines():
        text = line.strip()
        if not text or re.match(r"(Leaf|Removed/Changed|Changed leaf|Functions|Variables) .*summary", text):
            continue
        if subject_of(text):
            subject = subject_of(text)
            changes.setdefault(subject, [])
            if text.startswith("["):
                changes[subject].append(text)
        elif subject is not None and not re.match(r"\d+ (Removed|Added|Changed) |\d+ impacted", text):
            changes[subject].append(text)
    return changes


def abidiff_changes(program, snapshot, include, compiler):
    with tempfile.TemporaryDirectory() as directory:
        library = pathlib.Path(directory, "witness.so")
        witness.build(include, library, compiler)
        result = subprocess.run(
            [program, "--leaf-changes-only", "--no-show-locs", "--no-added-syms", "--no-show-relative-offset-changes",
             snapshot / "abi.xml", library], capture_output=True, text=True)
    if result.returncode & 3:
        sys.exit(f"{program} failed with exit code {result.returncode}:\n{result.stderr}")
    changes = parse_report(result.stdout)
    if bool(result.returncode & 12) != bool(changes):
        sys.exit(f"{program} answered {result.returncode}, but these changes were understood: "
                 f"{changes}\n{result.stdout}")
    return changes


def read_approved(path):
    """Subject -> (reason, lines, line number)."""
    entries, subject = {}, None
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            if subject is None:
                sys.exit(f"{path}:{number}: expected 'name: reason' before an indented line")
            entries[subject][1].append(line.strip())
            continue
        subject, colon, reason = line.partition(":")
        if not colon or not reason.strip() or subject in entries:
            sys.exit(f"{path}:{number}: expected 'name: reason', each name once, found '{line}'")
        entries[subject] = (reason.strip(), [], number)
    return entries


def judge(changes, approved, path):
    faults = []
    for subject, lines in sorted(changes.items()):
        _, allowed, number = approved.get(subject, (None, [], None))
        if sorted(allowed) == sorted(lines):
            continue
        text = "".join(f"\n  {line}" for line in lines)
        what = f"line {number} approves another change" if number else "no entry approves it"
        faults.append(f"{subject}: changed, and {what}. If it is meant, this is its entry:\n"
                      f"{subject}: <reason>{text}")
    for subject, (_, _, number) in approved.items():
        if subject not in changes:
            faults.append(f"{path}:{number}: {subject} has not changed; remove the entry")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=pathlib.Path)
    parser.add_argument("include")
    parser.add_argument("table")
    parser.add_argument("--approved", type=pathlib.Path, default=APPROVED)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--abidiff", default="abidiff")
    arguments = parser.parse_args()
    changes = table_changes(arguments.snapshot / "layout.inc", arguments.table)
    approved = read_approved(arguments.approved)
    program = shutil.which(arguments.abidiff)
    if program:
        found = abidiff_changes(program, arguments.snapshot, arguments.include, arguments.cc)
        for subject, lines in found.items():
            changes[subject] = changes.get(subject, []) + lines
    else:  # entries hold lines of both witnesses; only one is there
        approved = {s: (reason, breaks, number) for s, (reason, lines, number) in approved.items()
                    if (breaks := [line for line in lines if line.startswith("breaks:")])}
    faults = judge(changes, approved, arguments.approved)
    if "_rc" not in arguments.snapshot.name:  # a release: its binaries run for as long as the major
        faults += [f"{arguments.approved}:{number}: {subject}: a change that breaks {arguments.snapshot.name} cannot be approved"
                   for subject, (_, lines, number) in approved.items() if any(line.startswith("breaks:") for line in lines)]
    print("\n".join(faults) or f"{arguments.snapshot.name}: {len(changes)} changes, all approved")
    if faults:
        return 1
    if not program:
        print("SKIPPED: abidiff is not installed, so only the tables were compared "
              "(apt-get install abigail-tools)")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The table of planted faults and the checks of `octavo plugin verify` that find them.

  faults_table.py [--write]

Each row is a case of the suite's own test (selftest/conformance_test.cpp) or of tests/zoo/verify_cases.py, which
fail when a check does not find its fault. Without --write the table and its summary must be as they are in docs.
"""
import csv
import io
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/zoo"))
import verify_cases  # noqa: E402

TABLE = ROOT / "docs/results/faults_of_plugins.csv"
PAGE = ROOT / "docs/results/robustness.md"
RARE = "kDependsOnAddress"  # the first of those that a small model and a short run do not show
SETS = ["a library that answers wrongly", "what a plugin does to its process", "a rule of the contract",
        "addresses, sizes, dtypes, repetitions, numbers"]


def words(name):
    """kNoBias and no_bias -> no bias."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r" \1", name.removeprefix("k")).replace("_", " ").lower()


def subject_faults():
    """Fault of the subject -> its comment in subject.h, in order."""
    body = re.search(r"enum Fault : int64_t \{(.*?)\n\};", (ROOT / "tests/conformance/selftest/subject.h").read_text(),
                     re.S)[1]
    lines = re.findall(r"^  (k\w+)[^,/\n]*,?(?:\s*// (.*))?$", body, re.M)
    return dict(lines)


def library_faults():
    lines = re.findall(r"^#define FAULT_(\w+) \d+(?:\s*/\* (.*?)(?: \*/)?)?$", (ROOT / "tests/zoo/faults.h").read_text(),
                       re.M)
    return {name.lower(): comment for name, comment in lines}


def rows():
    """(set, fault, what it does, checks, why not found)."""
    subject, library = subject_faults(), library_faults()
    order = list(subject)
    found = {}

    def add(kind, name, does, check):
        found.setdefault((kind, words(name), does), []).append(check)

    source = (ROOT / "tests/conformance/selftest/conformance_test.cpp").read_text()
    for check, fault in re.findall(r'^    \{"([a-z0-9.]+)",\s*(k\w+),', source, re.M):
        add(SETS[3] if order.index(fault) >= order.index(RARE) else SETS[2], fault, subject[fault], check)
    for fault, check, _ in verify_cases.PROCESS + verify_cases.BENDS + verify_cases.LOAD + verify_cases.FAKE:
        name = fault.split()[-1]
        if fault.startswith("fake "):
            add(SETS[0], name, library[name], check)
        else:
            add(SETS[1], name + ", while it is loaded" * fault.startswith("load "), subject[name], check)
    all_rows = [(*fault, " ".join(dict.fromkeys(checks)), "") for fault, checks in found.items()]
    all_rows += [(SETS[0], words(name), does, "", why) for name, (does, why) in verify_cases.NOT_FOUND.items()]
    return sorted(all_rows, key=lambda row: SETS.index(row[0]))


def summary(all_rows):
    lines = []
    for kind in SETS:
        of_kind = [row for row in all_rows if row[0] == kind]
        lines.append(f"| {kind} | {len(of_kind)} | {sum(1 for row in of_kind if row[3])} |")
    return "\n".join(lines)


def main(write):
    all_rows = rows()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["Set", "Fault", "What it does", "Found by", "Why not"])
    writer.writerows(all_rows)
    if write:
        TABLE.write_text(text.getvalue(), encoding="utf-8")
        print(summary(all_rows))
        return 0
    wrong = []
    if TABLE.read_text(encoding="utf-8") != text.getvalue():
        wrong.append(f"{TABLE.name} differs from the cases of the tests; write it: {sys.argv[0]} --write")
    if summary(all_rows) not in PAGE.read_text(encoding="utf-8"):
        wrong.append(f"{PAGE.name}: expected the lines\n{summary(all_rows)}")
    print("\n".join(wrong) or f"{len(all_rows)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))

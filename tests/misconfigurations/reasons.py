"""Reason codes, their sections in docs/reasons.md and the tests that provoke them, docs/reasons.csv, agree.

  reasons.py <root>
  reasons.py --self-test
"""
import csv
import pathlib
import re
import sys
import tempfile

import cases_config
import cases_machine
import cases_plugins

EMITTERS = ("sdk/src", "sdk/probe", "plugins", "kernels")


def codes_of(root):
    """name of the constant -> (number, name in reports)"""
    header = (root / "sdk/include/octavo/host.h").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"OCTAVO_REASON_([A-Z_]+) = (\d+)", header))
    source = (root / "sdk/src/base/verdict.cpp").read_text(encoding="utf-8")
    names = dict(re.findall(r'OCTAVO_REASON_([A-Z_]+): return "([a-z-]+)"', source))
    return {c: (int(n), names.get(c)) for c, n in numbers.items() if c != "NONE"}


def texts(root, folder, suffixes):
    return [p.read_text(encoding="utf-8", errors="replace") for p in sorted((root / folder).rglob("*"))
            if p.suffix in suffixes] if (root / folder).is_dir() else []


def is_emitted(root, code):
    """Whether anything in the tree gives this reason; a `case` only reads it."""
    use = re.compile(rf"(?<!case )\bOCTAVO_REASON_{code}\b")
    return any(use.search(t) for f in EMITTERS for t in texts(root, f, {".c", ".cpp", ".h"}))


def test_faults(where, name, row, cases, tests):
    faults = []
    named, suites = ([x for x in row[column].split("; ") if x] for column in ("misconfigurations", "tests"))
    for case in named:
        if not any(c.name == case and name in (c.reason, *c.then) for c in cases):
            faults.append(f'{where}: no misconfiguration "{case}" is refused for {name}')
    for suite, _, case in (x.partition(".") for x in suites):
        if not re.search(rf"TEST(_F|_P)?\(\s*{suite},\s*{case}\)", tests):
            faults.append(f"{where}: names the test {suite}.{case}, which does not exist")
    if not named and not suites:
        faults.append(f"{where}: expected a test, found none")
    return faults


def check(root, cases):
    root = pathlib.Path(root)
    codes = codes_of(root)
    page = (root / "docs/reasons.md").read_text(encoding="utf-8")
    sections = {s.partition("\n")[0]: s for s in re.split(r"^## ", page, flags=re.M)[1:]}
    with open(root / "docs/reasons.csv", encoding="utf-8", newline="") as file:
        rows = {row["reason"]: row for row in csv.DictReader(file)}
    schema = (root / "docs/check.schema.json").read_text(encoding="utf-8")
    tests = "\n".join(texts(root, "tests", {".cpp"}))
    names = {name for _, name in codes.values()}
    faults = [f"docs/reasons.md: {name}: no reason has this name" for name, section in sections.items()
              if name not in names and "OCTAVO_REASON_" in section]
    faults += [f"docs/reasons.csv: {name}: no reason has this name" for name in rows.keys() - names]
    for code, (number, name) in codes.items():
        if name is None:
            faults.append(f"OCTAVO_REASON_{code}: reason_name in sdk/src/base/verdict.cpp has no name for it")
            continue
        where = f"docs/reasons.md: {name}"
        if f'"{name}"' not in schema:
            faults.append(f"docs/check.schema.json: lacks the reason {name}")
        section = sections.get(name)
        if section is None:
            faults.append(f"{where}: expected a section about OCTAVO_REASON_{code}, found none")
            continue
        if not section.startswith(f"{name}\n\n`OCTAVO_REASON_{code}` = {number}"):
            faults.append(f"{where}: expected to begin '## {name}' and '`OCTAVO_REASON_{code}` = {number}'")
        if not re.search(r"^```(sh|toml)$", section, re.M):
            faults.append(f"{where}: expected a command or lines of a configuration")
        if is_emitted(root, code) or name in rows:
            row = rows.get(name, {"misconfigurations": "", "tests": ""})
            faults += test_faults(f"docs/reasons.csv: {name}", name, row, cases, tests)
    return faults, len(codes)


def self_test():
    section = "## {0}\n\n`OCTAVO_REASON_{1}` = {2}. x\n\n```sh\ntrue\n```\n\n"
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        files = {
            "sdk/include/octavo/host.h": "OCTAVO_REASON_NONE = 0, OCTAVO_REASON_ONE = 1, "
            "OCTAVO_REASON_TWO = 2, OCTAVO_REASON_SIX = 6, OCTAVO_REASON_NINE = 9, OCTAVO_REASON_TEN = 10",
            "sdk/src/base/verdict.cpp": 'case OCTAVO_REASON_ONE: return "one"; case OCTAVO_REASON_TWO: '
            'return "two"; case OCTAVO_REASON_NINE: return "nine"; case OCTAVO_REASON_TEN: return "ten";',
            "sdk/src/a.cpp": "OCTAVO_REASON_ONE OCTAVO_REASON_TWO",
            "docs/check.schema.json": '"one" "two" "nine" "ten"',
            "docs/reasons.md": "# Reasons\n\n## Stages\n\n" + section.format("one", "ONE", 1)
            + section.format("two", "TWO", 3).replace("```sh", "```") + section.format("ten", "TEN", 10)  # nobody gives ten
            + section.format("old", "OLD", 4),
            "docs/reasons.csv": "reason,misconfigurations,tests\none,a case,A.b; A.gone\nolder,,\n",
            "tests/a_test.cpp": "TEST(A, b) {",
        }
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        faults, _ = check(root, [])
    wanted = ["old: no reason has this name", "older: no reason has this name", 'no misconfiguration "a case"',
              "A.gone, which does not exist", "nine: expected a section", "expected to begin '## two'", "expected a command",
              "two: expected a test", "OCTAVO_REASON_SIX: reason_name"]
    wrong = [f"expected a fault with '{w}'" for w in wanted if not any(w in f for f in faults)]
    if len(faults) != len(wanted):
        wrong.append(f"expected {len(wanted)} faults, found {faults}")
    print("\n".join(wrong) or f"{len(wanted)} planted faults were seen")
    sys.exit(1 if wrong else 0)


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    faults, count = check(sys.argv[1], cases_config.CASES + cases_plugins.CASES + cases_machine.CASES)
    print("\n".join(faults) or f"{count} reasons")
    sys.exit(1 if faults or count == 0 else 0)


main()

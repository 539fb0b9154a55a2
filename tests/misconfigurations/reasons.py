"""Reason codes, their pages in docs/reasons and the tests that provoke them agree.

  reasons.py <root>
  reasons.py --self-test
"""
import pathlib
import re
import sys
import tempfile

import cases_config
import cases_machine
import cases_plugins

SECTIONS = ("## What it means", "## Typical evidence", "## What to do")
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


def test_faults(root, where, name, line, cases, tests):
    """`line` names tests: gtest cases in backticks, misconfigurations in quotes."""
    faults = []
    named = re.findall(r'"([^"]+)"', line)
    for case in named:
        if not any(c.name == case and name in (c.reason, *c.then) for c in cases):
            faults.append(f'{where}: no misconfiguration "{case}" is refused for {name}')
    suites = re.findall(r"`(\w+)\.(\w+)`", line)
    for suite, case in suites:
        if not re.search(rf"TEST(_F|_P)?\(\s*{suite},\s*{case}\)", tests):
            faults.append(f"{where}: names the test {suite}.{case}, which does not exist")
    if not named and not suites:
        faults.append(f"{where}: expected a line 'Provoked by:' with a test, found none")
    return faults


def check(root, cases):
    root = pathlib.Path(root)
    codes = codes_of(root)
    pages = {p.stem: p for p in (root / "docs/reasons").glob("*.md") if p.stem != "README"}
    index = (root / "docs/reasons/README.md").read_text(encoding="utf-8")
    schema = (root / "docs/check.schema.json").read_text(encoding="utf-8")
    tests = "\n".join(texts(root, "tests", {".cpp"}))
    faults = [f"docs/reasons/{name}.md: no reason has this name"
              for name in pages.keys() - {name for _, name in codes.values()}]
    for code, (number, name) in codes.items():
        if name is None:
            faults.append(f"OCTAVO_REASON_{code}: reason_name in sdk/src/base/verdict.cpp has no name for it")
            continue
        where = f"docs/reasons/{name}.md"
        if f'"{name}"' not in schema:
            faults.append(f"docs/check.schema.json: lacks the reason {name}")
        if f"({name}.md)" not in index:
            faults.append(f"docs/reasons/README.md: does not link {name}.md")
        if name not in pages:
            faults.append(f"{where}: expected a page about OCTAVO_REASON_{code}, found none")
            continue
        page = pages[name].read_text(encoding="utf-8")
        if not page.startswith(f"# {name}\n\n`OCTAVO_REASON_{code}` = {number}"):
            faults.append(f"{where}: expected to begin '# {name}' and '`OCTAVO_REASON_{code}` = {number}'")
        faults += [f"{where}: expected a section '{s}'" for s in SECTIONS if f"\n{s}\n" not in page]
        remedies = page.partition(SECTIONS[2])[2]
        if not re.search(r"^```(sh|toml)$", remedies, re.M):
            faults.append(f"{where}: expected a command or lines of a configuration under '{SECTIONS[2]}'")
        line = re.search(r"^Provoked by:(.*(?:\n.+)*)", page, re.M)
        if is_emitted(root, code) or line:
            faults += test_faults(root, where, name, line[1] if line else "", cases, tests)
    return faults, len(codes)


def self_test():
    page = ("# {0}\n\n`OCTAVO_REASON_{1}` = {2}. x\n\n## What it means\n\n## Typical evidence\n\n"
            "## What to do\n\n```sh\ntrue\n```\n\n{3}\n")
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        files = {
            "sdk/include/octavo/host.h": "OCTAVO_REASON_NONE = 0, OCTAVO_REASON_ONE = 1, "
            "OCTAVO_REASON_TWO = 2, OCTAVO_REASON_SIX = 6, OCTAVO_REASON_TEN = 10",
            "sdk/src/base/verdict.cpp": 'case OCTAVO_REASON_ONE: return "one"; case OCTAVO_REASON_TWO: '
            'return "two"; case OCTAVO_REASON_TEN: return "ten";',
            "sdk/src/a.cpp": "OCTAVO_REASON_ONE OCTAVO_REASON_TWO",
            "docs/reasons/README.md": "(one.md) (ten.md)",
            "docs/check.schema.json": '"one" "two" "ten"',
            "docs/reasons/one.md": page.format("one", "ONE", 1, "Provoked by: `A.b`, `A.gone`."),
            "docs/reasons/two.md": page.format("two", "TWO", 3, "").replace("```sh", "```"),
            "docs/reasons/ten.md": page.format("ten", "TEN", 10, ""),  # nobody gives it: no test
            "docs/reasons/old.md": "",
            "tests/a_test.cpp": "TEST(A, b) {",
        }
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        faults, _ = check(root, [])
    wanted = ["no reason has this name", "A.gone, which does not exist", "does not link two.md",
              "expected to begin '# two'", "expected a command", "two.md: expected a line 'Provoked by:'",
              "OCTAVO_REASON_SIX: reason_name"]
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

"""Keeps the tables that name tests true: each named test exists in the file that its link leads to.

  named_tests.py <root>
  named_tests.py --self-test

A table is checked where the line before it is `<!-- tests: 11 rows -->`, and one in a file next to the page where a line is
`<!-- tests: 52 rows of faults.csv -->`. It has that many rows, which a first column `#` numbers. Each cell of a column whose heading begins with "Test" either gives a reason, `None: why there is none.`,
or names tests: a link whose text is a test suite or the name of a Python file, and behind it names of tests in there,
with cases of a test in parentheses:

  [`ZooLoad`](../tests/zoo/load_test.cpp) `empty_file`, `is_refused` (`load_aborts`)
  [`prepare_test`](../tests/host_adapters/python/prepare_test.py) `test_a_model`

  [`checks`](../sdk/verify/checks.cpp) `purity.arguments`, checks of `octavo plugin verify`
  [`CMakeLists`](../tests/clean_room/CMakeLists.txt) `CleanRoom.kernels`, a test of ctest by its name

A suite alone stands for all of its tests. Links with other texts lead to what is no test. A column whose heading begins with
"Declared" is checked, too: a link whose text is the name of a header, and behind it words that occur in it.
"""
import csv
import itertools
import pathlib
import re
import tempfile

import tree

MARKER = re.compile(r"<!-- tests: (\d+) rows(?: of ([\w.]+))? -->")
REASON = re.compile(r"None: \w.{14,}\.$")
TOKEN = re.compile(r"\[`([\w/]+)`\]\(([^)\s]+)\)|\[[^\]]*\]\([^)\s]+\)|([()])|`([\w.]+)`")
# Of files that are no suites: what a line with the name looks like.
NAMED = {".py": r"^def {}\(", ".h": r"\b{}\b", ".txt": r"\bNAME {}\s", ".cpp": r"^ *\{{\"{}\","}


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(folder, text):
    """(line of the marker, stated rows, headings, rows) of each checked table of a page in the folder."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        marker = MARKER.fullmatch(line.strip())
        if marker:
            if marker.group(2):
                with open(folder / marker.group(2), encoding="utf-8", newline="") as file:
                    body = list(csv.reader(file))
                body[1:1] = [[]]  # as the line of dashes below the headings
            else:
                body = [cells(row) for row in itertools.takewhile(lambda row: row.startswith("|"), lines[number + 1:])]
            yield number + 1, int(marker.group(1)), body[0] if body else [], body[2:]


def has_test(source, suite, name):
    """Whether a file has the test; without a name, any of the suite."""
    if source.stem == suite:
        pattern = NAMED[source.suffix].format(re.escape(name or ""))
        return name is None or re.search(pattern, source.read_text(encoding="utf-8"), re.M) is not None
    name = name or r"(?!DISABLED_)\w+"
    return re.search(rf"TEST(_F|_P)?\(\s*{suite},\s*{name}\s*\)", source.read_text(encoding="utf-8")) is not None


def cell_faults(folder, cell):
    """What is wrong with the cell of a column of tests."""
    if not cell:
        return ["is empty: name a test, or give a reason, `None: ...`"]
    if cell.startswith("None:"):
        return [] if REASON.fullmatch(cell) else [f"expected a reason in a sentence, found '{cell}'"]
    faults, suite, source, named, is_case = [], None, None, False, False
    for text, path, parenthesis, name in TOKEN.findall(cell):
        if parenthesis:
            is_case = parenthesis == "("
        elif text:
            suite, source, named = text, folder / path, True
            if not source.is_file():
                faults.append(f"{path} does not exist")
                source = None
            elif source.suffix != ".cpp" and source.stem != suite or not has_test(source, suite, None):
                faults.append(f"{path} has no {suite}")
                source = None
        elif not name:
            suite, source, named = None, None, True
        elif source is None:
            faults += [] if faults else [f"'{name}' stands behind no link to its file"]
        elif is_case:
            if not re.search(rf"[\"']{name}[\"']|\{{\"?{name}\b|\b{name}\(", source.read_text(encoding="utf-8")):
                faults.append(f"{source.name} has no case '{name}'")
        elif not has_test(source, suite, name):
            faults.append(f"{source.name} has no test '{name}'" + (f" of {suite}" if source.stem != suite else ""))
    return faults if named or faults else [f"names no test: '{cell}'"]


def check_page(root, path, text):
    """(faults, the number of checked tables)."""
    faults, count = [], 0
    for line, stated, headings, rows in tables((root / path).parent, text):
        count += 1
        where = f"{path}:{line}"
        columns = [i for i, heading in enumerate(headings) if heading.startswith(("Test", "Declared"))]
        if not any(headings[i].startswith("Test") for i in columns):
            faults.append(f"{where}: expected a table with a column 'Test...', found {headings}")
        if len(rows) != stated:
            faults.append(f"{where}: expected {stated} rows, found {len(rows)}")
        for number, row in enumerate(rows, 1):
            name = f"{where}: row {number}"
            if headings[:1] == ["#"] and row[0] != str(number):
                faults.append(f"{name}: expected the number {number}, found '{row[0]}'")
            if len(row) != len(headings):
                faults.append(f"{name}: expected {len(headings)} cells, found {len(row)}")
                continue
            for i in columns:
                faults += [f"{name}, {headings[i]}: {what}"
                           for what in cell_faults((root / path).parent, row[i])]
    return faults, count


def check(root):
    root, faults, count = pathlib.Path(root), [], 0
    for path in tree.files(root):
        if path.suffix == ".md":
            found, tables_of_page = check_page(root, path, tree.text(root, path))
            faults, count = faults + found, count + tables_of_page
    print(f"{count} tables of tests")
    return faults if count else [*faults, "expected tables marked `<!-- tests: N rows -->`, found none"]


GOOD = "[`Zoo`](a_test.cpp) `good`, `each` (`one`, `two`); [`b_test`](b_test.py) `test_b`"
# A row of a table with two columns of tests, and what is said of it; None: nothing.
PLANTED = [
    (f"| 1 | {GOOD} | None: Python has no raw addresses. |", None),
    ("| 1 | [`Zoo`](a_test.cpp) | see [the zoo](b_test.py) |", None),
    (f"| 1 | {GOOD} | |", "is empty"),
    (f"| 1 | {GOOD} | None: |", "expected a reason"),
    (f"| 1 | {GOOD} | None |", "names no test"),
    (f"| 1 | {GOOD} | `test_b` |", "'test_b' stands behind no link"),
    ("| 1 | [`Zoo`](a_test.cpp) `gone` | [`b_test`](b_test.py) |", "a_test.cpp has no test 'gone' of Zoo"),
    ("| 1 | [`Zoo`](a_test.cpp) `goo` | [`b_test`](b_test.py) |", "a_test.cpp has no test 'goo' of Zoo"),
    ("| 1 | [`Zoo`](a_test.cpp) `each` (`one`, `three`) | [`b_test`](b_test.py) |", "a_test.cpp has no case 'three'"),
    ("| 1 | [`Farm`](a_test.cpp) | [`b_test`](b_test.py) |", "a_test.cpp has no Farm"),
    ("| 1 | [`Zoo`](c_test.cpp) `good` | [`b_test`](b_test.py) |", "c_test.cpp does not exist"),
    ("| 1 | [`Zoo`](a_test.cpp) | [`c_test`](b_test.py) `test_b` |", "b_test.py has no c_test"),
    ("| 1 | [`Zoo`](a_test.cpp) | [`b_test`](b_test.py) `test_c` |", "b_test.py has no test 'test_c'"),
    ("| 1 | [`checks`](checks.cpp) `twice`, `purity.order` | [`CMakeLists`](CMakeLists.txt) `Clean.room` |", None),
    ("| 1 | [`checks`](checks.cpp) `purityXorder` | [`a`](a.h) `A_WORD` |", "checks.cpp has no test 'purityXorder'"),
    ("| 1 | [`checks`](checks.cpp) | [`a`](a.h) `A_WOR` |", "a.h has no test 'A_WOR'"),
    ("| 1 | [`b`](a.h) `A_WORD` | [`a`](a.h) |", "a.h has no b"),
    ("| 1 | [`checks`](checks.cpp) | [`CMakeLists`](CMakeLists.txt) `Clean.roo` |", "CMakeLists.txt has no test 'Clean.roo'"),
    (f"| 2 | {GOOD} | {GOOD} |", "expected the number 1, found '2'"),
    (f"| 1 | {GOOD} |", "expected 3 cells, found 2"),
    (f"| 1 | {GOOD} | {GOOD} |\n| 2 | {GOOD} | {GOOD} |", "expected 1 rows, found 2"),
    ("", "expected 1 rows, found 0"),
]


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        (folder / "a_test.cpp").write_text('TEST_F(Zoo, good) {}\nTEST_P(\n    Zoo, each) {}\nCase{"one", 1}, {"two"};\n')
        (folder / "checks.cpp").write_text('constexpr Check kChecks[] = {\n    {"twice", "..."},\n    {"purity.order",\n')
        (folder / "a.h").write_text("#define A_WORD 1\n")
        (folder / "CMakeLists.txt").write_text("add_test(NAME Clean.room\n  COMMAND x)\n")
        (folder / "b_test.py").write_text("def test_b():\n    pass\n")
        for number, (rows, _) in enumerate(PLANTED):
            (folder / f"page{number}.md").write_text(
                f"<!-- tests: 1 rows -->\n| # | Test in C | Test in Python |\n|---|---|---|\n{rows}\n")
            with open(folder / f"rows{number}.csv", "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([["#", "Test in C", "Test in Python"], *map(cells, rows.splitlines())])
            (folder / f"other{number}.md").write_text(f"<!-- tests: 1 rows of rows{number}.csv -->\n")
        faults = check(folder)
        (folder / "empty").mkdir()
        if not check(folder / "empty"):
            wrong.append("a tree without tables was accepted")
    for number, (rows, wanted) in enumerate(PLANTED):
        for page in (f"page{number}.md:", f"other{number}.md:"):
            mine = [f for f in faults if f.startswith(page)]
            if len(mine) != (wanted is not None) or wanted and wanted not in mine[0]:
                wrong.append(f"{page} {rows!r}: expected {wanted}, found {mine}")
    return tree.report(wrong, f"{len(PLANTED)} planted tables")


if __name__ == "__main__":
    tree.main(__doc__, check, self_test, "tables of tests")

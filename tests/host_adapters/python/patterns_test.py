"""The usage patterns of patterns_*.py with te and msamp, their table docs/patterns.csv, and its page.

    python tests/host_adapters/python/patterns_test.py --write    # runs all, writes both

It takes about a minute, since it runs every pattern twice, some of them in a framework.
"""
import contextlib
import csv
import gc
import importlib
import io
import logging
import pathlib
import re
import sys
import traceback
import warnings

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]  # for --write; pytest does the same

import octavo  # noqa: E402  after the path
from conftest import msamp, te  # noqa: E402
from patterns import PATTERNS, Prepare  # noqa: E402

BACKENDS = {"te": te("delayed"), "msamp": msamp("O2")}
TABLE = HERE.parents[2] / "docs" / "patterns.csv"
PAGE = TABLE.with_suffix(".md")
MODULES = ("loops", "several", "optimizers", "steppers", "averages", "gradients", "clipping",
           "compile", "copies", "formats", "precision", "surgery", "parametrized", "quantizers",
           "peft", "func", "trainer", "trainer_after", "frameworks", "lightning", "distributed")
pytest.importorskip("torchao", reason="torchao is not installed: tests/environment/install.sh oracles")
for name in MODULES:
    importlib.import_module(f"patterns_{name}")
# Accelerate collects garbage at the end of each training, which takes 0.3 s with the objects of all
# these libraries. Those that exist now stay.
gc.freeze()
LONGEST = 110  # characters of an error in the table
START = 64  # characters of an error on the page
SHOWN = 2  # programs of an error on the page

INTRO = """# Usage patterns

Does your training program do more than `loss.backward()` and `optimizer.step()`? [patterns.csv](patterns.csv) has {count}
small programs, from early stopping to DDP with a communication hook, and the outcome of each with `te` (delayed scaling) and
`msamp` (level O2). One that works has losses close to those without Octavo, changes the right values, or is bit-identical; a
test runs each of them on the CPU.

| | works | refused |
|---|---:|---:|
{sums}

The others get an error that also tells what to do instead. One command runs all and writes this page and its table:

<!-- not run: trains {count} small programs with two backends, which takes two minutes -->
```sh
python tests/host_adapters/python/patterns_test.py --write
```
"""


def first_sentence(text):
    """The beginning of an error: a sentence, or its clauses that fit, without what varies."""
    text = re.sub(r"0x[0-9a-f]+", "0x...", re.sub(r"/tmp/\S+", "<folder>", " ".join(text.split())))
    text = re.split(r"(?<=[a-z0-9)\"'])\. ", text)[0].rstrip(".")
    if len(text) > LONGEST:
        clause = text[:LONGEST].rfind("; ")
        text = text[:clause] if clause > 0 else text[:LONGEST - 3].rsplit(" ", 1)[0] + "..."
    return text


def start(error):
    """The first clause of an error, of whole words and without the name of a layer of the program."""
    error = re.sub(r"^(parameter )?(\d+|\w+(?=\.weight))(\.weight)?: ", "", error).split("; ")[0]
    return error if len(error) <= START else error[:START - 3].rsplit(" ", 1)[0].rstrip(",;:.(") + "..."


def cell(text):
    """As Markdown shows it."""
    return re.sub(r"([|<*])", r"\\\1", text)


@contextlib.contextmanager
def quiet():
    """Frameworks advise and log; outcomes are what counts here."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def outcome(pattern, backend):
    """"works" or "refused: ...". Any other exception goes on."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    try:
        with quiet():
            pattern.run(Prepare(BACKENDS[backend]))
    except octavo.OctavoError as e:
        text = str(e).replace("the model's device (index 0)", "the CPU")  # in tests on a device
        return f"refused: {first_sentence(text)}"
    return "works"


def row(pattern):
    """The row of a pattern, after running it: its area and name, and the outcome with each backend."""
    return [pattern.area, pattern.name] + [outcome(pattern, backend) for backend in BACKENDS]


def listed(names):
    """The first programs of a row, and how many more the table has."""
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "; ".join(names[:SHOWN] + more)


def page(rows):
    """The whole page. An error that an earlier backend also gives is there only once."""
    sums, tables, seen = [], [], set()
    for place, backend in enumerate(BACKENDS, start=2):
        errors = [(found[place].removeprefix("refused: "), found[1]) for found in rows if found[place] != "works"]
        refused = {}
        for error, name in errors:
            if error not in seen:
                refused.setdefault(start(error), []).append(name)
        sums.append(f"| `{backend}` | {len(rows) - len(errors)} | {len(errors)} |")
        tables.append("\n".join(["", f"## What {backend} {'also ' if seen else ''}refuses", "", "| Error | You do |", "|---|---|",
                                 *(f"| {cell(error)} | {cell(listed(names))} |" for error, names in refused.items()), ""]))
        seen |= {error for error, _ in errors}
    return INTRO.format(count=len(rows), sums="\n".join(sums)) + "".join(tables)


def rows_of_table():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def put(rows):
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["area", "program", *BACKENDS], *rows])
    PAGE.write_text(page(rows), encoding="utf-8")


@pytest.mark.parametrize("pattern", PATTERNS, ids=[f"{p.area}: {p.name}" for p in PATTERNS])
def test_outcome_is_that_of_the_table(pattern):
    """After a change that is meant, run this file with --write."""
    assert [row(pattern)] == [found for found in rows_of_table() if found[:2] == [pattern.area, pattern.name]]


def test_table_and_page_have_these_programs_and_no_others():
    names = [[p.area, p.name] for p in PATTERNS]
    rows = rows_of_table()
    assert [found[:2] for found in rows] == names and len(set(map(tuple, names))) == len(names) >= 70
    assert PAGE.read_text(encoding="utf-8") == page(rows)


def write():
    """Runs all patterns and writes table and page. Returns the names of those that failed."""
    rows, failed = [], []
    for p in PATTERNS:
        try:
            rows.append(row(p))
        except Exception:
            failed.append(f"{p.area}: {p.name}")
            traceback.print_exc()
    if not failed:
        put(rows)
    return failed


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    wrong = write()
    if wrong:
        sys.exit("these patterns failed, so the page did not change:\n" + "\n".join(wrong))
    print(f"{PAGE}: {len(PATTERNS)} patterns")

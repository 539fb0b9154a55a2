"""The usage patterns of patterns_*.py with te and msamp, and their table, docs/patterns.md.

    python tests/host_adapters/python/patterns_test.py --write    # runs all, writes the page

It takes up to two minutes, since it runs every pattern twice, some of them in a framework.
"""
import contextlib
import gc
import importlib
import io
import logging
import os
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
PAGE = HERE.parents[2] / "docs" / "patterns.md"
MODULES = ("loops", "several", "optimizers", "steppers", "averages", "gradients", "clipping",
           "compile", "copies", "formats", "precision", "surgery", "parametrized", "quantizers",
           "peft", "func", "trainer", "trainer_after", "frameworks", "lightning", "distributed")
for name in MODULES:
    importlib.import_module(f"patterns_{name}")
# Accelerate collects garbage at the end of each training, which takes 0.3 s with the objects of all
# these libraries. Those that exist now stay.
gc.freeze()
# Of the patterns, every n-th is tried: all of them by default.
TRIED = PATTERNS[:: int(os.environ.get("PATTERNS_EVERY", "1"))]
LONGEST = 110  # characters of an error in the table

INTRO = """# Usage patterns

What happens when a training program does more than `loss.backward()` and `optimizer.step()`. Each
row is a small program in `tests/host_adapters/python/patterns_*.py`. The test `patterns_test.py`
runs it on the CPU with the backends `te` (delayed scaling) and `msamp` (level O2), and checks what
it did: its losses stay close to those of the same program without Octavo, the right values change,
or the bits are equal.

- **works**: the program has the effect that it has without Octavo.
- **refused**: Octavo raises an error. The table gives the start of its text; the rest says what
  to do instead.

One command runs the programs and writes this page:

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
    """The row of a pattern, after running it."""
    return f"| {cell(pattern.name)} | " + " | ".join(
        cell(outcome(pattern, backend)) for backend in BACKENDS) + " |"


def page(rows):
    """The whole page. rows: {(area, name): row}."""
    parts = [INTRO.format(count=len(PATTERNS))]
    for area in dict.fromkeys(p.area for p in PATTERNS):
        own = [rows[p.area, p.name] for p in PATTERNS if p.area == area]
        parts.append("\n".join(["", f"## {area}", "", "| You do | te | msamp |", "|---|---|---|",
                                *own, ""]))
    return "".join(parts)


def rows_of_page():
    """{(area, name): row} of docs/patterns.md."""
    rows, area = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            area = line[3:]
        elif line.startswith("| ") and not line.startswith("| You do "):
            rows[area, re.split(r"(?<!\\) \| ", line[2:])[0].replace("\\", "")] = line
    return rows


@pytest.mark.parametrize("pattern", TRIED, ids=[f"{p.area}: {p.name}" for p in TRIED])
def test_outcome_is_that_of_the_page(pattern):
    """After a change that is meant, run this file with --write."""
    assert row(pattern) == rows_of_page().get((pattern.area, pattern.name))


def test_page_has_these_rows_and_no_others():
    names = [(p.area, p.name) for p in PATTERNS]
    assert len(set(names)) == len(names) >= 70
    assert PAGE.read_text(encoding="utf-8") == page(rows_of_page())


def write():
    """Runs all patterns and writes the page. Returns the names of those that failed."""
    rows, failed = {}, []
    for p in PATTERNS:
        try:
            rows[p.area, p.name] = row(p)
        except Exception:
            failed.append(f"{p.area}: {p.name}")
            traceback.print_exc()
    if not failed:
        PAGE.write_text(page(rows), encoding="utf-8")
    return failed


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    wrong = write()
    if wrong:
        sys.exit("these patterns failed, so the page did not change:\n" + "\n".join(wrong))
    print(f"{PAGE}: {len(PATTERNS)} patterns")

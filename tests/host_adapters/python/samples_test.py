"""samples/python: each script runs, and differs from its plain twin by three lines at most."""
import difflib
import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

import torchrun

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"
SCRIPTS = ["pytorch", "ddp", "with_accelerate", "trainer", "with_lightning"]
# These run in the tests of their frameworks.
SHARDED = ["sharded_accelerate", "sharded_deepspeed", "sharded_lightning", "sharded_sft", "sharded_trainer"]
FP8_LAYERS = {"trainer": 14}  # of Llama: 7 in each of two blocks; others: 4 in each


def changed_lines(plain, fp8):
    """Lines that an editor would call added or changed; a removed one counts, too."""
    blocks = difflib.SequenceMatcher(None, plain, fp8, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def run(script, tmp_path, steps=6, path=None, arguments=None):
    done = subprocess.run(
        [sys.executable, "-B", str(script), "--steps", str(steps),
         *(["--folder", str(tmp_path / "out")] if arguments is None else arguments)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": path or os.environ["PATH"]})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def losses(output):
    return [float(v) for v in re.findall(r"\bloss (\d+\.\d+)", output)]


@pytest.mark.parametrize("name", SCRIPTS + SHARDED)
def test_three_lines_bring_fp8(name):
    plain, fp8 = ((FOLDER / part / f"{name}.py").read_text().splitlines()
                  for part in ("plain", "."))
    assert 1 <= changed_lines(plain, fp8) <= 3
    assert not any("octavo" in line for line in plain)


def test_changed_lines_are_counted():
    assert changed_lines(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert changed_lines(["a"], ["a", "b", "c", "d", "e"]) == 4
    assert changed_lines(["a", "b"], ["b"]) == 1


@pytest.fixture(scope="module")
def imported():
    """What takes seconds to import: each script runs in a fork."""
    for name in ("torch._dynamo", "accelerate", "lightning", "transformers.trainer"):
        importlib.import_module(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_versions_train(name, tmp_path, imported):
    plain, output = (torchrun.ranks_of(lambda folder, place=place: torchrun.printed(name, place, folder, steps=6), tmp_path,
                                       world=2 if name == "ddp" else 1)[0] for place in ("plain", "."))
    plain, fp8 = losses(plain), losses(output)
    assert len(plain) == len(fp8) > 0
    assert fp8[-1] == pytest.approx(plain[-1], rel=0.02)
    assert fp8 != plain
    layers = set(re.findall(r"^ +(\S+) .*\bfp8\b", output, re.M))
    assert len(layers) == FP8_LAYERS.get(name, 8), output


def test_the_first_run_reports_what_its_page_shows(tmp_path):
    output = run(FOLDER / "first_run.py", tmp_path, steps=1, arguments=[])
    assert len(losses(output)) == 1
    page = (FOLDER.parents[1] / "docs" / "first_run.md").read_text()
    shown = page[page.index("```text\n") + 8:].partition("```")[0].splitlines()
    reported = {" ".join(line.split()) for line in output.splitlines()}
    expected = [" ".join(line.split()) for line in shown if line.strip() != "..."]
    assert expected[0].startswith("48 of 48 linears in FP8"), page
    assert [line for line in expected if line not in reported] == [], output


def test_four_precisions_are_compared(tmp_path):
    programs = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin"
    output = run(FOLDER / "compare.py", tmp_path, path=f"{programs}:{os.environ['PATH']}")
    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines()[1:5]}
    assert list(rows) == ["fp32", "bf16", "te", "msamp"], output
    validation = {name: float(row[4]) for name, row in rows.items()}
    assert all(loss == pytest.approx(validation["fp32"], rel=0.02) for loss in validation.values())
    assert len({validation[name] for name in ("fp32", "te", "msamp")}) == 3, "each computes in another way"
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert '"recipe":"O2"' in page

"""The programs of *_programs.py, each with one of its arms in turn against its plain run. stranger.py says what is compared.

    python tests/strangers/strangers_test.py --measure [part of a name...]

STRANGERS names the families to run, divided by commas; without it, all of them. OCTAVO_SEED=1 begins with the next arm.
"""
import contextlib
import gc
import importlib
import io
import logging
import os
import pathlib
import sys
import traceback
import warnings

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "host_adapters" / "python")]

from stranger import PROGRAMS, faults, result  # noqa: E402  after the path
from torchrun import apart  # noqa: E402

PACKAGES = {"accelerate", "datasets", "diffusers", "ema_pytorch", "lightning", "lion_pytorch", "peft", "prodigyopt",
            "schedulefree", "sentence_transformers", "sklearn", "tokenizers", "torch_ema", "transformers", "trl",
            "x_transformers"}
FAMILIES = os.environ.get("STRANGERS") or ",".join(sorted(p.name[:-len("_programs.py")] for p in HERE.glob("*_programs.py")))
FAMILIES = FAMILIES.split(",")
MISSING = {}  # a family -> the package that it lacks
for group in ("trl", "strangers"):
    apart(group)
for family in FAMILIES:
    try:
        importlib.import_module(f"{family}_programs")
    except ModuleNotFoundError as e:
        if e.name.partition(".")[0] not in PACKAGES:
            raise
        MISSING[family] = f"{e.name} is not installed: tests/environment/install.sh ecosystem trl strangers"
gc.freeze()  # frameworks collect garbage at the end of a training, which takes long with all their objects
if len(MISSING) == len(FAMILIES) and "pytest" in sys.argv[0]:
    pytest.exit("skipped: " + "; ".join(sorted({*MISSING.values()})), returncode=77)


@contextlib.contextmanager
def quiet():
    """Frameworks advise and log; figures are what counts here."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


SEED = int(os.environ.get("OCTAVO_SEED", "0"))


@pytest.mark.parametrize("what, arm", [(p, p.arms[(i + SEED) % len(p.arms)]) for i, p in enumerate(PROGRAMS)], ids=str)
def test_it_comes_to_what_plain_torch_comes_to(what, arm):
    with quiet():
        expected, found = result(what, None), result(what, arm)
    wrong = faults(what, found, expected)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_packages_of_a_family_are_installed(family):
    if family in MISSING:
        pytest.skip(MISSING[family])


def measure(parts):
    """Prints each program's figures, plain with two seeds and by arm, and what is wrong."""
    for what in PROGRAMS:
        if parts and not any(p in str(what) for p in parts):
            continue
        try:
            with quiet():
                runs = {"plain": result(what, None), "plain, seed 1": result(what, None, 1)}
        except Exception:
            print(f"{what}: {traceback.format_exc(limit=-3)}", flush=True)
            continue
        apart_by = max(abs(runs["plain, seed 1"].figures[k] - v) / abs(v) for k, v in runs["plain"].figures.items())
        print(f"{what}: two seeds {apart_by:.3f} apart, within {what.within:.3f}", flush=True)
        for arm in what.arms:
            try:
                with quiet():
                    runs[arm] = result(what, arm)
            except Exception:
                print(f"  {arm:14} WRONG {traceback.format_exc(limit=-3)}", flush=True)
        for name, found in runs.items():
            print(f"  {name:14}", {k: round(v, 5) for k, v in found.figures.items()}, flush=True)
            for text in faults(what, found, runs["plain"]) if name in what.arms else ():
                print(f"    WRONG {text}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--measure"]:
        sys.exit(__doc__)
    measure(sys.argv[2:])

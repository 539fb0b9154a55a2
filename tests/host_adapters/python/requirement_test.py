"""Importing octavo.torch refuses a torch that it cannot work with, before anything is done with it."""
import subprocess
import sys

import pytest

HIDDEN = "import sys; sys.modules['torch'] = None; "
OTHER = "import sys, types; sys.modules['torch'] = torch = types.ModuleType('torch'); torch.__path__ = ['/there']; torch.__version__ = {!r}; "


def imported(first):
    return subprocess.run([sys.executable, "-B", "-c", first + "import octavo; print(octavo.version()); octavo.prepare"],
                          text=True, capture_output=True)


@pytest.mark.parametrize("first, found, remedy", [
    (HIDDEN, "none", "'torch>=2.11,<3.0'"),
    (OTHER.format("2.10.1+cpu"), "2.10.1+cpu in /there", "'torch>=2.11,<3.0'"),
    (OTHER.format("3.0.0a0+git"), "3.0.0a0+git in /there", "'torch>=2.11,<3.0'")])
def test_a_torch_that_does_not_fit_is_named(first, found, remedy):
    said = imported(first)
    assert said.returncode == 1
    assert said.stdout.strip(), "octavo itself needs no torch"
    assert said.stderr.splitlines()[-1] == (
        f"ImportError: octavo.torch: expected torch 2.11 or later, below 3.0, found {found}; run `python -m pip install {remedy}`")


def test_a_torch_that_fits_is_taken():
    said = imported("import torch; ")
    assert said.returncode == 0, said.stderr

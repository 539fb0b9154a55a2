"""Installations with something missing: what the user is told."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

CODE = """
import sys, torch, octavo
try:
    octavo.prepare(torch.nn.Linear(4, 4), None, overrides={"fp8.backend": "te"})
except octavo.OctavoError as e:
    print(type(e).__name__, e)
else:
    print("prepared")
"""


@pytest.fixture
def installation(tmp_path):
    """A copy of the libraries and plugins, to take pieces from."""
    source = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"])
    target = tmp_path / "lib"
    target.mkdir()
    for name in ("liboctavo.so", "liboctavo_torch_ops.so"):
        shutil.copy(source / name, target / name)
    os.symlink("liboctavo.so", target / "liboctavo.so.1")
    shutil.copytree(source / "octavo" / "plugins", target / "octavo" / "plugins")
    return target


def said(folder, cwd=None):
    environment = {**os.environ, "OCTAVO_LIBRARY_DIR": str(folder),
                   "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-B", "-c", CODE], env=environment, text=True,
                          capture_output=True, check=True, cwd=cwd)
    return done.stdout


def test_complete_copy_works(installation):
    assert said(installation) == "prepared\n"


def test_relative_folder(installation):
    assert said("lib", cwd=installation.parent) == "prepared\n"


def test_missing_liboctavo(installation):
    (installation / "liboctavo.so").unlink()
    text = said(installation)
    assert text.startswith("ResourceError liboctavo.so: expected it in")
    assert "install the wheel of octavo, or set OCTAVO_LIBRARY_DIR" in text


def test_missing_op_library(installation):
    (installation / "liboctavo_torch_ops.so").unlink()
    assert said(installation).startswith("ResourceError liboctavo_torch_ops.so: expected it in")


def test_damaged_liboctavo(installation):
    (installation / "liboctavo.so").write_bytes(b"no library")
    assert said(installation).startswith("ResourceError")


def test_missing_plugin(installation):
    for file in (installation / "octavo" / "plugins").glob("te*"):
        file.unlink()
    text = said(installation)
    assert "Error" in text and "te" in text and "Traceback" not in text


def test_plugin_of_another_abi(installation):
    manifest = installation / "octavo" / "plugins" / "te.octavo-plugin.toml"
    text = manifest.read_text()
    assert "major = 1" in text
    manifest.write_text(text.replace("major = 1", "major = 2"))
    answer = said(installation)
    assert "Error" in answer and "ABI" in answer and "2.0" in answer

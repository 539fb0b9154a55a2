"""Installations with something missing: what the user is told."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

# In a fork for each installation, since an import of torch takes longer than all that follows.
DRIVER = """
import contextlib, json, os, sys, traceback
import torch
import octavo

for folder, library in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        with open(folder + "/said", "w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            try:
                os.chdir(folder)
                os.environ["OCTAVO_LIBRARY_DIR"] = library
                octavo.prepare(torch.nn.Linear(4, 4), None, overrides={"fp8.backend": "te"})
                print("prepared")
            except octavo.OctavoError as e:
                print(type(e).__name__, e)
            except BaseException:
                traceback.print_exc()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, folder
"""


def of_another_abi(folder):
    manifest = folder / "octavo" / "plugins" / "te.octavo-plugin.toml"
    text = manifest.read_text()
    assert "major = 1" in text
    manifest.write_text(text.replace("major = 1", "major = 2"))


def without_te(folder):
    for file in (folder / "octavo" / "plugins").glob("te*"):
        file.unlink()


# What is changed in a copy of the libraries and plugins.
CHANGES = {"complete": lambda folder: None, "relative": lambda folder: None,
           "missing_liboctavo": lambda folder: (folder / "liboctavo.so").unlink(),
           "missing_op_library": lambda folder: (folder / "liboctavo_torch_ops.so").unlink(),
           "damaged_liboctavo": lambda folder: (folder / "liboctavo.so").write_bytes(b"no library"),
           "missing_plugin": without_te, "plugin_of_another_abi": of_another_abi}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """change -> what a program said there."""
    source, root = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]), tmp_path_factory.mktemp("installations")
    for name, change in CHANGES.items():
        target = root / name / "lib"
        target.mkdir(parents=True)
        for library in ("liboctavo.so", "liboctavo_torch_ops.so"):
            shutil.copy(source / library, target / library)
        os.symlink("liboctavo.so", target / "liboctavo.so.1")
        shutil.copytree(source / "octavo" / "plugins", target / "octavo" / "plugins")
        change(target)
    cases = [(str(root / name), "lib" if name == "relative" else str(root / name / "lib")) for name in CHANGES]
    subprocess.run([sys.executable, "-B", "-c", DRIVER], env={**os.environ, "LD_LIBRARY_PATH": "lib"}, text=True, check=True,
                   input=json.dumps(cases), cwd=root / "complete")
    return {name: (root / name / "said").read_text() for name in CHANGES}


def test_complete_copy_works(said):
    assert said["complete"] == "prepared\n"


def test_relative_folder(said):
    assert said["relative"] == "prepared\n"


def test_missing_liboctavo(said):
    text = said["missing_liboctavo"]
    assert text.startswith("ResourceError liboctavo.so: expected it in")
    assert "install the wheel of octavo, or set OCTAVO_LIBRARY_DIR" in text


def test_missing_op_library(said):
    assert said["missing_op_library"].startswith("ResourceError liboctavo_torch_ops.so: expected it in")


def test_damaged_liboctavo(said):
    assert said["damaged_liboctavo"].startswith("ResourceError")


def test_missing_plugin(said):
    text = said["missing_plugin"]
    assert "Error" in text and "te" in text and "Traceback" not in text


def test_plugin_of_another_abi(said):
    text = said["plugin_of_another_abi"]
    assert "Error" in text and "ABI" in text and "2.0" in text

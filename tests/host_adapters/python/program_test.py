"""`python -m octavo`: the program `octavo` of the same installation."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from octavo import __main__ as program


def octavo(*words, **environment):
    return subprocess.run([sys.executable, "-B", "-m", "octavo", *words], env={**os.environ, **environment},
                          text=True, capture_output=True)


def test_it_is_the_program_of_this_installation():
    said = octavo("--version")
    assert (said.returncode, said.stderr) == (0, "")
    own = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin/octavo"
    assert said.stdout == subprocess.run([own, "--version"], text=True, capture_output=True).stdout


def test_exit_codes_and_arguments_arrive():
    said = octavo("check", "--set", "fp8.backend=none of these")
    assert said.returncode == 1
    assert 'no backend "none of these" is installed' in said.stdout
    assert octavo("no-such-command").returncode == 2


def test_doctor_asks_this_python():
    found = json.loads(octavo("doctor", "--json").stdout)["python"]
    assert found["program"] == sys.executable
    assert found["package"] == str(pathlib.Path(program.__file__).parent)


@pytest.mark.parametrize("given, expected", [
    ([], []), (["plugin", "list", "--json"], ["plugin", "list", "--json"]),
    (["doctor"], ["doctor", "--python", "P"]), (["doctor", "--json"], ["doctor", "--json", "--python", "P"]),
    (["doctor", "--python", "Q"], ["doctor", "--python", "Q"]), (["doctor", "--python=Q"], ["doctor", "--python=Q"])])
def test_which_python_is_asked(given, expected):
    assert program.arguments(given, "P") == expected


def test_plugins_of_installed_packages_are_found(tmp_path):
    lib = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"])
    package = tmp_path / "octavo_mine"
    info = tmp_path / "octavo_mine-1.0.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").touch()
    for name in ("msamp.so", "msamp.octavo-plugin.toml"):
        shutil.copy2(lib / "octavo/plugins" / name, package)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: octavo-mine\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[octavo.backends]\nmine = octavo_mine\n")
    said = octavo("plugin", "list", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    assert said.returncode == 0, said.stderr
    assert f"{package}/msamp.octavo-plugin.toml (given by the host)" in said.stdout


def test_which_commands_search_for_plugins():
    said = octavo("completion", "bash").stdout
    commands = dict(re.findall(r"^    '([\w -]+)'\).* options='([^']*)'", said, re.M))
    assert len(commands) > len(program.SEARCHING)
    searching = {name for name, options in commands.items() if "--plugin-dir" in options.split()}
    assert searching == set(program.SEARCHING)


def test_an_installation_without_the_program(tmp_path):
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "liboctavo.so").touch()
    said = octavo("--version", OCTAVO_LIBRARY_DIR=str(lib))
    assert said.returncode == 3
    assert said.stderr == (f"error: octavo: expected the program {lib}/octavo/octavo or {tmp_path}/bin/octavo, "
                           "found none; install the wheel of octavo again\n")

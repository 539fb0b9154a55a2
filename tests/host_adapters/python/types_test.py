"""A user's program under the type checkers: octavo's annotations are seen, and name what is wrong. Both checkers are optional:
pip install mypy pyright. mypy reads the sources of torch once, which takes most of a minute."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

import octavo

PROGRAM = '''
import torch

import octavo
import octavo.torch
from octavo import Config


class Gpt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 8)


model = Gpt()
optimizer = torch.optim.AdamW(model.parameters())
model, joined = octavo.prepare(model, optimizer, recipe="te.block", skip=["*head*"], record_every_n_steps=25)
reveal_type(model)
reveal_type(joined)
octavo.prepare(model, None, {"fp8": {"backend": "te"}}, module_filter=lambda module, name: name != "head")
octavo.prepare(model, config=Config(text=""), fsdp_gather="fp8")
report = octavo.report(model)
report.assert_fp8(min_layers=1)
reveal_type(report.fp8)
reveal_type(octavo.explain().to_dict())
with octavo.disabled(model, "up"), octavo.full_state(model, to=0):
    torch.save({"model": model.state_dict(), "octavo": octavo.state_dict(model)}, "path")
octavo.load_state_dict(model, torch.load("path")["octavo"])
reveal_type(octavo.join(model, optimizer))
reveal_type(octavo.clip_grad_norm_(model, 1.0))
octavo.export(model, "folder")
reveal_type(octavo.version())
reveal_type(octavo.restore(model))
'''
REVEALED = ["Gpt", "AdamW", "list[str]", "dict[str, Any]", "Optimizer", "Tensor", "str", "Gpt"]
WRONG = '''
import octavo
octavo.prepare(3)
octavo.report("model")
octavo.Config(path=3)
octavo.nothing
'''


def checked(tool, source, tmp_path):
    """(exit code, lines) of a type checker on a program, which sees the package as an installed one."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed for {sys.executable}: pip install {tool}")
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(source))
    folder = pathlib.Path(octavo.__file__).parents[1]
    options = ["--follow-imports=silent", "--cache-dir", str(tmp_path.parent / "types")] if tool == "mypy" else [
        "--pythonpath", sys.executable]
    done = subprocess.run([sys.executable, "-m", tool, *options, str(path)], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "program.py:" in line]
    return done.returncode, lines


@pytest.mark.parametrize("tool", ("mypy", "pyright"))
def test_a_users_program_is_clean_and_its_types_are_known(tool, tmp_path):
    code, lines = checked(tool, PROGRAM, tmp_path)
    assert not [line for line in lines if " error" in line], lines
    assert code == 0, lines
    revealed = [re.search(r'(?:Revealed type is|Type of ".*" is) "(.*)"', line) for line in lines]
    found = [re.sub(r"\b(?:\w+\.)+", "", m[1]) for m in revealed if m]
    assert [name.replace("builtins.", "") for name in found] == REVEALED


@pytest.mark.parametrize("tool", ("mypy", "pyright"))
def test_wrong_arguments_are_found(tool, tmp_path):
    _, lines = checked(tool, WRONG, tmp_path)
    at = {int(re.search(r"program\.py:(\d+)", line)[1]) for line in lines if " error" in line}
    assert at >= {3, 4, 5}, lines


def test_the_package_says_that_it_has_types_and_which_names():
    assert (pathlib.Path(octavo.__file__).parent / "py.typed").is_file()
    assert set(octavo.__all__) <= set(dir(octavo)) and all(hasattr(octavo, name) for name in octavo.__all__)


@pytest.mark.parametrize("name", [name for name in octavo.__all__ if name[0].islower() and name != "debug"])
def test_every_public_function_is_annotated_and_has_an_example(name):
    function = getattr(octavo, name)
    function = getattr(function, "__wrapped__", function)
    assert "return" in function.__annotations__
    arguments = function.__code__.co_varnames[:function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    assert set(arguments) <= set(function.__annotations__), arguments
    if arguments:
        assert ("Args:" in function.__doc__ or "as in explain" in function.__doc__) and ">>> " in function.__doc__

"""Mistakes of users, in Python and on the command line, with the whole answer to each, as a user reads it.

An answer begins with the cause, and says what was expected, what was found, where, and what to do."""
import os
import pathlib
import re
import subprocess

import pytest
import torch
from torch import nn

import octavo

SEARCHED = r"found: looked for \S+\.octavo-plugin\.toml in .*next to liboctavo\)"
TE = '"delayed", "current", "block", "mx", "nvfp4" or "rowwise"'
NOT_PREPARED = "ModuleDict: expected a model that octavo.prepare returned, found one that was not prepared"
NO_FP8 = ("the model: expected at least one linear layer that runs in FP8, found none ({}); change the model, module_filter or "
          'the configuration, or set mixed_precision = "bf16"')


def model_of():
    return nn.ModuleDict({"body": nn.Linear(32, 32), "up": nn.Linear(32, 32), "lm_head": nn.Linear(32, 32)})


def adamw(model):
    return torch.optim.AdamW(model.parameters())


def prepared(**arguments):
    return octavo.prepare(model_of(), **arguments)[0]


def overridden(key, value):
    return lambda: prepared(overrides={key: value})


# Files of the folder in which every mistake is made.
FILES = {"wrong.toml": '[fp8]\nbakend = "te"\n[fp8.te]\nmargin = 99\n',
         "two.toml": '[fp8.te]\nmargn = 1\nrecipe = "blok"\n', "unquoted.toml": "[fp8]\nbackend = te\n",
         "accelerate.yaml": "mixed_precision: fp8\nfp8_config:\n  margn: 1\n", "ds.json": '{"train_batch_size": 8}',
         "empty.json": "{}", "taken/octavo.toml": "schema = 1\n"}

IN_PYTHON = {
    "a class": (lambda: octavo.prepare(nn.Linear),
                "model: expected a torch.nn.Module, found the class Linear; give an object of it"),
    "a list of layers": (lambda: octavo.prepare([nn.Linear(4, 4)]), "model: expected a torch.nn.Module, found list"),
    "optimizer first": (lambda: octavo.prepare(adamw(model_of()), model_of()),
                        "model: expected a torch.nn.Module, found AdamW"),
    "optimizer's class": (lambda: octavo.prepare(model_of(), torch.optim.AdamW),
                          "optimizer: expected a torch.optim.Optimizer or None, found the class AdamW; give an object of it"),
    "optimizer of another model": (
        lambda: octavo.prepare(model_of(), adamw(model_of())),
        "optimizer: expected parameters of this model, found 6 of another one; create the optimizer from model.parameters()"),
    "compiled first": (lambda: octavo.prepare(torch.compile(model_of())),
                       "model: expected the plain model, found OptimizedModule; call octavo.prepare before wrapping or "
                       "compiling it"),
    "misspelt recipe": (lambda: prepared(recipe="te.dealyed"),
                        f'override: fp8.te.recipe: expected {TE}, found "dealyed"; did you mean "delayed"?'),
    "recipe of no backend": (lambda: prepared(recipe="tensorwise"),
                             'tensorwise: no backend "tensorwise" is installed; found msamp, reference and te\n'
                             f"    {SEARCHED}\n"
                             "    remedy: install the plugin, or name its directory in OCTAVO_PLUGIN_PATH or plugins.path\n"
                             "  fp8.fallback is empty, so nothing else was tried"),
    "misspelt backend": (lambda: prepared(recipe="tee.block"),
                         'override: table [fp8.tee]: no backend "tee" is installed; did you mean [fp8.te]?'),
    "level": (lambda: prepared(recipe="msamp.O4"),
              'override: fp8.msamp.opt_level: expected "O1", "O2" or "O3", found "O4"; did you mean "O1"?'),
    "misspelt file": (lambda: prepared(config="wrongg.toml"),
                      r"\S+/wrongg.toml: cannot be read: No such file or directory; check the path and its permissions; did "
                      r'you mean "\S+/wrong.toml"\?'),
    "wrong file": (lambda: prepared(config="wrong.toml"),
                   r'\S+/wrong.toml:2:1: unknown key "fp8.bakend"; did you mean "fp8.backend"\?'),
    "two wrong options": (lambda: prepared(config="two.toml"),
                          r'\S+/two.toml:2:1: unknown key "fp8.te.margn"; did you mean "fp8.te.margin"\?' + "\n"
                          rf'\S+/two.toml:3:1: fp8.te.recipe: expected {TE}, found "blok"; did you mean "block"\?'),
    "misspelt key of a dict": (lambda: prepared(config={"fp8": {"bakend": "te"}}),
                               'config: unknown key "fp8.bakend"; did you mean "fp8.backend"?'),
    "a set": (lambda: prepared(config={"te"}),
              "config: expected the path of an octavo.toml, a dict, an octavo.Config or None, found set"),
    "TOML as a path": (lambda: prepared(config='[fp8]\nbackend = "te"\n'),
                       "config: expected the path of an octavo.toml, found a text of 2 lines; for TOML give "
                       "octavo.Config(text=...)"),
    "misspelt keyword": (lambda: prepared(recipes="te.block"),
                         "octavo.prepare: unknown keyword recipes=; did you mean recipe=?"),
    "keyword of another library": (
        lambda: prepared(amax_compute_algo="max"),
        r"octavo.prepare: unknown keyword amax_compute_algo=; expected model=, optimizer=, config=, \S.*functional="),
    "patterns as a filter": (lambda: prepared(module_filter="*head*"),
                             "module_filter: expected a function of (module, name) or None, found '*head*'; give patterns of "
                             "names to skip"),
    "gpu as a device": (overridden("device.kind", "gpu"),
                        r'te: no kernels for gpu are installed\n    found: .*\n    remedy: did you mean "cuda"\?\n.*'),
    "misspelt override": (overridden("fp8.te.margn", 1),
                          'override: unknown key "fp8.te.margn"; did you mean "fp8.te.margin"?'),
    "override out of range": (overridden("fp8.te.margin", 99), "override: fp8.te.margin: expected 0 to 30, found 99"),
    "override of another type": (overridden("fp8.te.margin", "two"),
                                 'override: fp8.te.margin: expected an integer, found a text ("two")'),
    "override without a value": (overridden("fp8.te.margin", None),
                                 "overrides: fp8.te.margin: expected a bool, int, float or str, found NoneType None"),
    "overrides as a list": (lambda: prepared(overrides=["fp8.te.margin=1"]),
                            'overrides: expected a dict of dotted keys, such as {"fp8.te.margin": 1}, found list '
                            "['fp8.te.margin=1']"),
    "precision in capitals": (overridden("fp8.fallback", ["BF16"]),
                              'override: fp8.fallback: expected "bf16", found "BF16"'),
    "rule without an effect": (overridden("layers.rule.0.match", "up"),
                               "override: layers.rule.0: expected place or options of a backend "
                               "(fp8.<backend>.<option>), found neither"),
    "skip as a text": (lambda: prepared(skip="*head*"),
                       "skip: expected a list of patterns of names, such as [\"*head*\"], found '*head*'"),
    "a head alone": (lambda: octavo.prepare(nn.ModuleDict({"head": nn.Linear(32, 32)})),
                     NO_FP8.format('head: runs in the host: layers.skip names it (pattern "*head*", default)')),
    "no linears": (lambda: octavo.prepare(nn.Sequential(nn.Conv2d(3, 3, 3))), NO_FP8.format("it has no linear layers")),
    "float64": (lambda: octavo.prepare(model_of().double()),
                "the model: expected linear weights in float32, bfloat16 or float16, found body: torch.float64; up: "
                "torch.float64; lm_head: torch.float64; call model.float() or model.bfloat16() first"),
    "a number as text": (lambda: prepared(record_every_n_steps="25"),
                         "record_every_n_steps: expected a number of steps from 0, found '25'"),
    "gather": (lambda: prepared(fsdp_gather="FP8"), "fsdp_gather: expected \"values\" or \"fp8\", found 'FP8'"),
    "report too early": (lambda: octavo.report(model_of()), NOT_PREPARED),
    "state too early": (lambda: octavo.state_dict(model_of()), NOT_PREPARED),
    "state of another library": (lambda: octavo.load_state_dict(prepared(), {"x": torch.zeros(1)}),
                                 "the state: expected the entry 'octavo.metadata', found none; load the result of "
                                 "octavo.state_dict"),
    "width of x": (lambda: prepared()["body"](torch.randn(3, 31)),
                   "linear body: x: expected float32, bfloat16 or float16 on the CPU, where the model was prepared, with a "
                   "last dimension of 32, found float32 with a last dimension of 31"),
}

ON_THE_COMMAND_LINE = {
    "chekc": 'error: unknown command "chekc"; did you mean "check"? octavo --help lists the commands',
    "check --jsn": 'error: octavo check: unknown option "--jsn"; did you mean "--json"?',
    "check --set fp8.te": 'error: octavo check: --set: expected KEY=VALUE, found "fp8.te"',
    "check --plugin-dir nowhere": 'error: octavo check: --plugin-dir: expected a directory, found none called "nowhere"',
    "config show wrongg.toml": 'error: wrongg.toml: cannot be read: No such file or directory; check the path and its '
                               'permissions; did you mean "wrong.toml"?',
    "config show two.toml": 'error: two.toml:2:1: unknown key "fp8.te.margn"; did you mean "fp8.te.margin"?\n'
                            f'error: two.toml:3:1: fp8.te.recipe: expected {TE}, found "blok"; did you mean "block"?',
    "config show unquoted.toml":
        'error: unquoted.toml:2:12: not valid TOML: a text stands in quotes; did you mean `backend = "te"`?',
    "config shwo": 'error: octavo config: unknown command "shwo"; did you mean "show"? octavo config --help lists the commands',
    "init --yes --recipe fast": f'error: --recipe: expected {TE}, found "fast"',
    "init --yes --output taken/octavo.toml": "error: taken/octavo.toml exists already; use --force to overwrite it, or "
                                             "--output to write another file",
    "init --from accelerate.yaml": 'error: accelerate.yaml:3:3: unknown key "fp8_config.margn"; did you mean "margin"?',
    "init --from ds.json": 'error: ds.json: expected bf16, fp16, fp8 or msamp with "enabled": true, found none, which means '
                           'mixed_precision: no; where it is "auto", import the config.yaml of the launcher',
    "init --kwargs TERecipe margin=1": "error: octavo init: --kwargs: expected TERecipeKwargs, MSAMPRecipeKwargs, "
                                       'AORecipeKwargs or FP8RecipeKwargs, found "TERecipe"',
    "estimate empty.json": "error: empty.json: expected model_type of a config.json, or linears and parameters of a shapes "
                           "file (page estimate), found none of them",
    "plugin new UPPER --lang cpp": "error: octavo plugin new: name: expected 1 to 64 characters of a-z 0-9 _ . -, found "
                                   '"UPPER"',
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def check_answer(found, expected):
    """expected: the text, or a regular expression."""
    assert found == expected or re.fullmatch(expected, found), f"expected:\n{expected}\nfound:\n{found}"


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_in_python(mistake):
    make, expected = IN_PYTHON[mistake]
    with pytest.raises(octavo.OctavoError) as raised:
        make()
    check_answer(str(raised.value), expected)


@pytest.mark.parametrize("arguments", ON_THE_COMMAND_LINE)
def test_on_the_command_line(arguments):
    program = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / "bin/octavo"
    done = subprocess.run([program, *arguments.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    check_answer(done.stderr.removesuffix("\n"), ON_THE_COMMAND_LINE[arguments])


def test_there_are_enough():
    assert len(IN_PYTHON) + len(ON_THE_COMMAND_LINE) >= 40

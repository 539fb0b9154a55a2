"""The package changes no class and no module of another package, but in a program that octavo run starts: it writes to none
of their attributes. A search of the syntax trees, which a planted line shows to work, and a process that looks."""
import ast
import pathlib
import subprocess
import sys

import pytest
import torch

import octavo
from conftest import msamp, te

PACKAGE = pathlib.Path(octavo.__file__).parent
FOREIGN = {"torch", "transformers", "accelerate", "lightning", "pytorch_lightning", "peft",
           "safetensors", "numpy", "torchao"}


def foreign_names(tree):
    """Names that an import statement binds to something of another package."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in FOREIGN:
                    names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if (node.module or "").partition(".")[0] in FOREIGN:
                names.update(alias.asname or alias.name for alias in node.names)
    # What is assigned from such a name is foreign, too: aten = torch.ops.aten.
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Attribute, ast.Name)):
            if root(node.value) in names:
                names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def root(node):
    """`torch` of torch.nn.Linear.forward and of torch.nn.__dict__["x"]; None without a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def targets(node):
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        found = [node.target]
    elif isinstance(node, ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.With):
        found = [item.optional_vars for item in node.items if item.optional_vars]
    else:
        return []
    flat = []
    while found:
        t = found.pop()
        if isinstance(t, (ast.Tuple, ast.List)):
            found.extend(t.elts)
        else:
            flat.append(t)
    return flat


def writes(source):
    """[(line, text)] of writes to attributes or items of what was imported from elsewhere."""
    tree = ast.parse(source)
    names = foreign_names(tree)
    out = []
    for node in ast.walk(tree):
        for t in targets(node):
            if isinstance(t, (ast.Attribute, ast.Subscript)) and root(t) in names:
                out.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
                node.func, "id", "")
            is_write = name in ("setattr", "delattr", "__setattr__", "update", "setdefault")
            of_items = name in ("update", "setdefault") and isinstance(node.func, ast.Attribute)
            target = node.func.value if of_items else node.args[0]
            if is_write and root(target) in names:
                out.append((node.lineno, ast.unparse(node)))
    return out


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")),
                         ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_foreign_is_written(path):
    assert writes(path.read_text()) == []


@pytest.mark.parametrize("planted", [
    "import torch\ntorch.nn.Linear.forward = None",
    "from torch import nn\nnn.Linear.forward = None",
    "from torch.nn import Linear as L\nL.forward, x = None, 1",
    "import transformers\nsetattr(transformers.Trainer, 'log', None)",
    "from accelerate import Accelerator\ntype.__setattr__(Accelerator, 'prepare', None)",
    "import lightning.pytorch as pl\npl.Trainer.fit = None",
    "import torch\naten = torch.ops.aten\naten.x = 1",
    "import torch\ntorch.nn.__dict__.update(x=1, **{}) or torch.nn.__dict__.update({})",
    "import torch\ntorch.backends.mkldnn.enabled += 1",
    "import torch\ndel torch.nn.Linear",
])
def test_a_planted_write_is_found(planted):
    assert writes(planted)


@pytest.mark.parametrize("allowed", [
    "import torch\nmodel = make()\nmodel.__class__ = torch.nn.Linear",
    "import torch\nx = torch.empty(3)\nx[0] = 1\nx.grad = None",
    "class Linear:\n    pass\nLinear.forward = None",
    "import torch\nclass A(torch.nn.Linear):\n    forward = None",
])
def test_what_is_not_foreign_is_allowed(allowed):
    assert writes(allowed) == []


def snapshot():
    """{class: its attributes} of what a conversion comes near."""
    classes = [c for module in (torch.nn, torch.optim, torch.optim.lr_scheduler)
               for c in vars(module).values() if isinstance(c, type)]
    classes += [torch.Tensor, torch.nn.Parameter, torch.autograd.Function,
                torch.nn.parallel.DistributedDataParallel]
    state = {c.__qualname__: {k: id(v) for k, v in vars(c).items() if k not in CACHES}
             for c in classes}
    state["functional"] = {k: id(v) for k, v in vars(torch.nn.functional).items()}
    return state


# Written by Python itself: a class of abstract methods, a subclass that is made.
CACHES = {"__abstractmethods__", "_abc_impl", "__doc__"}


@pytest.mark.parametrize("overrides", [te("delayed"), msamp("O2")], ids=["te", "msamp"])
def test_classes_of_torch_are_untouched_by_training(overrides):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))
    optimizer = torch.optim.AdamW(model.parameters())  # torch wraps `step` of a class at its first
    before = snapshot()
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=overrides)
    model(torch.randn(4, 16)).sum().backward()
    octavo.clip_grad_norm_(model, 1.0)
    optimizer.step()
    octavo.load_state_dict(model, octavo.state_dict(model))
    assert snapshot() == before


def test_a_class_that_changed_is_found():
    before = snapshot()
    torch.nn.Linear.planted = 1
    try:
        assert snapshot() != before
    finally:
        del torch.nn.Linear.planted
    assert snapshot() == before


def test_octavo_run_changes_nothing_before_it_runs_a_program():
    """It writes to modules that it is handed, which the search does not see: it may do so in a program alone."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = subprocess.run([sys.executable, "-B", "-c", """
import os, sys
variables, finders = dict(os.environ), list(sys.meta_path)
import octavo.run
octavo.run.Program()
assert variables == dict(os.environ) and finders == sys.meta_path
import accelerate, transformers
before = accelerate.Accelerator, transformers.Trainer.__init__
import octavo.accelerate, octavo.transformers
assert before == (accelerate.Accelerator, transformers.Trainer.__init__)
assert before[0].__module__ == "accelerate.accelerator" and before[1].__module__ == "transformers.trainer"
"""], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_was_searched():
    searched = {p.stem for p in PACKAGE.rglob("*.py")}
    assert {"prepare", "linear", "accelerate", "transformers", "lightning", "ddp"} <= searched

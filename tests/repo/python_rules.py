"""What Python files may import: the folder rules, and no circles; and who writes a session's state of steps.
include_rules.py runs this.

An import counts wherever it stands: at the top of a module, inside a function, or as a literal given
to importlib.import_module. Imports under `if TYPE_CHECKING:` never run, so they close no circle. The
`__init__` of a package that an import passes on its way to a submodule does not count either.
"""
import ast
import pathlib
import re
import sys

import tree

# Modules of this tree that another folder may import by name -> the folder that has them.
SHARED = {"octavo": "host_adapters/python", "check_elf": "sdk/cli", "tiny_gpt": "samples/python",
          "byte_gpt": "samples/python"}


class Rule:
    """What the Python files under one folder may import, in addition to the standard library and
    the folder itself."""

    def __init__(self, uses=(), only=None):
        self.uses = set(uses)
        self.only = only or {}  # package or area -> pattern of the paths inside the folder


RULES = {
    # `import octavo` loads no framework: each one is for the files that adapt it.
    "host_adapters/python": Rule(only={
        "torch": r"octavo/(torch/.*|accelerate\.py|deepspeed\.py|lightning\.py)", "lightning": r"octavo/lightning\.py",
        "accelerate": r"octavo/accelerate\.py", "deepspeed": r"octavo/deepspeed\.py", "jax": r"octavo/jax/.*",
        "flax": r"octavo/jax/(linen|nnx|serialization)\.py", "optax": r"octavo/jax/(gradients|optimizer)\.py",
        "equinox": r"octavo/jax/equinox\.py", "numpy": r"octavo/jax/.*",
        "transformers": r"octavo/transformers\.py", "safetensors": r"octavo/torch/(export|checkpoint/saved)\.py"}),
    # Tools of the installed program.
    "sdk/cli": Rule(),
    # The wheel's tag follows from what check_elf reads.
    "sdk/packaging": Rule(only={"scikit_build_core": r"wheel_backend\.py", "sdk/cli": r"wheel_backend\.py",
                                "conan": r"conan/.*"}),
    # The scripts in plain/ train without Octavo, for comparison.
    "samples/python": Rule({"torch", "transformers", "accelerate", "lightning", "jax", "flax", "optax",
                            "numpy", "deepspeed", "trl", "datasets", "tokenizers"},
                           only={"host_adapters/python": r"(?!plain/).*"}),
    # Speaks to liboctavo through its headers alone.
    "samples/python_host": Rule({"cffi"}),
}
FREE = "tests"


def _is_for_types(node):
    """Whether an `if` tests TYPE_CHECKING."""
    name = getattr(node.test, "attr", getattr(node.test, "id", None))
    return name == "TYPE_CHECKING"


def _imports(node, runs=True):
    """(line, level, module, names, runs) of every import under a node; names: of `from`, else ()."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield child.lineno, 0, alias.name, (), runs
        elif isinstance(child, ast.ImportFrom):
            yield child.lineno, child.level, child.module or "", [a.name for a in child.names], runs
        elif isinstance(child, ast.If) and _is_for_types(child):
            for part in child.body:
                yield from _imports(ast.Module([part], []), False)
            for part in child.orelse:
                yield from _imports(ast.Module([part], []), runs)
            continue
        elif isinstance(child, ast.Call) and child.args:
            called = getattr(child.func, "attr", getattr(child.func, "id", None))
            named = getattr(child.args[0], "value", None)
            if called in ("import_module", "__import__") and isinstance(named, str):
                yield child.lineno, 0, named, (), runs
        yield from _imports(child, runs)


class Modules:
    """The Python files of the tree, as Python finds them."""

    def __init__(self, files):
        self.files = set(files)

    def base(self, path):
        """The folder in which the absolute names that a file imports begin: its own, or the one
        that holds its package."""
        folder = path.parent
        while folder / "__init__.py" in self.files:
            folder = folder.parent
        return folder

    def find(self, folder, parts):
        """The file of a dotted name below a folder; None where no file has this name."""
        place = folder.joinpath(*parts)
        named = (place / "__init__.py", place.with_name(place.name + ".py")) if parts else (
            place / "__init__.py",)
        return next((file for file in named if file in self.files), None)

    def targets(self, path, level, module, names):
        """The files that an import loads for its own sake; [] for one from outside the tree."""
        parts = module.split(".") if module else []
        folder = path.parents[level - 1] if level else self.base(path)
        if not level and parts[0] in SHARED and not self.find(folder, parts[:1]):
            folder = pathlib.PurePosixPath(SHARED[parts[0]])
        whole = self.find(folder, parts)
        found = [self.find(folder, [*parts, name]) or whole for name in names] or [whole]
        return [file for file in dict.fromkeys(found) if file]


def folder_of(path):
    """The folder of the table that holds a file; None without one."""
    return next((f for f in RULES if path.is_relative_to(f)), None)


def _fault_of_import(path, level, module, targets):
    """Why a file may not import this; None where it may."""
    if path.parts[0] == FREE:
        return None
    folder = folder_of(path)
    if folder is None:
        return "; its folder is not in the table of tests/repo/python_rules.py"
    top = module.split(".")[0]
    if targets:
        places = {folder_of(t) or t.parts[0] for t in targets}
        area = next((p for p in sorted(places) if p != folder), folder)
    elif level:
        return ", which does not exist"
    else:
        area = top
    rule = RULES[folder]
    if area == folder or area in rule.uses or area in sys.stdlib_module_names:
        return None
    named = rule.only.get(area)
    inside = path.relative_to(folder).as_posix()
    if named is None:
        return f" of {area}; {folder} may use {', '.join(sorted(rule.uses | set(rule.only)))}"
    return None if re.fullmatch(named, inside) else f"; in {folder} {area} is for {named} only"


def _circles(arrows):
    """One circle, as a list of files, for each arrow that closes one; arrows: {file: {file}}."""
    found, done, way = [], set(), []

    def walk(file):
        way.append(file)
        for target in sorted(arrows.get(file, ())):
            if target in way:
                found.append(way[way.index(target):])
            elif target not in done:
                walk(target)
        done.add(way.pop())

    for file in sorted(arrows):
        if file not in done:
            walk(file)
    return found


def _writes_of_step_state(module):
    """The lines that write an attribute of a session's step_state, or use a private one, outside of its class."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and getattr(node.value, "attr", None) == "step_state" and (
                node.attr.startswith("_") or not isinstance(node.ctx, ast.Load)):
            yield node.lineno


def check(root):
    paths = [f for f in tree.files(root) if f.suffix == ".py"]
    modules, arrows, lines, faults = Modules(paths), {}, {}, []
    for path in paths:
        parsed = ast.parse(tree.text(root, path))
        faults += [f"{path}:{line}: writes the step_state of a session; its own methods do, in octavo/torch/steps.py"
                   for line in _writes_of_step_state(parsed)]
        for line, level, module, names, runs in _imports(parsed):
            targets = modules.targets(path, level, module, names)
            why = _fault_of_import(path, level, module, targets)
            if why:
                faults.append(f"{path}:{line}: imports {'.' * level}{module}{why}")
            for target in targets if runs else ():
                arrows.setdefault(path, set()).add(target)
                lines.setdefault((path, target), line)
    for circle in _circles(arrows):
        first = circle.index(min(circle))
        circle = circle[first:] + circle[:first + 1]
        faults.append(f"{circle[0]}:{lines[tuple(circle[:2])]}: imports in a circle: "
                      f"{' -> '.join(map(str, circle))}; move what they share into a file below")
    return faults


PLANTED = [  # file, content, part of the message; None: legal
    ("host_adapters/python/octavo/__init__.py", "def f():\n    from . import torch\n", None),
    ("host_adapters/python/octavo/errors.py", "import re\n", None),
    ("host_adapters/python/octavo/library.py", "import numpy\n", "numpy is for octavo/jax"),
    ("host_adapters/python/octavo/run.py", "def f():\n    import torch\n", "torch is for octavo/"),
    ("host_adapters/python/octavo/missing.py", "from .nowhere import f\n", "which does not exist"),
    ("host_adapters/python/octavo/transformers.py",
     "import transformers\nfrom .torch import prepare\n", None),
    ("host_adapters/python/octavo/torch/__init__.py", "from .prepare import prepare\n", None),
    ("host_adapters/python/octavo/torch/prepare.py",
     "import torch\nfrom ..errors import E\nfrom . import session\n", None),
    # Types only: the arrow back to prepare.py is never followed at run time.
    ("host_adapters/python/octavo/torch/session.py",
     "import typing\nif typing.TYPE_CHECKING:\n    from .prepare import prepare\n", None),
    ("host_adapters/python/octavo/torch/steps.py",
     "from .device import d\n", None),
    ("host_adapters/python/octavo/torch/device.py", "from . import models\n",
     "device.py -> host_adapters/python/octavo/torch/models.py -> "),
    ("host_adapters/python/octavo/torch/models.py", "def f():\n    from . import steps\n", None),
    ("host_adapters/python/octavo/torch/loops.py",
     "import importlib\nimportlib.import_module('octavo.torch.turns')\n",
     "in a circle: host_adapters/python/octavo/torch/loops.py -> "),
    ("host_adapters/python/octavo/torch/turns.py", "from octavo.torch import loops\n", None),
    # Packages of the package: a function that imports from above closes a circle, too.
    ("host_adapters/python/octavo/torch/ranks/fsdp.py", "def f():\n    from ..weights.stored import s\n",
     "in a circle: host_adapters/python/octavo/torch/ranks/fsdp.py -> host_adapters/python/octavo/torch/weights/stored.py"),
    ("host_adapters/python/octavo/torch/weights/stored.py", "from ..ranks import fsdp\n", None),
    ("host_adapters/python/octavo/torch/optimizer.py", "def f(s):\n    return s.step_state.is_skipping\n", None),
    ("host_adapters/python/octavo/torch/stored.py", "def f(s):\n    s.step_state.is_skipping = True\n",
     "writes the step_state"),
    ("host_adapters/python/octavo/deepspeed.py", "def f(s):\n    s.session.step_state._skipped.add(1)\n",
     "writes the step_state"),
    ("samples/python/tiny_gpt.py", "import torch\n", None),
    ("samples/python/train.py", "import octavo.torch\nimport tiny_gpt\n", None),
    ("samples/python/plain/train.py", "import tiny_gpt\nimport octavo\n",
     "in samples/python host_adapters/python is for"),
    ("samples/python/tested.py", "import pytest\n", "of pytest; samples/python may use"),
    ("sdk/src/generate.py", "import re\n", "its folder is not in the table"),
    ("tests/free_test.py", "import numpy\nimport octavo.torch.session\nimport tiny_gpt\n", None),
    ("tests/left.py", "import right\n", "in a circle: tests/left.py -> tests/right.py -> tests/left"),
    ("tests/right.py", "def f():\n    import left\n", None),
]

"""Finds the linear layers of a model, and states why other modules with matrices are not converted.

A converter handles one kind of module:

    matches(module) -> bool
    refuses(module) -> the reason for not converting it, or None
    inner(module)   -> the modules that it reads without calling them
    linears(module) -> [(name inside the module, spec)]
    apply(module, sites)   turns the module into its counterpart in place

Parameters, hooks and names do not change.
"""
import dataclasses
import fnmatch

import torch

from ...errors import InvalidError
from .. import ops
from ..models import is_a
from ..slots import Weight
from . import own_forward
from .attention import MULTIHEAD_ATTENTION
from .converted import computed, counterpart, set_class
from .linear import Linear
from .transformers import CONV1D, EXPERTS


class _LinearConverter:
    """Converts torch.nn.Linear and subclasses, also where a forward of their own multiplies once by F.linear."""

    def matches(self, module):
        return isinstance(module, torch.nn.Linear)

    def refuses(self, module):
        return computed(module, "weight") or own_forward.refuses(module, torch.nn.Linear.forward, may_run=True)

    def inner(self, module):
        return ()

    def linears(self, module):
        return [("", dict(parameter=module.weight, of="weight"))]

    def apply(self, module, sites):
        module.octavo_site = sites[""]
        module.octavo_products = {"weight": sites[""]}
        if sites[""].weight.parallel is not None:
            from .parallel_linear import ParallelLinear  # torch's DTensor takes a while to import
            set_class(module, counterpart(type(module), ParallelLinear))
            return
        held = module.__dict__.get("forward")
        if type(module).forward is not torch.nn.Linear.forward:
            set_class(module, counterpart(type(module), own_forward.OwnForward))
        else:
            set_class(module, Linear if type(module) is torch.nn.Linear else counterpart(type(module), Linear))
        own_forward.take(module, held)


CONVERTERS = [MULTIHEAD_ATTENTION, EXPERTS, CONV1D, _LinearConverter()]
TOO_WIDE = (torch.float64, torch.complex64, torch.complex128)


@dataclasses.dataclass
class Candidate:
    """A module that can be converted, and its linears by name inside the module."""
    module: torch.nn.Module
    name: str
    converter: object
    linears: dict  # name inside the module -> (name of the linear, Weight)

    def modules(self):
        """The module and the modules that it reads without calling them."""
        return (self.module, *self.converter.inner(self.module))


@dataclasses.dataclass
class Discovery:
    candidates: list
    weights: list      # every Weight once, in the order of first use
    left_out: dict     # module or linear name -> reason


def _join(*parts):
    return ".".join(p for p in parts if p)


class _Search:
    def __init__(self, model, choice, excluded, functional):
        self.model = model
        self.choice = choice
        self.excluded = excluded
        self.functional = own_forward.functional_of(model, functional)
        self.found = Discovery([], [], {})
        self.known = {}    # (parameter, piece, transposed) -> Weight
        self.wrong = []
        self.names = {id(p): n for n, p in model.named_parameters(remove_duplicate=True)}
        self.inside = set()
        self.parametrized = {}  # id of a module -> why
        for wrapper in filter(lambda m: is_a(m, "ParamWrapper"), model.modules()):  # PEFT's target_parameters
            reason = f"PEFT computes its {wrapper.parameter_name} anew in each forward (target_parameters)"
            self.parametrized[id(wrapper.get_base_layer())] = reason
            own = [m for name, m in wrapper.named_children() if name != "base_layer"]
            self.parametrized.update((id(m), "PEFT computes with its weight without calling it (target_parameters)")
                                     for child in own for m in child.modules())

    def run(self):
        for name, module in self.model.named_modules():
            if id(module) not in self.inside:
                self.visit(module, name)
        if self.wrong:
            raise InvalidError(
                "the model: expected linear weights in float32, bfloat16 or float16, found "
                + "; ".join(self.wrong) + "; call model.float() or model.bfloat16() first")
        return self.found

    def visit(self, module, name):
        converter = next((c for c in CONVERTERS if c.matches(module)), None)
        if id(module) in self.functional:
            converter = own_forward.Functional(self.functional[id(module)])
        if converter is None:
            self.note(module, name)
            return
        self.inside.update(id(m) for m in converter.inner(module))
        reason = self.parametrized.get(id(module)) or converter.refuses(module)
        if reason is None:
            reason = self.choice.refuses(module, name)
        if reason is not None:
            self.found.left_out[name or "model"] = reason
            return
        linears = {}
        for part, spec in converter.linears(module):
            weight = self.weight(name, part, spec)
            if weight is not None:
                linears[part] = (_join(name, part) or "model", weight)
        if linears:
            self.found.candidates.append(Candidate(module, name, converter, linears))

    def weight(self, name, part, spec):
        """The Weight of a linear; None if the linear is not converted."""
        linear_name = _join(name, part) or "model"
        if linear_name in self.excluded:
            return None
        parameter, piece = spec["parameter"], spec.get("piece")
        transposed = spec.get("transposed", False)
        reason = self.choice.refuses(spec.get("module"), linear_name)
        if reason is not None:
            self.found.left_out[linear_name] = reason
            return None
        if parameter.dtype in TOO_WIDE:
            self.wrong.append(f"{linear_name}: {parameter.dtype}")
            return None
        if parameter.dtype not in ops.DTYPES:
            self.found.left_out[linear_name] = f"its weight is {parameter.dtype}"
            return None
        if (id(parameter), piece, not transposed) in self.known:
            self.found.left_out[linear_name] = "another linear uses its weight transposed"
            return None
        key = (id(parameter), piece, transposed)
        if key not in self.known:
            own = self.names.get(id(parameter), _join(name, spec["of"]))
            suffix = "" if piece is None else f".{part.rpartition('.')[2]}"
            self.known[key] = Weight(own + suffix, parameter, piece, transposed=transposed)
            self.found.weights.append(self.known[key])
        return self.known[key]

    def note(self, module, name):
        """Records a module that may multiply by a matrix. Embeddings, convolutions, norms and
        parameters that are arrays of vectors are not linear layers and are not recorded."""
        if isinstance(module, _SILENT):
            return
        matrices = [n for n, p in module.named_parameters(recurse=False) if _is_matrix(p)]
        if matrices:
            self.found.left_out[name or "model"] = (
                f"{type(module).__name__} is not a linear layer ({', '.join(matrices)})")


_SILENT = (torch.nn.Embedding, torch.nn.EmbeddingBag, torch.nn.modules.conv._ConvNd,
           torch.nn.LayerNorm, torch.nn.RMSNorm, torch.nn.PReLU)


def _is_matrix(parameter):
    if torch.nn.parameter.is_lazy(parameter):
        return False
    return parameter.dim() in (2, 3) and all(size > 1 for size in parameter.shape)


class Choice:
    """The layers that the user leaves out. module_filter(module, name) -> bool, or None; skip: patterns of names, as in
    layers.skip. A name is the first one under which the model reaches a module."""

    def __init__(self, module_filter=None, skip=()):
        if isinstance(skip, str) or not all(isinstance(pattern, str) for pattern in skip):
            raise InvalidError(f'skip: expected a list of patterns of names, such as ["*head*"], found {skip!r}')
        if module_filter is not None and not callable(module_filter):
            raise InvalidError(f"module_filter: expected a function of (module, name) or None, found {module_filter!r}; give "
                               "patterns of names to skip")
        self.module_filter, self.skip = module_filter, tuple(skip)
        self.unmatched = set(self.skip)

    def refuses(self, module, name):
        """Why a linear is not converted; None if it may be. module: None for a part of one, which the filter knows."""
        pattern = next((p for p in self.skip if fnmatch.fnmatchcase(name, p)), None)
        if pattern is not None:
            self.unmatched.discard(pattern)
            return f'runs in the host: skip names it (pattern "{pattern}")'
        if module is not None and self.module_filter is not None and not self.module_filter(module, name):
            return "excluded by module_filter"
        return None


def discover(model, choice=Choice(), excluded=(), functional=()):
    """Searches a model for linear layers. Returns a Discovery.

    choice: what the user leaves out. excluded: names of linears that were tried without success. functional: names or
    patterns of matrices that their module gives to F.linear. Raises InvalidError, which lists every linear weight
    in float64.
    """
    return _Search(model, choice, excluded, functional).run()

"""Forwards that are not torch's: of a subclass, of an instance, or of a module with its own weights. A backend multiplies
where they call torch.nn.functional.linear with these weights; the rest of the forward stays."""
import fnmatch
import random
import types

import torch

from ...errors import InvalidError
from ..models import is_dtensor, is_fsdp_shard
from .converted import Calls, Converted, Products, calls_own, computed, counterpart, set_class
from .linear import linear


class _Trial(Calls):
    """Counts the products, and names what else is computed from the weight."""

    def __init__(self, module):
        super().__init__(module, ("weight",))
        self.products, self.others = 0, []

    def product(self, name, x, weight, bias):
        self.products += 1
        return x.new_empty((*x.shape[:-1], weight.shape[0]))

    def other(self, func, args, kwargs):
        found = func(*args, **kwargs)
        if isinstance(found, torch.Tensor) and any(self.name_of(a) for a in (*args, *kwargs.values())):
            self.others.append(getattr(func, "__name__", str(func)))
        return found


_DICTS = ("_parameters", "_buffers", "_modules")


def _without_values(module):
    """Replaces each tensor of a module by a fake one."""
    for held in (module.__dict__, module._buffers, module._parameters):
        for name, t in held.items():
            if isinstance(t, torch.Tensor):
                fake = torch.empty(t.shape, dtype=t.dtype, device=t.device)
                held[name] = torch.nn.Parameter(fake, False) if held is module._parameters else fake


def _trial(module, forward):
    """Why this forward of a torch.nn.Linear cannot run with its product computed by a backend; None: it can.

    Calls it once with fake tensors, which have no values and take no random numbers. Its writes to attributes are taken back.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a while to import

    weight, calls, failure = module.weight, None, None
    for shape in ((1, 2, module.in_features), (2, module.in_features)):
        before = [(m, dict(m.__dict__), [dict(m.__dict__[d]) for d in _DICTS]) for m in module.modules()]
        drawn = random.getstate()
        calls = _Trial(module)
        try:
            with torch.random.fork_rng(devices=()), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
                for m in module.modules():
                    _without_values(m)
                x = torch.empty(shape, dtype=weight.dtype, device=weight.device)
                with calls:
                    forward(x)
            failure = None
            break
        except Exception as error:  # of code that is not ours
            failure = f"fails for a small input without values ({type(error).__name__}: {str(error)[:80]})"
        finally:
            random.setstate(drawn)
            for m, attributes, inner in before:
                m.__dict__.clear()
                m.__dict__.update(attributes)
                for name, values in zip(_DICTS, inner):
                    m.__dict__[name].clear()
                    m.__dict__[name].update(values)
    if failure is not None:
        return failure
    if calls.others:
        return f"computes {', '.join(dict.fromkeys(calls.others))} of its weight"
    return None if calls.products == 1 else f"multiplies by its weight {calls.products} times with F.linear, not once"


def refuses(module, plain, may_run=False):
    """Why the forward of a module cannot be a backend's; None: it can. plain: the forward that its converter knows;
    may_run: whether another one may run with its products computed by the backend."""
    cls, held = type(module), module.__dict__.get("forward")
    if held is not None and not calls_own(module, held, cls.forward):
        name = getattr(getattr(held, "func", held), "__qualname__", type(held).__qualname__)
        return _refusal(module, f"its forward was replaced on the instance by {name}", held, may_run)
    if "_hf_hook" in module.__dict__ and any(p.is_meta for p in module.parameters()):
        return "its weight is offloaded by Accelerate, which puts another one in its place for each forward"
    if cls.forward is not plain:
        return _refusal(module, f"{cls.__name__} overrides forward", types.MethodType(cls.forward, module), may_run)
    return None


def _refusal(module, what, forward, may_run):
    if not may_run:
        return what
    if is_dtensor(module.weight) and not is_fsdp_shard(module.weight):
        return f"{what}, and its weight is sharded by tensor parallelism"
    registry = module.__dict__.get("_diffusers_hook")
    if registry is not None and forward is module.__dict__.get("forward"):
        # Its hooks move weights. What they are around is what counts.
        forward = getattr(registry._fn_refs[0], "original_forward", None) or registry._fn_refs[0].forward
    fault = _trial(module, forward)
    return None if fault is None else f"{what}, which {fault}"


class OwnForward(Converted):
    """Mixin for a class with its own forward. octavo_products: {name of a parameter: Site}."""

    def forward(self, *args, **kwargs):
        with Products(self):
            return super().forward(*args, **kwargs)

    def octavo_product(self, name, x, bias):
        return linear(self.octavo_products[name], x, self._parameters[name], bias, self.training)


class Functional:
    """Converts the matrices that the user names, which the forward of their module gives to F.linear."""

    def __init__(self, names):
        self.names = names

    def refuses(self, module):
        return computed(module, *self.names)

    def inner(self, module):
        return ()

    def linears(self, module):
        return [(name, dict(parameter=module._parameters[name], of=name)) for name in self.names]

    def apply(self, module, sites):
        module.octavo_products = {name: site for name, site in sites.items() if site is not None}
        held = module.__dict__.get("forward")
        set_class(module, counterpart(type(module), OwnForward))
        take(module, held)


def take(module, held):
    """Lets a converted module take the forward that its instance had, if any, as its own."""
    if held is not None and held is module.__dict__["forward"]:
        module.forward = held


def functional_of(model, patterns):
    """{id of a module: [names of its parameters]} that match names, or patterns as in layers.skip. Raises InvalidError for one
    that matches no matrix of a module with its own forward."""
    found = {}
    for pattern in patterns:
        matched = [(m, leaf, p) for prefix, m in model.named_modules() for leaf, p in m.named_parameters(recurse=False)
                   if fnmatch.fnmatchcase(f"{prefix}.{leaf}" if prefix else leaf, pattern)]
        if not matched:
            raise InvalidError(f"functional: expected a pattern that matches a parameter of the model, found {pattern!r}; "
                               f"its parameters are {', '.join(n for n, _ in list(model.named_parameters())[:6])} ...")
        for module, leaf, p in matched:
            if p.dim() != 2 or isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
                raise InvalidError(f"functional: {pattern!r}: expected matrices that the forward of their module gives to "
                                   f"torch.nn.functional.linear, found {leaf} {list(p.shape)} of {type(module).__name__}")
            found.setdefault(id(module), []).append(leaf)
    return found

"""Products that a forward computes with torch.nn.functional.linear by weights of its module: the backend's, while a mode is
active. The forward may cast the weight before, as F.linear(x, self.weight.to(x.dtype)).
"""
import inspect
import types

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_CASTS = {torch.Tensor.to, torch.Tensor.type, torch.Tensor.type_as, torch.Tensor.float, torch.Tensor.half,
          torch.Tensor.bfloat16, torch.Tensor.contiguous}


def _linear_of(x, weight, bias=None):
    return x, weight, bias


class Calls(TorchFunctionMode):
    """Sees what is called with weights of a module. names: of these parameters."""

    def __init__(self, module, names):
        super().__init__()
        self.module, self.names = module, names
        self.casts = []  # (the cast weight, its name)

    def name_of(self, tensor):
        """The name of the weight that a tensor is, or is a cast of; None: of none."""
        if not isinstance(tensor, torch.Tensor):
            return None
        for name in self.names:
            if tensor is self.module._parameters.get(name):
                return name
        return next((name for cast, name in self.casts if cast is tensor), None)

    def cast(self, name, func, args, kwargs):
        made = func(*args, **kwargs)
        self.casts.append((made, name))
        return made

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is functional.linear:
            x, weight, bias = _linear_of(*args, **{"x" if k == "input" else k: v for k, v in kwargs.items()})
            name = self.name_of(weight)
            if name is not None:
                return self.product(name, x, weight, bias)
        elif func in _CASTS:
            name = self.name_of(args[0])
            if name is not None:
                return self.cast(name, func, args, kwargs)
        return self.other(func, args, kwargs)

    def other(self, func, args, kwargs):
        return func(*args, **kwargs)


class Products(Calls):
    """While it is active, the backend computes the products of a converted module's octavo_products: {name: Site}."""

    def __init__(self, module):
        super().__init__(module, module.octavo_products)

    def cast(self, name, func, args, kwargs):
        # A weight in slots, or of which codes are gathered, has no values to cast, and its product needs none.
        has_values = self.names[name].is_native and not self.names[name].weight.is_packed
        return super().cast(name, func, args, kwargs) if has_values else args[0]

    def product(self, name, x, weight, bias):
        return self.module.octavo_product(name, x, bias)


class Through:
    """The forward of an instance, with the products of its weight computed by the backend."""

    def __init__(self, module, forward):
        self.module, self.octavo_plain = module, forward

    def __call__(self, *args, **kwargs):
        if "octavo_products" not in self.module.__dict__:  # a wrapper around this one outlived octavo.restore
            return self.octavo_plain(*args, **kwargs)
        with Products(self.module):
            return self.octavo_plain(*args, **kwargs)


def through(module, forward):
    """What a converted module has as the forward of its instance, for one that it is given."""
    own = type(module).forward
    inner = inspect.unwrap(forward)
    if "octavo_products" not in module.__dict__ or inner is own or calls_own(module, forward, own) or calls_own(
            module, inner, own):
        return forward
    return Through(module, forward)


def calls_own(module, forward, own):
    """Whether a forward of an instance is its class's, `own`, or one of Accelerate's hooks around it."""
    if getattr(getattr(forward, "func", None), "__module__", None) == "accelerate.hooks":
        forward = module.__dict__.get("_old_forward")
    return isinstance(forward, types.MethodType) and forward.__self__ is module and forward.__func__ is own

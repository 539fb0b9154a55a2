"""Shared by the converters: classes that replace a module's class, and a product with or without a
backend."""
import copyreg

import torch

from .foreign import is_dtensor
from .linear import linear

_classes = {}  # (foreign class, mixin) -> counterpart


def counterpart(cls, mixin):
    """A subclass of mixin and cls with the name of cls, so that isinstance and printed models do
    not change.

    Returns the same class for the same arguments. Its instances can be copied and pickled: a pickle
    refers to cls and mixin, and loading it creates the class again.
    """
    key = (cls, mixin)
    if key not in _classes:
        _classes[key] = type(cls.__name__, (mixin, cls), {
            "__module__": cls.__module__, "__qualname__": cls.__qualname__,
            "__reduce_ex__": _reduce, "_octavo_made_of": key})
    return _classes[key]


def _reduce(self, protocol):
    made_of = type(self)._octavo_made_of
    found = super(_classes[made_of], self).__reduce_ex__(max(protocol, 2))
    if found[0] is not copyreg.__newobj__:  # cls defines its own reconstruction
        return found
    if protocol == 2:  # torch.save: torch.load(weights_only=True) fills classes that it knows
        plain = made_of[0].__new__(made_of[0])
        plain.__dict__.update(self.__dict__)
        return become, (plain, made_of[1])
    return rebuild, made_of, *found[2:]


def rebuild(cls, mixin):
    """An empty counterpart, which its state will fill."""
    made = counterpart(cls, mixin)
    return made.__new__(made)


def become(plain, mixin):
    """Makes a loaded module the counterpart that it was."""
    plain.__class__ = counterpart(type(plain), mixin)
    return plain


def product(site, x, weight, bias, training):
    """x weight^T + bias, computed by the backend, or by torch if site is None.

    x: [..., K]; weight: [N, K], a parameter or a differentiable part of one; bias: [N] or None.
    Returns [..., N].
    """
    if site is None:
        return torch.nn.functional.linear(x, weight, bias)
    return linear(site, x, weight, bias, training)


def computed(module, *names):
    """Why these parameters of a module cannot serve as weights; None if they can."""
    for name in names:
        parameter = module._parameters.get(name)
        if parameter is None:
            return f"its {name} is computed at each forward (a parametrization or weight_norm)"
        if torch.nn.parameter.is_lazy(parameter):
            return "its size is not known yet: run one batch before octavo.prepare"
        if type(parameter) is not torch.nn.Parameter and not is_dtensor(parameter):
            return f"its {name} is a {type(parameter).__name__}, whose memory is not a plain matrix"
        if parameter.numel() == 0:
            return f"its {name} has no elements"
    return None

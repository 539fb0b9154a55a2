"""What converters share: classes that stand in for a module's own, and a product with or without a
backend."""
import copyreg

import torch

from .linear import linear

_classes = {}  # (foreign class, mixin) -> counterpart


def counterpart(cls, mixin):
    """A class that is both, with cls's name, so that isinstance and names in printed models stay.

    The same one at each call. Its instances copy and pickle: they name cls and mixin, and the class
    is made again where they are loaded.
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
    if found[0] is not copyreg.__newobj__:  # cls says itself how it is made
        return found
    return _rebuild, made_of, *found[2:]


def _rebuild(cls, mixin):
    made = counterpart(cls, mixin)
    return made.__new__(made)


def product(site, x, weight, bias, training):
    """x weight^T + bias through the backend, or torch's own where site is None.

    x: [..., K]; weight: [N, K], a parameter or a differentiable piece of one; bias: [N] or None.
    """
    if site is None:
        return torch.nn.functional.linear(x, weight, bias)
    return linear(site, x, weight, bias, training)


def computed(module, *names):
    """Why these parameters of a module cannot be a weight's memory; None when they can."""
    for name in names:
        parameter = module._parameters.get(name)
        if parameter is None:
            return f"its {name} is computed at each forward (a parametrization or weight_norm)"
        if torch.nn.parameter.is_lazy(parameter):
            return "its size is not known yet: run one batch before octavo.prepare"
        if type(parameter) is not torch.nn.Parameter:
            return f"its {name} is a {type(parameter).__name__}, whose memory is no plain matrix"
        if parameter.numel() == 0:
            return f"its {name} has no elements"
    return None

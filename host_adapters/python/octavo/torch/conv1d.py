"""Conv1D of transformers: a linear layer whose weight is [K, N].

Octavo reads weights as [N, K] in row-major order, so octavo.prepare reorders the elements of the
weight in memory. Its shape, values and name do not change.
"""
import sys

from .converted import Converted, set_class
from .counterpart import computed, counterpart
from .foreign import is_dtensor
from .linear import linear
from .own_forward import refuses


def _conv1d():
    module = sys.modules.get("transformers.pytorch_utils")
    return getattr(module, "Conv1D", None)


class Conv1D(Converted):
    """Mixin for transformers' Conv1D: a backend computes the product. x: [..., K]."""

    def forward(self, x):
        return linear(self.octavo_site, x, self.weight, self.bias, self.training)


class _Conv1DConverter:
    """Converts Conv1D and subclasses that do not override forward."""

    def matches(self, module):
        cls = _conv1d()
        return cls is not None and isinstance(module, cls)

    def refuses(self, module):
        return refuses(module, _conv1d().forward) or computed(module, "weight")

    def inner(self, module):
        return ()

    def linears(self, module):
        return [("", dict(parameter=module.weight, of="weight", transposed=True))]

    def apply(self, module, sites):
        weight = module.weight
        if not is_dtensor(weight):  # of which the op reorders each gathered copy
            weight.data = weight.data.t().contiguous().t()
        module.octavo_site = sites[""]
        set_class(module, counterpart(type(module), Conv1D))


CONV1D = _Conv1DConverter()

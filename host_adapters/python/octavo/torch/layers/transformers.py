"""transformers' layers: Conv1D, and the experts of mixture-of-experts models."""
import sys

import torch

from ...errors import StateError
from ..models import is_dtensor
from .converted import Converted, computed, counterpart, set_class
from .linear import linear, product
from .own_forward import refuses


# Conv1D of transformers: a linear layer whose weight is [K, N].
#
# Octavo reads weights as [N, K] in row-major order, so octavo.prepare reorders the elements of the
# weight in memory. Its shape, values and name do not change.


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


# Experts of transformers' mixture-of-experts models: 3-D parameters with one matrix per expert.
#
# transformers dispatches the forward of such a module by config._experts_implementation, which
# applies to every model with this config. Here the choice is made per module: the counterpart
# implements the same interface, controlled by the flags that transformers sets on the module.

_FLAGS = ("has_gate", "has_bias", "is_transposed")


def _names(module):
    return ("gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"), "down_proj"


class Experts(Converted):
    """Mixin for an experts class: a backend computes each product of an expert.

    hidden_states: [tokens, H]; top_k_index, top_k_weights: [tokens, k], the experts of each token
    and their weights. Returns [tokens, H] in the dtype of hidden_states. Experts without tokens are
    not called; their part of the gradient is zero. An index past the last expert contributes zero.
    Raises StateError if a parameter was replaced or parametrized after octavo.prepare.
    """

    def forward(self, hidden_states, top_k_index, top_k_weights):
        self._check_parameters()
        tokens, k = top_k_index.shape
        experts, order = torch.sort(top_k_index.reshape(-1), stable=True)
        counts = torch.bincount(experts, minlength=self.num_experts)[:self.num_experts].tolist()
        order = order[:sum(counts)]
        first, second = _names(self)
        y = self._products(first, hidden_states[order // k], counts)
        y = self._apply_gate(y) if self.has_gate else self.act_fn(y)
        y = self._products(second, y, counts)
        if getattr(self, "has_post_expert_norm", False):  # not in every version of transformers
            y = self.post_expert_norm(y)
        y = y * top_k_weights.reshape(-1)[order].unsqueeze(-1)
        # Each row has its own place, so the sum over k does not depend on the order of experts.
        y = y.new_zeros((tokens * k, y.shape[-1])).index_copy(0, order, y)
        return y.view(tokens, k, y.shape[-1]).sum(dim=1).to(hidden_states.dtype)

    def _check_parameters(self):
        """Detects adapters that parametrize experts in the forward, after octavo.prepare."""
        for name, sites in self.octavo_sites.items():
            site = next((site for site in sites if site is not None), None)
            if site and self._parameters.get(name) is not site.weight.value:
                raise StateError(f"{type(self).__name__}.{name}: expected the parameter that "
                                 "octavo.prepare saw, found another or a parametrization; "
                                 "exclude this module with module_filter of octavo.prepare")

    def _products(self, name, x, counts):
        """x: rows sorted by expert, with counts[e] rows for expert e. unbind assembles the gradient
        of the 3-D parameter once, regardless of the number of experts."""
        sites = self.octavo_sites[name]
        in_slots = any(site is not None and not site.is_native for site in sites)
        weights = (None,) * len(sites) if in_slots else getattr(self, name).unbind(0)
        biases = (getattr(self, f"{name}_bias").unbind(0) if self.has_bias else
                  (None,) * len(weights))
        rows = []
        for e, part in enumerate(x.split(counts)):
            if counts[e]:
                weight = weights[e]
                if sites[e] is None and self.is_transposed:
                    weight = weight.t()
                rows.append(product(sites[e], part, weight, biases[e], self.training))
        if rows:
            return torch.cat(rows)
        width = self._parameters[name].shape[2 if self.is_transposed else 1]
        return x.new_zeros((0, width))


def _expert_parameters(module):
    """Whether a module looks like experts: it has 3-D parameters with the interface's names."""
    parameters = [module._parameters.get(name) for name in _names(module)]
    return all(p is not None and not torch.nn.parameter.is_lazy(p)
               and p.dim() == 3 for p in parameters)


class _ExpertsConverter:
    """Converts classes with transformers' decorator use_experts_implementation."""

    def matches(self, module):
        return _expert_parameters(module)

    def refuses(self, module):
        cls = type(module).__name__
        forward = type(module).forward
        dispatch = getattr(forward, "__globals__", {}).get("__name__")
        if dispatch != "transformers.integrations.moe" or not all(
                hasattr(module, flag) for flag in _FLAGS):
            return f"{cls} has experts, but not with transformers' experts interface"
        if getattr(module, "_is_expert_parallel", False):
            return f"{cls} uses expert parallelism"
        reason = refuses(module, forward)
        if reason is not None:
            return reason
        return computed(module, *_names(module))

    def inner(self, module):
        return ()

    def linears(self, module):
        return [(f"{name}.{e}", dict(parameter=module._parameters[name], of=name, piece=e,
                                     transposed=module.is_transposed))
                for name in _names(module) for e in range(module._parameters[name].shape[0])]

    def apply(self, module, sites):
        if module.is_transposed:
            for name in _names(module):
                parameter = module._parameters[name]
                if not is_dtensor(parameter):
                    parameter.data = parameter.data.transpose(1, 2).contiguous().transpose(1, 2)
        module.octavo_sites = {
            name: [sites.get(f"{name}.{e}") for e in range(module._parameters[name].shape[0])]
            for name in _names(module)}
        set_class(module, counterpart(type(module), Experts))


EXPERTS = _ExpertsConverter()

"""Shared by all converted modules: saving and loading plain values.

If the backend keeps a weight in slots, the parameter of the module is a placeholder. It has the
shape, dtype and name of the weight but a single element of memory, which is NaN, so accidental
reads are obvious. A state dict contains the plain values, and loading one writes the slots.
"""
import torch


def placeholder(parameter):
    """A tensor that replaces the parameter's data: its shape, with zero strides over one NaN."""
    return torch.full((), float("nan"), dtype=parameter.dtype,
                      device=parameter.device).expand(parameter.shape)


def is_placeholder(parameter):
    """Whether the data of a parameter is a placeholder."""
    return parameter.dim() > 0 and parameter.numel() > 1 and not any(parameter.stride())


class Converted:
    """Mixin for the counterparts of torch's modules. `octavo_weights` maps the names of the
    module's own parameters to lists of Weights."""

    def train(self, mode=True):
        """As in torch. In addition, the next forward quantizes the weights again: code that writes
        through `weight.data`, which cannot be detected, usually does so between training and
        evaluation."""
        for weights in self.__dict__.get("octavo_weights", {}).values():
            for w in weights:
                w.version = -1
        return super().train(mode)

    def _owned(self):
        for name, weights in self.__dict__.get("octavo_weights", {}).items():
            yield name, weights

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, weights in self._owned():
            key = prefix + name
            if key not in destination:
                continue
            if not weights[0].is_native:
                destination[key] = self.octavo_session_ref.read(self._parameters[name])
            elif weights[0].transposed:  # file formats expect row-major tensors
                value = destination[key]
                destination[key] = value if keep_vars else value.contiguous()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys,
                              unexpected_keys, error_msgs):
        owned = [(name, self._parameters[name]) for name, weights in self._owned()
                 if not weights[0].is_native]
        for _, p in owned:
            p.data = torch.empty(p.shape, dtype=p.dtype, device=p.device)
        errors = len(error_msgs)
        try:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                          unexpected_keys, error_msgs)
            for name, p in owned:
                if prefix + name in state_dict and len(error_msgs) == errors:
                    self.octavo_session_ref.write(p, p.data)
        finally:
            for _, p in owned:
                p.data = placeholder(p)


def attach(module, session, weights):
    """Connects a converted module to its session and Weights: {parameter name: [Weight]}."""
    module.octavo_session_ref = session
    module.octavo_weights = weights

"""Shared by all converted modules: what keeps them honest when other code changes them."""
import types

from ..errors import UnsupportedError
from .fsdp import placed
from .own_products import through
from .slots import CODES


class Converted:
    """Mixin for the counterparts of torch's modules. `octavo_weights` maps the names of the
    module's own parameters to lists of Weights."""

    def train(self, mode=True):
        """As in torch. In addition, the next forward quantizes the weights again: code that writes
        through `weight.data`, which cannot be detected, usually does so between training and
        evaluation."""
        flags = self.octavo_session_ref.flags
        for weights in self.octavo_weights.values():
            for w in weights:
                flags.set(w.id, CODES)
        return super().train(mode)

    def __setattr__(self, name, value):
        """As in torch. Raises UnsupportedError for the mark by which torch.ao.quantization picks
        modules: it would pass over this one, because it looks for classes of torch. The mark is None
        where it did. FSDP assigns the parameters here as it gathers and shards them."""
        if name == "qconfig":
            raise UnsupportedError(
                f"{type(self).__name__}: expected no quantizer after octavo.prepare, found a qconfig "
                "of torch.ao.quantization; call octavo.restore(model) first, or exclude the layer "
                "with the filter of octavo.prepare")
        if name == "forward":  # on the instance, where it hides the class's
            value = through(self, value)
        super().__setattr__(name, value)
        weights = self.__dict__.get("octavo_weights", {}).get(name)
        if weights:
            placed(self.octavo_session_ref, weights, value)

    def _apply(self, fn, recurse=True):
        """As in torch, for to_empty: parameters without memory (meta) get some."""
        out = super()._apply(fn, recurse)
        self._octavo_look()
        return out

    def _load_from_state_dict(self, *arguments):
        """As in torch, which may swap the tensors of a parameter without assigning it."""
        super()._load_from_state_dict(*arguments)
        self._octavo_look()

    def _octavo_look(self):
        for name, weights in self.__dict__.get("octavo_weights", {}).items():
            placed(self.octavo_session_ref, weights, self._parameters.get(name))

    def __prepare_scriptable__(self):
        raise UnsupportedError(f"{type(self).__name__}: expected eager code or torch.compile, found "
                               "torch.jit.script; use torch.export or torch.compile")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, weights in self.octavo_weights.items():
            key = prefix + name
            if weights[0].transposed and key in destination and not keep_vars:
                destination[key] = destination[key].contiguous()  # file formats expect row-major


def attach(module, session, weights):
    """Connects a converted module to its session and Weights: {parameter name: [Weight]}."""
    module.__dict__.update(octavo_session_ref=session, octavo_weights=weights)


def set_class(module, cls):
    """Changes the class of a module, also where its instance holds the bound forward of its class: Accelerate's hooks call
    it as _old_forward, and leave it as forward when they are removed."""
    own = type(module).forward
    module.__class__ = cls
    for name in ("forward", "_old_forward"):
        held = module.__dict__.get(name)
        if isinstance(held, types.MethodType) and held.__self__ is module and held.__func__ is own:
            module.__dict__[name] = types.MethodType(cls.forward, module)


def detach(module):
    """Makes a converted module plain again."""
    made_of = getattr(type(module), "_octavo_made_of", None)
    held = module.__dict__.get("forward")
    if hasattr(held, "octavo_plain"):
        module.__dict__["forward"] = held.octavo_plain
    for name in [n for n in module.__dict__ if n.startswith("octavo_")]:
        del module.__dict__[name]
    if made_of is not None:
        set_class(module, made_of[0])

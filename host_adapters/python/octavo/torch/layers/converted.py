"""Shared by all converted modules: classes that replace a module's class, and what keeps them honest when other code
changes them."""
import copyreg
import inspect
import types

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ...errors import UnsupportedError
from ..models import is_dtensor
from ..ranks.fsdp import placed
from ..slots import CODES


# Products that a forward computes with torch.nn.functional.linear by weights of its module: the backend's, while a mode is
# active. The forward may cast the weight before, as F.linear(x, self.weight.to(x.dtype)).

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
    """The forward to set on the instance of a converted module, for one that it is given."""
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


# Shared by all converted modules: what keeps them honest when other code changes them.


class Converted:
    """Mixin for the classes that replace torch's modules. `octavo_weights` maps the names of the module's own parameters to
    lists of Weights."""

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
        """As in torch. Raises UnsupportedError for the mark that torch.ao.quantization sets on modules to convert: it would
        pass over this one, because it looks for torch's classes. The mark is None where it did. FSDP assigns the parameters
        here as it gathers and shards them."""
        if name == "qconfig":
            raise UnsupportedError(
                f"{type(self).__name__}: expected no quantizer after octavo.prepare, found a qconfig "
                "of torch.ao.quantization; call octavo.restore(model) first, or exclude the layer "
                "with module_filter of octavo.prepare")
        if name == "forward":  # on the instance, where it hides the class's
            value = through(self, value)
        super().__setattr__(name, value)
        weights = self.__dict__.get("octavo_weights", {}).get(name)
        if weights:
            placed(self.octavo_session_ref, weights, value)

    def extra_repr(self):
        """As in torch, and what computes the products: fp8=te/delayed."""
        session = self.__dict__.get("octavo_session_ref")
        recipes = [] if session is None or session.is_closed else sorted({session.recipe_of(s.name) for s in sites_of(self)})
        return ", ".join(filter(None, (super().extra_repr(), f"fp8={'+'.join(recipes)}" if recipes else "")))

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


def sites_of(module):
    """The uses of weights by a converted module, in their order."""
    held = module.__dict__
    sites = held.get("octavo_sites") or held.get("octavo_products") or {"": held.get("octavo_site")}
    flat = [one for site in sites.values() for one in (site if isinstance(site, list) else [site])]
    return [site for site in flat if site is not None]


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


# Shared by the converters: classes that replace a module's class.

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

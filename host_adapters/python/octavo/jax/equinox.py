"""Layers of Equinox through a backend. Imported by programs that use it: import octavo.jax.equinox."""
import equinox
import jax
import jax.numpy as jnp

from ..errors import UnsupportedError
from .layout import Site
from .linear import linear
from .state import init


class Linear(equinox.nn.Linear):
    """An equinox.nn.Linear whose product is one of a State. weight: [N, K], or zeros of shape () where the backend keeps
    it; site: its only leaf is the index of stacked layers."""
    site: Site

    def __init__(self, layer, site, weight):
        self.weight, self.bias, self.site = weight, layer.bias, site
        self.in_features, self.out_features, self.use_bias = layer.in_features, layer.out_features, layer.use_bias

    def __call__(self, x, *, key=None):
        x = jnp.asarray(x)
        if self.in_features == "scalar":
            x = jnp.broadcast_to(x, (1,))
        y = linear(self.site, x.astype(jnp.promote_types(x.dtype, self.weight.dtype)), self.weight, self.bias)
        return jnp.squeeze(y) if self.out_features == "scalar" else y


def _is_module(value):
    return isinstance(value, equinox.Module)


def _modules(model, above=""):
    """(name, module, names of its own arrays with dimensions to multiply by) of a model and all inside."""
    arrays, inside = [], []
    for path, leaf in jax.tree_util.tree_flatten_with_path(model, is_leaf=lambda v: _is_module(v) and v is not model)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if _is_module(leaf):
            inside += _modules(leaf, f"{above}{name}/")
        elif equinox.is_inexact_array(leaf) and leaf.ndim > 1:
            arrays.append(name)
    return [(above[:-1], model, arrays), *inside]


def _reason(layer, arrays):
    """Why a module is not converted; None: it is, or it has no product."""
    if not isinstance(layer, equinox.nn.Linear) or type(layer).__call__ is not equinox.nn.Linear.__call__:
        return f"{type(layer).__name__} multiplies by its {arrays[0]} in its own way" if arrays else None
    if not arrays:
        return "its weight is not an array; is it shared?"
    return None if layer.weight.ndim <= 3 else f"its weight has {layer.weight.ndim} dimensions, and 2 or stacked 3 are a linear"


def prepare(model, config=None, *, overrides=None, device=None):
    """Runs the layers equinox.nn.Linear of a model, and so MultiheadAttention and MLP, through a backend. Returns (the
    State, the model whose layers multiply by it); octavo.jax.report names what else multiplies.

    Layers that equinox.filter_vmap stacked keep their order: scan over them, or vmap, as over the given model's. Other
    arguments and errors as octavo.jax.init; UnsupportedError for a model that is prepared already.
    """
    layers, left_out = {}, {}
    for name, module, arrays in _modules(model):
        if isinstance(module, Linear):
            raise UnsupportedError(f"linear {name}: expected a layer of Equinox, found one of octavo.jax; is the model prepared "
                                   "twice? Prepare the plain one")
        reason = _reason(module, arrays)
        if reason is not None:
            left_out[name or type(module).__name__] = reason
        elif isinstance(module, equinox.nn.Linear):
            layers[name or "Linear"] = module
    state = init({name: layer.weight for name, layer in layers.items()}, config, overrides=overrides, device=device,
                 left_out=left_out)

    def converted(path, module):
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "Linear"
        if name not in state.accepted or name not in layers:
            return module
        spec = state.session.specs[name]
        stack = module.weight.shape[:-2]
        weight = jnp.zeros(stack, spec.dtype) if spec.owns_weight else module.weight
        return Linear(module, state[name], weight)

    return state, jax.tree_util.tree_map_with_path(converted, model, is_leaf=lambda v: isinstance(v, equinox.nn.Linear))

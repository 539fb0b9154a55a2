"""Layers of flax.nnx through a backend."""
import jax.numpy as jnp
from flax import nnx
from jax import lax

from ..errors import UnsupportedError
from .dot_general import dot_general, site_of
from .gradients import is_declined
from .linear import linear
from .state import init


class Linear(nnx.Module):
    """y = x kernel + bias, as nnx.Linear, with the bias added by the backend. kernel: [in_features,
    out_features], None once octavo.jax.prepare gave it to a backend that keeps weights; name: set by
    prepare, or the linear's name in octavo.jax.init. dtype: of the product, None: that of x and kernel.
    """

    def __init__(self, in_features, out_features, *, use_bias=True, dtype=None,
                 param_dtype=jnp.float32, kernel_init=nnx.initializers.lecun_normal(),
                 bias_init=nnx.initializers.zeros_init(), name="", rngs):
        self.in_features, self.out_features, self.dtype, self.name = (
            in_features, out_features, dtype, name)
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.Param(bias_init(rngs.params(), (out_features,), param_dtype)) if use_bias else None

    def __call__(self, x):
        bias = None if self.bias is None else self.bias[...]
        kernel = None if self.kernel is None else self.kernel[...]
        if self.dtype is not None:
            x, kernel, bias = (v if v is None else v.astype(self.dtype) for v in (x, kernel, bias))
        if is_declined(self.name):
            y = x @ kernel
            return y if bias is None else y + bias
        return linear(site_of(self.name), x, None if kernel is None else kernel.T, bias)


def prepare(model, config=None, *, overrides=None, device=None):
    """Runs every nnx.Linear and octavo.jax.Linear of a model through a backend; returns the State.

    The layers are changed in place: each has the name of its path, nnx.Linear gets octavo.jax.dot_general,
    and where the backend keeps weights octavo.jax.Linear gives up its kernel. Other arguments and errors
    as octavo.jax.init; UnsupportedError for an nnx.Linear that already has a dot_general.
    """
    layers = {}
    for path, layer in nnx.iter_graph(model):
        if isinstance(layer, (nnx.Linear, Linear)):
            layers["/".join(map(str, path))] = layer
    weights = {name: layer.kernel[...].T.astype(layer.dtype or layer.kernel.dtype)
               for name, layer in layers.items()}
    for name, layer in layers.items():
        given = [getattr(layer, a, None) for a in ("dot_general", "dot_general_cls")]
        if isinstance(layer, nnx.Linear) and any(g not in (None, lax.dot_general) for g in given):
            raise UnsupportedError(f"linear {name}: expected an nnx.Linear without a dot_general, found one "
                                   "with it; is the model prepared twice? Build a new one")
    state = init(weights, config, overrides=overrides, device=device)
    for name, layer in layers.items():
        owns = name in state.session.specs and state.session.specs[name].owns_weight
        if isinstance(layer, Linear):
            layer.name = name
            if owns:
                layer.kernel = None
        elif owns:
            raise UnsupportedError(f"linear {name}: expected octavo.jax.Linear, since "
                                   f"{state.session.run.backend} keeps its weight, found nnx.Linear; use the former in the model, or "
                                   "fp8.backend = \"te\"")
        else:
            layer.dot_general = dot_general(name)
    return state

"""Layers of flax.nnx through a backend."""
import jax.numpy as jnp
from flax import nnx
from jax import lax

from ..errors import UnsupportedError
from . import gradients
from .dot_general import Equation, dot_general, einsum, sides
from .linear import linear
from .state import init

gradients.MUTABLE.append(nnx.Module)


def _put(optimizer, state):
    nnx.update(optimizer.opt_state, nnx.state(state))
    return optimizer


gradients.CARRIERS[nnx.Optimizer] = lambda optimizer: nnx.as_pure(optimizer.opt_state), _put


class Linear(nnx.Module):
    """y = x kernel + bias, as nnx.Linear, with the bias added by the backend. kernel: [in_features, out_features], or zeros
    of shape () once octavo.jax.prepare gave it to a backend that keeps weights; site: set by prepare, None: the product is
    JAX's own. dtype: of the product, None: the dtype of x and kernel.
    """

    def __init__(self, in_features, out_features, *, use_bias=True, dtype=None,
                 param_dtype=jnp.float32, kernel_init=nnx.initializers.lecun_normal(),
                 bias_init=nnx.initializers.zeros_init(), site=None, rngs):
        self.in_features, self.out_features, self.dtype, self.site = in_features, out_features, dtype, nnx.static(site)
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.Param(bias_init(rngs.params(), (out_features,), param_dtype)) if use_bias else None

    def __call__(self, x):
        kernel, bias = self.kernel[...], None if self.bias is None else self.bias[...]
        if self.dtype is not None:
            x, kernel, bias = (v if v is None else v.astype(self.dtype) for v in (x, kernel, bias))
        if self.site is None:
            y = x @ kernel
            return y if bias is None else y + bias
        return linear(self.site, x, kernel.T, bias)


class Embed(nnx.Embed):
    """An nnx.Embed after octavo.jax.prepare: its head `attend` multiplies by the embedding through the backend."""

    def attend(self, query, out_sharding=None):
        query, embedding = self.promote_dtype((query, self.embedding[...]), dtype=self.dtype)
        return linear(self.site, query, embedding)


def _contracted(layer):
    """(Dimensions of a stack of kernels, 0 or 1, the axes of one kernel in its product), or the reason why a layer is not
    converted; None: it has no product by a kernel."""
    if isinstance(layer, (Linear, nnx.Linear)):
        ndim, axes = 2, [0]
    elif isinstance(layer, nnx.LinearGeneral):
        ndim, axes = len(layer.in_features) + len(layer.out_features), list(range(len(layer.in_features)))
        if layer.batch_axis:
            return "its kernel has batch dimensions"
    elif isinstance(layer, nnx.Einsum):
        equation = "no equation" if layer.einsum_str is None else Equation.of(layer.einsum_str)
        if isinstance(equation, str):
            return f"{equation} in its constructor" if layer.einsum_str is None else equation
        ndim, axes = len(equation.weight), equation.contracted
    elif type(layer) is nnx.Embed:
        ndim, axes = 2, [1]
    else:
        weights = [name for name, value in vars(layer).items()
                   if isinstance(value, nnx.Param) and jnp.ndim(value.get_value()) > 1]
        return f"{type(layer).__name__} multiplies by its {weights[0]} in its own way" if weights else None
    found = jnp.ndim(_kernel(layer))
    if found - ndim not in (0, 1):
        return f"its kernel has {found} dimensions, and {ndim} are a linear"
    return found - ndim, axes


def _kernel(layer):
    return (layer.embedding if isinstance(layer, nnx.Embed) else layer.kernel).get_value()


def _own_op(layer):
    """The attribute of a layer that replaces JAX's product, or None."""
    given = {"dot_general": (None, lax.dot_general), "dot_general_cls": (None,), "einsum_op": (jnp.einsum,)}
    return next((name for name, plain in given.items() if getattr(layer, name, plain[0]) not in plain), None)


def _is_ours(layer):
    ops = (getattr(layer, name, None) for name in ("dot_general", "einsum_op"))
    return getattr(layer, "site", None) is not None or any(isinstance(op, (dot_general, einsum)) for op in ops)


def prepare(model, config=None, *, overrides=None, device=None):
    """Runs the layers of a model that multiply by a kernel through a backend; returns the State.

    These are nnx.Linear, LinearGeneral (and so MultiHeadAttention), Einsum, the head nnx.Embed.attend, and octavo.jax.Linear;
    octavo.jax.report names the others. They are changed in place: flax's layers get octavo.jax's dot_general, einsum or
    attend, and where the backend keeps weights octavo.jax.Linear gives up its kernel. Other arguments and errors as
    octavo.jax.init; UnsupportedError for a model that is prepared already.
    """
    layers, weights, left_out = {}, {}, {}
    for path, layer in nnx.iter_graph(model):
        axes = _contracted(layer) if isinstance(layer, nnx.Module) else None
        name = "/".join(map(str, path)) + (".attend" if isinstance(layer, nnx.Embed) else "")
        if axes is not None and _is_ours(layer):
            raise UnsupportedError(f"linear {name}: expected a layer of flax, found one of octavo.jax; is the model prepared "
                                   "twice? Build a new one")
        if axes is not None and not isinstance(axes, str) and _own_op(layer):
            axes = f"it has its own {_own_op(layer)}"
        if isinstance(axes, str):
            left_out[name] = axes
        elif axes is not None:
            kernel, (stack, axes) = _kernel(layer), axes
            (n, k), free, contracted = sides(kernel.shape[stack:], axes)
            order = [*range(stack), *(stack + axis for axis in (*free, *contracted))]
            layers[name] = layer
            weights[name] = kernel.transpose(order).reshape(*kernel.shape[:stack], n, k).astype(layer.dtype or kernel.dtype)
    open_run = lambda: init(weights, config, overrides=overrides, device=device, left_out=left_out)  # noqa: E731
    state = open_run()
    backend = state.session.run.backend
    owned = {name for name, spec in state.session.specs.items() if spec.owns_weight}
    heads = {name for name in owned if isinstance(layers[name], nnx.Embed)}
    if heads:
        state.session.close()
        left_out.update(dict.fromkeys(heads, f"{backend} would keep the embedding, which is also looked up"))
        weights = {name: weight for name, weight in weights.items() if name not in heads}
        state, owned = open_run(), owned - heads
    for name, spec in state.session.specs.items():
        if spec.count > 1:
            state.session.close()
            raise UnsupportedError(f"linear {name}: expected one layer, found {spec.count} that flax.nnx stacked, whose scales "
                                   "nnx.scan does not slice; make a list of layers and call them in a loop, use flax.linen, or "
                                   f"leave these to JAX: layers.skip = \"{name}.*\"")
    for name in owned:
        if not isinstance(layers[name], Linear):
            state.session.close()
            raise UnsupportedError(f"linear {name}: expected octavo.jax.Linear, since {backend} keeps its "
                                   f"weight, found {type(layers[name]).__name__}; use the former in the model, or "
                                   "fp8.backend = \"te\"")
    for name in state.accepted:
        layer, site = layers[name], state[name]
        if isinstance(layer, (Linear, nnx.Embed)):
            layer.site = nnx.static(site)
            if isinstance(layer, nnx.Embed):
                object.__setattr__(layer, "__class__", Embed)
            if name in owned:
                layer.kernel[...] = jnp.zeros((), layer.kernel.dtype)
        elif isinstance(layer, nnx.Einsum):
            layer.einsum_op = einsum(site)
        else:
            layer.dot_general = dot_general(site)
    return state

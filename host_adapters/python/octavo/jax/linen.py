"""Layers of flax.linen through a backend."""
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util

from . import gradients
from .dot_general import dot_general, site_of
from .linear import linear
from .state import init

COLLECTION = "octavo"  # of variables: Sites for the layers of nn.scan, which slices them


class DotGeneral(nn.Module):
    """For the argument dot_general_cls of flax's layers: octavo.jax.dot_general by the path of the layer.
    In `init` of a model it is JAX's own."""

    @nn.compact
    def __call__(self, lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None):
        if self.is_initializing():
            return jax.lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
        name = "/".join(self.path[:-1])
        with _own_site(self, name):
            return dot_general(name)(lhs, rhs, dimension_numbers, precision, preferred_element_type)


class Dense(nn.Module):
    """y = x kernel + bias, as nn.Dense, with the bias added by the backend; without a kernel among the
    parameters where octavo.jax.linen.prepare gave it to a backend that keeps weights."""
    features: int
    use_bias: bool = True
    dtype: object = None
    param_dtype: object = jnp.float32
    kernel_init: object = nn.initializers.lecun_normal()
    bias_init: object = nn.initializers.zeros_init()

    @nn.compact
    def __call__(self, x):
        name, k = "/".join(self.path), x.shape[-1]
        found, is_plain = gradients.discovery(), self.is_initializing() or gradients.is_declined(name)
        with _own_site(self, name):
            site = None if is_plain or found is not None else site_of(name)
        owns = site is not None and site.spec.owns_weight
        kernel = None if owns else self.param("kernel", self.kernel_init, (k, self.features),
                                              self.param_dtype)
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype) \
            if self.use_bias else None
        if self.dtype is not None:
            x, kernel, bias = (v if v is None else v.astype(self.dtype) for v in (x, kernel, bias))
        if found is not None:
            found[name] = jax.ShapeDtypeStruct((self.features, k), kernel.dtype)
        if site is not None:
            return linear(site, x, None if owns else kernel.T, bias)
        y = x @ kernel
        return y if bias is None else y + bias


def _own_site(module, name):
    if not module.has_variable(COLLECTION, "site"):
        return gradients.use({})
    return gradients.use({name: module.get_variable(COLLECTION, "site")})


def variables():
    """The collection `octavo` for a model with nn.scan, of the sites in use: give it to apply, and let
    nn.scan have variable_axes {"params": 0, "octavo": 0}."""
    out = {}
    for name, site in gradients.current().items():
        path = tuple(name.split("/"))
        out[(*path, "DotGeneral_0", "site")] = out[(*path, "site")] = site
    return traverse_util.unflatten_dict(out)


def prepare(model, variables, *inputs, config=None, overrides=None, device=None, **options):
    """Runs every layer of a model that has DotGeneral or is an octavo.jax.linen.Dense through a backend.

    variables: of model.init; inputs, options: what model.apply takes, arrays or shapes. Returns (the State,
    variables without the kernels that the backend keeps). Other arguments and errors as octavo.jax.init.
    """
    with gradients.discover() as found:
        jax.eval_shape(lambda v, *a: model.apply(v, *a, **options), variables, *inputs)
    flat = traverse_util.flatten_dict(variables)
    kernels = {name: ("params", *name.split("/"), "kernel") for name in found}
    values = {name: flat[key].T.astype(found[name].dtype) if flat[key].shape == found[name].shape[::-1]
              else found[name] for name, key in kernels.items()}
    state = init(values, config, overrides=overrides, device=device)
    for name, spec in state.session.specs.items():
        if spec.owns_weight:
            del flat[kernels[name]]
    return state, traverse_util.unflatten_dict(flat)

"""Layers of flax.linen through a backend, by flax's interception of their methods: the model and its parameters stay as
they are."""
import contextlib
import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util
from jax import lax

from ..errors import InvalidError, UnsupportedError
from .dot_general import Equation, dot_general, einsum, sides
from .linear import around, linear
from .state import init

COLLECTION = "octavo"  # of variables: the sites of stacked layers, which nn.scan slices


@dataclasses.dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a model, for octavo.jax.init."""
    model: nn.Module

    def tracing(self, session):
        """A context where they multiply by the sites of a session."""
        return nn.intercept_methods(_Model(session).intercept)


def variables(state):
    """The collection `octavo` for a model with nn.scan, whose variable_axes has "octavo": 0: give it to apply."""
    stacked = {tuple(name.split("/")): name for name, spec in state.session.specs.items() if spec.count > 1}
    return traverse_util.unflatten_dict({(*path, "site"): state[name] for path, name in stacked.items()})


def _is_same(a, b):
    """Whether two modules are one model, bound or not: copies that flax makes have other parents."""
    if isinstance(a, nn.Module) or isinstance(b, nn.Module):
        return type(a) is type(b) and all(_is_same(getattr(a, field.name), getattr(b, field.name))
                                          for field in dataclasses.fields(a) if field.name not in ("parent", "name"))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or a == b


def _name(module, method):
    return ("/".join(module.path) or type(module).__name__) + ("" if method == "__call__" else f".{method}")


def _is_layer(module, method):
    return (method == "__call__" and isinstance(module, (nn.Dense, nn.DenseGeneral, nn.Einsum))
            or method == "attend" and isinstance(module, nn.Embed))


class _Model:
    """The interceptor that flax calls while a function with a session's state is traced."""

    def __init__(self, session):
        self.session, self.inside = session, []  # a call of a model, and whether it is the session's

    def intercept(self, next_function, args, kwargs, context):
        module, method = context.module, context.method_name
        if module.path:
            return self._layer(module, method, next_function, args, kwargs)
        self.inside.append(self._is_own(module))
        try:
            return self._layer(module, method, next_function, args, kwargs)
        finally:
            self.inside.pop()

    def _layer(self, module, method, next_function, args, kwargs):
        name = _name(module, method)
        is_own = self.inside and self.inside[-1] and _is_layer(module, method)
        spec = self.session.specs.get(name) if is_own else None
        if spec is None or module.is_initializing():
            return next_function(*args, **kwargs)
        site = spec.site if spec.count == 1 else self._stacked(module, name)
        if spec.owns_weight:
            return _kept(module, site, *args, **kwargs)
        if isinstance(module, nn.Embed):
            return _attend(module, *args, product=lambda x, weight: linear(site, x, weight), **kwargs)
        if isinstance(module, nn.Einsum):
            return _einsum(module, *args, product=einsum(site), **kwargs)
        return _dense(module, next_function, args, kwargs, dot_general(site))

    def _is_own(self, module):
        """Whether the innermost states around have this session for a model."""
        for sessions in around.value:
            found = [session for session in sessions
                     if session.layers is not None and _is_same(session.layers.model, module)]
            if len(found) > 1:
                raise InvalidError(f"state: expected one State of the model {type(module).__name__}, found {len(found)} in one "
                                   "call; give one of them to octavo.jax.evaluate, for a separate function")
            if found:
                return found[0] is self.session
        return False

    def _stacked(self, module, name):
        if module.has_variable(COLLECTION, "site"):
            return module.get_variable(COLLECTION, "site")
        raise InvalidError(f"linear {name}: expected the collection {COLLECTION} of octavo.jax.linen.variables(state) among "
                           "the variables, since nn.scan stacks the layer, found none; give it to apply, and nn.scan "
                           f"variable_axes={{..., \"{COLLECTION}\": 0}}")


def _dense(module, next_function, args, kwargs, product):
    with contextlib.ExitStack() as stack:
        for name, value in (("dot_general", product), ("dot_general_cls", None)):
            stack.callback(object.__setattr__, module, name, getattr(module, name))
            object.__setattr__(module, name, value)
        return next_function(*args, **kwargs)


def _kept(module, site, inputs):
    """nn.Dense by a backend that keeps its weight: the kernel among the parameters stands for it."""
    kernel, bias = (module.get_variable("params", name) for name in ("kernel", "bias"))
    inputs, kernel, bias = module.promote_dtype(inputs, kernel, bias if module.use_bias else None, dtype=module.dtype)
    return linear(site, inputs, kernel, bias)


def _attend(module, query, *, product):
    query, embedding = module.promote_dtype(query, module.get_variable("params", "embedding"), dtype=module.dtype)
    return product(query, embedding)


def _einsum(module, inputs, einsum_str=None, *, product):
    text = module.einsum_str or einsum_str
    kernel = module.get_variable("params", "kernel")
    bias = module.get_variable("params", "bias") if module.use_bias else None
    inputs, kernel, bias = module.promote_dtype(inputs, kernel, bias, dtype=module.dtype)
    y = product(text, inputs, kernel)
    if bias is None:
        return y
    equation = Equation.of(text)
    of_y = equation.y.replace(".", "." * (y.ndim - len(equation.y) + 1))
    sizes = dict(zip(equation.weight, kernel.shape))
    return y + bias.reshape([sizes.get(c, 1) for c in of_y])


class _Found:
    """The layers that a trace of the model calls: name -> (path of its weight, shape, contracted axes, dtype), and reasons."""

    def __init__(self):
        self.layers, self.left_out, self.dense = {}, {}, {}

    def intercept(self, next_function, args, kwargs, context):
        module, method = context.module, context.method_name
        name = _name(module, method)
        if isinstance(module, (nn.Dense, nn.DenseGeneral)):
            if method != "__call__":
                return next_function(*args, **kwargs)
            if module.dot_general not in (None, lax.dot_general) or module.dot_general_cls is not None:
                self.left_out[name] = "it has its own dot_general"
                return next_function(*args, **kwargs)
            self.dense[name] = isinstance(module, nn.Dense)
            return _dense(module, next_function, args, kwargs, self._noting(name, module.path))
        if isinstance(module, nn.Einsum) and method == "__call__":
            equation = Equation.of(module.einsum_str or (args[1] if len(args) > 1 else kwargs["einsum_str"]))
            if isinstance(equation, str):
                self.left_out[name] = equation
            else:
                def product(text, x, weight):
                    self.layers[name] = (*module.path, "kernel"), weight.shape, equation.contracted, weight.dtype
                    return jnp.einsum(text, x, weight)
                return _einsum(module, *args, product=product, **kwargs)
        elif _is_layer(module, method):
            def product(x, weight):
                self.layers[name] = (*module.path, "embedding"), weight.shape, [1], weight.dtype
                return jnp.dot(x, weight.T)
            return _attend(module, *args, product=product, **kwargs)
        elif method == "__call__" and module.has_variable("params", "kernel"):
            self.left_out[name] = f"{type(module).__name__} multiplies by its kernel in its own way"
        return next_function(*args, **kwargs)

    def _noting(self, name, path):
        def product(lhs, rhs, dimension_numbers, *args, **options):
            (_, contracted), batch_dims = dimension_numbers
            if any(map(len, batch_dims)):
                self.left_out[name] = "its kernel has batch dimensions"
            else:
                self.layers[name] = (*path, "kernel"), rhs.shape, list(contracted), rhs.dtype
            return lax.dot_general(lhs, rhs, dimension_numbers, *args, **options)
        return product


def prepare(model, variables, *inputs, config=None, overrides=None, device=None, **options):
    """Runs the layers of a model that multiply by a kernel through a backend. Returns (the State, variables for apply).

    These are nn.Dense, DenseGeneral (and so MultiHeadDotProductAttention), Einsum, and the head nn.Embed.attend, wherever
    model.apply runs in a function given to octavo.jax.value_and_grad, record or evaluate; octavo.jax.report names the
    others. Outside of them the model is JAX's own. variables: of model.init; inputs, options: what model.apply takes,
    arrays or shapes. A backend that keeps weights takes nn.Dense only, whose kernels are zeros of shape () in the variables
    that are returned. Other arguments and errors as octavo.jax.init.
    """
    found = _Found()
    with nn.intercept_methods(found.intercept):
        jax.eval_shape(lambda v, *a: model.apply(v, *a, **options), variables, *inputs)
    flat, weights, kernels = traverse_util.flatten_dict(variables), {}, {}
    for name, (path, shape, axes, dtype) in found.layers.items():
        kernels[name] = "params", *path
        kernel = flat[kernels[name]]
        (n, k), free, contracted = sides(shape, axes)
        stack = kernel.ndim - len(shape)  # of nn.scan
        order = [*range(stack), *(stack + axis for axis in (*free, *contracted))]
        weights[name] = jax.ShapeDtypeStruct((*kernel.shape[:stack], n, k), dtype) \
            if isinstance(kernel, jax.ShapeDtypeStruct) else \
            jnp.transpose(kernel, order).reshape(*kernel.shape[:stack], n, k).astype(dtype)
    state = init(weights, config, overrides=overrides, device=device, left_out=found.left_out,
                 layers=Layers(model))
    backend = state.session.run.backend
    for name, spec in state.session.specs.items():
        if spec.owns_weight and not found.dense.get(name):
            state.session.close()
            raise UnsupportedError(f"linear {name}: expected nn.Dense, since {backend} keeps its weight, "
                                   "found another layer; use nn.Dense in the model, or fp8.backend = \"te\"")
        if spec.owns_weight:
            flat[kernels[name]] = jnp.zeros((), spec.dtype)
    return state, traverse_util.unflatten_dict(flat)

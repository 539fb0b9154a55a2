"""y = x w^T + b as operations that JAX traces before there is a state: `binding` gives them one.

A traced operation names its linear and holds none of the state's arrays, so whatever JAX keeps of a trace, in caches of
jit, checkpoint or custom_vjp, is right with every state. One that runs without a state is a StateError.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .. import _abi
from ..errors import InvalidError, StateError, UnsupportedError
from . import verbs
from .ffi import DB, DW, DX, OCTAVO_DTYPES, varying


# Of the states around a trace, the innermost first: tuples of sessions. JAX's caches have it in their keys, and no array
# is in it.
around = jax.make_user_context(())


def site_of(name):
    """The Site of a name in the innermost states around that have it. Raises StateError or InvalidError."""
    for sessions in around.value:
        found = [session.specs[name] for session in sessions if name in session.specs]
        if len(found) > 1:
            raise InvalidError(f"linear {name}: expected a name that one of the states around has, found it in {len(found)}; "
                               f"give octavo.jax.linear the site of one, state[\"{name}\"]")
        if found:
            return found[0].site
    known = dict.fromkeys(name for sessions in around.value for session in sessions for name in session.specs)
    raise StateError(f"linear {name}: expected a State around that has it, found {', '.join(known) or 'none'}; call the "
                     "function by octavo.jax.value_and_grad, record or evaluate, with the state as the first argument")


def linear(site, x, weight, bias=None):
    """y = x weight^T + bias through the backend.

    site: of a State, state["up"], or its name in the state around; x: [..., K] in float32, bfloat16 or float16; weight:
    [N, K] in the dtype at octavo.jax.init, or where the backend keeps it the array that stands for it in the program's parameters, whose values
    are not read; bias: [N] or None, added in the dtype of x. Returns y [..., N] in x's dtype. For functions given to
    octavo.jax.value_and_grad, record and evaluate, at any depth of jit, checkpoint, scan, cond, vmap and grad.
    Any thread. Raises InvalidError or UnsupportedError while JAX traces.
    """
    site = site_of(site) if isinstance(site, str) else site
    spec = site.spec
    x, weight = jnp.asarray(x), None if weight is None else jnp.asarray(weight)
    _check_operand(spec, "x", x, spec.k)
    _check_taken(spec, x)
    if spec.count > 1 and (site.index is None or jnp.ndim(site.index)):
        raise InvalidError(f"linear {spec.name}: expected one of {spec.count} stacked linears, found the site of all; give "
                           "the site to lax.scan or jax.vmap with the weights")
    if spec.owns_weight:
        if weight is None or not jnp.issubdtype(weight.dtype, jnp.inexact):
            raise InvalidError(f"linear {spec.name}: weight: expected a float array of the parameters, so that JAX "
                               "differentiates by it, found none; the backend keeps the values, so jnp.zeros(()) does")
    elif weight is None or weight.shape != (spec.n, spec.k) or weight.dtype != spec.dtype:
        raise InvalidError(
            f"linear {spec.name}: weight: expected [{spec.n}, {spec.k}] of {np.dtype(spec.dtype).name}, as at "
            "octavo.jax.init, found " + ("none" if weight is None else f"{list(weight.shape)} of {weight.dtype.name}")
            + "; is this the state of another model? Call octavo.jax.init with the model as it is now")
    if bias is not None:
        bias = jnp.asarray(bias)
        _check_operand(spec, "bias", bias, spec.n)
    # In shard_map JAX then adds the gradients of what ranks share.
    x, weight, bias = varying((x, weight, bias), (x, weight, bias))
    return bind(linear_p, spec, x=x, weight=weight, bias=bias, index=site.index)[0]


def _check_operand(spec, what, value, cols):
    where = f"linear {spec.name}: {what}"
    if np.dtype(value.dtype) not in OCTAVO_DTYPES:
        raise InvalidError(f"{where}: expected float32, bfloat16 or float16, found {value.dtype.name}; cast it: "
                           f"{what}.astype(jnp.float32)"
                           + (", or leave jax_enable_x64 off" if value.dtype == np.float64 else ""))
    if value.ndim == 0 or value.shape[-1] != cols:
        raise InvalidError(f"{where}: expected a last dimension of {cols}, found shape "
                           f"{list(value.shape)}; is this the state of another model?")


def _check_taken(spec, x):
    declined = [_abi.DECLINES[code] & spec.plan.flags for code in OCTAVO_DTYPES.values()]
    taken = [dtype.name for dtype, flag in zip(OCTAVO_DTYPES, declined) if not flag]
    if x.dtype.name not in taken:
        raise UnsupportedError(f"linear {spec.name}: x: expected {' or '.join(taken)}, which the backend takes, found "
                               f"{x.dtype.name}; cast it: x.astype(jnp.{taken[0]})")


# linear: x, weight, bias -> y. Differentiated: forward: -> y, saved, ...; tangent: the tangents of x, weight and bias ->
# that of y, of which JAX takes the transpose; backward: dy, saved, ... -> dx, dw, db. All have index, and reads where
# octavo.jax.evaluate has bound them.
linear_p, forward_p, tangent_p, backward_p = OPERATIONS = tuple(
    Primitive(f"octavo_{name}") for name in ("linear", "forward", "tangent", "backward"))
# The tangent of what backward gives: a second derivative, which is an error where it is used.
second_p = Primitive("octavo_second")


def bind(primitive, spec, static=None, **operands):
    """One operation; operands are pytrees. static: of backward (what is wanted, the dtype of db), of tangent (the shape and
    dtype of y, and the dtype of db)."""
    leaves, tree = jax.tree.flatten(operands)
    return primitive.bind(*leaves, spec=spec, tree=tree, static=static)


def unbound(primitive, spec):
    """The error of an operation without a state."""
    if primitive is tangent_p:
        return UnsupportedError(f"linear {spec.name}: expected reverse-mode differentiation, found forward mode (jax.jvp, "
                                "jacfwd or linearize); use jax.grad, vjp or jacrev")
    return StateError(f"linear {spec.name}: expected a State, found none: its function runs outside of "
                      "octavo.jax.value_and_grad, record and evaluate; call it by one of them, with the state as the first "
                      "argument")


def is_bound(operands):
    """Whether octavo.jax.evaluate has given an operation its arrays."""
    return "reads" in operands or "reads" in operands.get("residual", ())


def run(primitive, spec, static, operands, reads, record, is_evaluation=False):
    """Computes an operation other than tangent, with the arrays of one linear. Returns (results, the new record)."""
    x, weight, bias = (operands.get(name) for name in ("x", "weight", "bias"))
    weight = None if spec.owns_weight else weight
    if primitive is backward_p:
        return verbs.backward(spec, operands["dy"], x, operands["saved"], weight, reads, *static, record)
    y, saved, record = verbs.forward(spec, x, weight, bias, reads, record, primitive is forward_p, is_evaluation)
    return [y, *saved], record


def _computed(primitive, *leaves, spec, tree, static):
    """An operation of octavo.jax.evaluate: it reads, and nothing is recorded."""
    operands = jax.tree.unflatten(tree, leaves)
    if "reads" not in operands or primitive is tangent_p:
        raise unbound(primitive, spec)
    record = None
    if primitive is backward_p:
        record = verbs.empty_record(spec, {p.slot: jnp.zeros(p.shape, p.dtype) for p in spec.gradient_slots})
    return run(primitive, spec, static, operands, operands["reads"], record, is_evaluation=True)[0]


def _like(aval, shape, dtype):
    """An abstract array that varies over the ranks of shard_map as another does."""
    sharding = aval.sharding.update(spec=jax.sharding.PartitionSpec(*(None,) * len(shape)))
    return aval.update(shape=shape, dtype=np.dtype(dtype), sharding=sharding, weak_type=False)


def _abstract(primitive, *avals, spec, tree, static):
    operands = jax.tree.unflatten(tree, avals)
    if primitive is backward_p:
        dy, (wanted, bias_dtype) = operands["dy"], static
        shapes = {DX: ((*dy.shape[:-1], spec.k), dy.dtype), DW: ((spec.n, spec.k), spec.dtype),
                  DB: ((spec.n,), bias_dtype)}
        return [_like(dy, *shapes[bit]) for bit in shapes if wanted & bit]
    if primitive is tangent_p:
        return [_like(operands["residual"]["saved"][0], *static[:2])]
    x = operands["x"]
    y = _like(x, (*x.shape[:-1], spec.n), x.dtype)
    if primitive is linear_p:
        return [y]
    rows = int(np.prod(x.shape[:-1]))
    return [y, _like(x, (spec.plan.saved.bytes(rows),), np.uint8),
            *(_like(x, p.shape, p.dtype) for p in verbs.made_by_quantize(spec))]


def _is_zero(tangent):
    return isinstance(tangent, ad.Zero)


def _zero(value):
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def _differentiated(primitive, primals, tangents, *, spec, tree, static):
    operands = jax.tree.unflatten(tree, primals)
    all_tangents = jax.tree.unflatten(tree, tangents)
    moving = {name: all_tangents[name] for name in ("x", "weight", "bias")
              if all_tangents.get(name) is not None and not _is_zero(all_tangents[name])}
    if not moving:
        out = primitive.bind(*primals, spec=spec, tree=tree, static=static)
        return out, list(map(_zero, out))
    if "weight" in moving and spec.is_frozen:
        raise InvalidError(f"linear {spec.name}: expected no gradient of a weight that octavo.jax.init got as frozen, found one; "
                           "stop it with jax.lax.stop_gradient(weight), or call octavo.jax.init without it in frozen")
    y, *saved = out = bind(forward_p, spec, **operands)
    residual = {"saved": saved, "index": operands.get("index"),
                "x": operands["x"] if spec.plan.flags & _abi.LINEAR_NEEDS_X else None,
                "weight": operands["weight"] if any(p.is_native and p.access == _abi.ACCESS_READ for p in spec.backward)
                else None, **({"reads": operands["reads"]} if "reads" in operands else {})}
    static = y.shape, y.dtype, moving["bias"].dtype if "bias" in moving else None
    tangent = bind(tangent_p, spec, static, moving=moving, residual=residual)
    return ([y], tangent) if primitive is linear_p else (out, [*tangent, *map(_zero, saved)])


def _transposed(cotangents, *leaves, spec, tree, static):
    (dy,), operands = cotangents, jax.tree.unflatten(tree, leaves)
    moving, residual = operands["moving"], operands["residual"]
    out = {name: None for name in moving}
    if not _is_zero(dy):
        of_weight = {} if spec.gradient_slots else {"weight": DW}
        bits = {"x": DX, **of_weight, "bias": DB}
        wanted = sum(bit for name, bit in bits.items() if name in moving)
        if "weight" not in moving:
            wanted |= _abi.BACKWARD_SKIP_WEIGHT
        elif spec.gradient_slots and "reads" in residual:
            raise UnsupportedError(
                f"linear {spec.name}: expected a gradient in octavo.jax.value_and_grad or record, whose state keeps it, found "
                "one through octavo.jax.evaluate; give evaluate parameters of jax.lax.stop_gradient")
        found = bind(backward_p, spec, (wanted, static[2]), dy=dy, **residual)
        out.update(zip((name for name in bits if name in moving), found))
        if spec.gradient_slots and "weight" in moving:  # its gradient is in the state
            aval = moving["weight"].aval
            out["weight"] = varying(jnp.zeros(aval.shape, aval.dtype), dy)
    given = jax.tree.map(lambda _: None, operands, is_leaf=ad.is_undefined_primal)
    given["moving"] = out
    return tree.flatten_up_to(given)


def _second(primals, tangents, **parameters):
    out = backward_p.bind(*primals, **parameters)
    moving = [t for t in tangents if not _is_zero(t)]
    return out, second_p.bind(*moving, name=parameters["spec"].name, avals=tuple(
        (v.shape, v.dtype) for v in out)) if moving else list(map(_zero, out))


def _refused(*_, name, **__):
    raise UnsupportedError(
        f"linear {name}: expected a first derivative, found one of its gradient, which an FP8 product does not have; stop it "
        "with jax.lax.stop_gradient(gradient), or take the layer out with layers.skip")


def _refused_cotangents(cotangents, *tangents, **parameters):
    return [None] * len(tangents) if all(map(_is_zero, cotangents)) else _refused(**parameters)


def _second_in_a_batch(values, axes, *, name, avals):
    size = next(v.shape[a] for v, a in zip(values, axes) if a is not None)
    return second_p.bind(*values, name=name, avals=tuple(((size, *shape), d) for shape, d in avals)), [0] * len(avals)


def _batched(primitive, values, axes, **parameters):
    """vmap. Examples of one weight are rows of one batch; all else is a loop, each round of it a use."""
    is_mapped = [a is not None for a in axes]
    values = [jnp.moveaxis(v, a, 0) if m else v for v, a, m in zip(values, axes, is_mapped)]
    if primitive is linear_p and sum(is_mapped) == 1 and jax.tree.unflatten(parameters["tree"], is_mapped)["x"]:
        return primitive.bind(*values, **parameters), [0]

    def one(mapped):
        mapped = iter(mapped)
        return primitive.bind(*(next(mapped) if m else v for v, m in zip(values, is_mapped)), **parameters)

    out = lax.map(one, [v for v, m in zip(values, is_mapped) if m])
    return out, [0] * len(out)


def _define(primitive):
    computed = functools.partial(_computed, primitive)
    primitive.multiple_results = True
    primitive.def_impl(lambda *leaves, **p: jax.jit(functools.partial(computed, **p))(*leaves))
    primitive.def_abstract_eval(functools.partial(_abstract, primitive))
    mlir.register_lowering(primitive, mlir.lower_fun(computed, multiple_results=True))
    batching.primitive_batchers[primitive] = functools.partial(_batched, primitive)


for one in OPERATIONS:
    _define(one)
for one in (linear_p, forward_p):
    ad.primitive_jvps[one] = functools.partial(_differentiated, one)
ad.primitive_transposes[tangent_p] = _transposed
ad.primitive_jvps[backward_p] = _second
second_p.multiple_results = True
second_p.def_impl(_refused)
second_p.def_abstract_eval(lambda first, *_, name, avals: [_like(first, *aval) for aval in avals])
mlir.register_lowering(second_p, mlir.lower_fun(_refused, multiple_results=True))
batching.primitive_batchers[second_p] = _second_in_a_batch
ad.primitive_jvps[second_p] = lambda primals, tangents, **parameters: _refused(**parameters)
ad.primitive_transposes[second_p] = _refused_cotangents

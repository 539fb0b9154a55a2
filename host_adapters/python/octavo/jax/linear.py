"""y = x w^T + b by a backend, differentiable: the only place that calls its linear verbs.

A call quantizes the weight, so codes never outlive the weight that they were made of. What casts
record comes back as the cotangent of the site's record, see cotangents.
"""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _abi
from ..errors import InvalidError
from .cotangents import MAXIMUM, array_of, once
from .ffi import BIAS, DB, DW, DX, OCTAVO_DTYPES, SAVE, varying, verb
from .layout import accumulators


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(eq=False)
class Site:
    """A linear with the slots that its verbs read: a pytree whose leaves may be traced, and stacked
    for lax.scan. record: what its uses record in, or None: nothing."""
    spec: object
    reads: dict
    record: object = None

    def tree_flatten(self):
        return (self.reads, self.record), self.spec

    @classmethod
    def tree_unflatten(cls, spec, children):
        return cls(spec, *children)


def empty_record(spec, gradient):
    """A record in which nothing is recorded. gradient: slot id -> the gradient slots that uses add
    to. Leaves of `count` > 1 are stacked."""
    stacked = (spec.count,) if spec.count > 1 else ()
    sums = len(spec.indices(_abi.COMBINE_SUM)) + bool(spec.gradient_slots)  # and the number of uses
    maxima = jnp.zeros((*stacked, len(spec.indices(_abi.COMBINE_MAX))), jnp.float32)
    # In shard_map each rank's own, or JAX would add up what the ranks record.
    axes = tuple(jax.sharding.get_abstract_mesh().manual_axes)
    maxima, sums = (lax.pcast(v, axes, to="varying") if axes else v
                    for v in (maxima, jnp.zeros((*stacked, sums), jnp.float32)))
    return {"max": maxima, "sum": sums, "gradient": gradient}


def differentiable(record):
    """A record as what is differentiated by."""
    return {**record, "max": lax.convert_element_type(record["max"], MAXIMUM),
            "gradient": {id: lax.convert_element_type(g, once(g.dtype))
                         for id, g in record["gradient"].items()}}


def plain(record):
    """The reverse. An unused site's maximum is -inf there, and 0 here."""
    return {**record, "max": jnp.maximum(array_of(record["max"]), 0),
            "gradient": {id: array_of(g) for id, g in record["gradient"].items()}}


def linear(site, x, weight=None, bias=None, *, evaluation=False):
    """y = x weight^T + bias through the backend.

    site: a Site of a state; x: [..., K] in float32, bfloat16 or float16; weight: [N, K] in the dtype
    at octavo.jax.init, None where the backend owns it; bias: [N] or None, added in the dtype of x;
    evaluation: the model is not being trained, and the backend may compute in the host's
    precision. Returns y [..., N] in x's dtype.
    Differentiable by x, weight and bias; works under jit, checkpoint, scan and shard_map, not under
    vmap. Any thread. Raises InvalidError or UnsupportedError while JAX traces.
    """
    spec = site.spec
    x = jnp.asarray(x)
    _check_operand(spec, "x", x, spec.k)
    if spec.owns_weight:
        weight = None
    else:
        if weight is None:
            raise InvalidError(f"linear {spec.name}: expected its weight [{spec.n}, {spec.k}], found "
                               "none; the backend keeps no weight of its own")
        weight = jnp.asarray(weight)
        if weight.shape != (spec.n, spec.k) or weight.dtype != spec.dtype:
            raise InvalidError(
                f"linear {spec.name}: weight: expected [{spec.n}, {spec.k}] of "
                f"{np.dtype(spec.dtype).name}, as at octavo.jax.init, found {list(weight.shape)} of "
                f"{weight.dtype.name}; is this the state of another model? Call octavo.jax.init with "
                "the model as it is now")
    if bias is not None:
        bias = jnp.asarray(bias)
        _check_operand(spec, "bias", bias, spec.n)
    # In shard_map JAX then adds the gradients of what ranks share, outside of _linear.
    x, weight, bias = varying((x, weight, bias), (x, weight, bias, site.record))
    return _linear(spec, _abi.FORWARD_EVALUATION if evaluation else 0, x, weight, bias, site.reads,
                   site.record)


def _check_operand(spec, what, value, cols):
    where = f"linear {spec.name}: {what}"
    if np.dtype(value.dtype) not in OCTAVO_DTYPES:
        raise InvalidError(f"{where}: expected float32, bfloat16 or float16, found "
                           f"{value.dtype.name}; cast it: {what}.astype(jnp.float32)"
                           + (", or leave jax_enable_x64 off" if value.dtype == np.float64 else ""))
    if value.ndim == 0 or value.shape[-1] != cols:
        raise InvalidError(f"{where}: expected a last dimension of {cols}, found shape "
                           f"{list(value.shape)}; is this the state of another model?")


def _target(spec, object):
    return spec.number, object, 1


def _zeros(list):
    return jnp.zeros(sum(p.size for p in accumulators(list)), jnp.float32)


def _forward(spec, flags, x, weight, bias, reads, is_trained):
    """(y, saved or None, values of all slots, record of quantize and forward)."""
    values = dict(reads)
    for p in spec.quantize + spec.forward:
        if p.is_native:
            values[p.slot] = weight
    def record(list):
        return _zeros(list) if is_trained else None

    recorded = None
    if any(p.access != _abi.ACCESS_NONE for p in spec.quantize):
        _, made, recorded = verb("quantize", _target(spec, spec.parameter), spec.quantize, values,
                                 record=record(spec.quantize), workspace=spec.weight_workspace)
        values.update(made)
    rows = int(np.prod(x.shape[:-1]))
    results = [jax.ShapeDtypeStruct((*x.shape[:-1], spec.n), x.dtype)]
    if is_trained:
        flags |= SAVE
        results.append(jax.ShapeDtypeStruct((spec.plan.saved.bytes(rows),), jnp.uint8))
    if bias is not None and bias.dtype == jnp.float32:
        bias = bias.astype(x.dtype)  # which kernels can add within the product
    given = [x] if bias is None else [x, bias]
    (y, *saved), _, of_forward = verb(
        "forward", _target(spec, spec.linear), spec.forward, values, given, results,
        record(spec.forward), spec.plan.forward_workspace.bytes(rows),
        flags | (0 if bias is None else BIAS))
    records = [r for r in (recorded, of_forward) if r is not None]
    return y, saved, values, jnp.concatenate(records) if records else jnp.zeros(0, jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _linear(spec, flags, x, weight, bias, reads, record):
    return _forward(spec, flags, x, weight, bias, reads, False)[0]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Static:
    """What backward knows of forward beside arrays."""
    wanted: int
    x_shape: tuple
    x_dtype: object
    bias_dtype: object
    has_record: bool


def _linear_fwd(spec, flags, x, weight, bias, reads, record):
    plain_of = functools.partial(jax.tree.map, lambda p: p.value,
                                 is_leaf=lambda p: hasattr(p, "perturbed"))
    is_perturbed = [any(p.perturbed for p in jax.tree.leaves(
        t, is_leaf=lambda p: hasattr(p, "perturbed"))) for t in (x, weight, bias, record)]
    x, weight, bias, reads, record = map(plain_of, (x, weight, bias, reads, record))
    y, saved, values, recorded = _forward(spec, flags, x, weight, bias, reads, True)
    dx, dw, db, has_record = is_perturbed
    has_gradient = spec.plan.gradient == _abi.GRADIENT_TENSOR and dw
    wanted = (DX if dx else 0) | (DW if has_gradient else 0) | (DB if db else 0)
    if not has_gradient and not (spec.gradient_slots and has_record):
        wanted |= _abi.BACKWARD_SKIP_WEIGHT
    values = {p.slot: values[p.slot] for p in spec.backward if p.access == _abi.ACCESS_READ}
    if spec.gradient_slots:
        values.update({p.slot: array_of(record["gradient"][p.slot]) if has_record
                       else jnp.zeros(p.shape, p.dtype) for p in spec.gradient_slots})
    needs_x = x if spec.plan.flags & _abi.LINEAR_NEEDS_X else None
    static = _Static(wanted, x.shape, x.dtype, None if bias is None else bias.dtype, has_record)
    return y, (saved, values, recorded, needs_x, static)


def _linear_bwd(spec, flags, residual, dy):
    (saved,), values, recorded, x, static = residual
    if isinstance(dy, jax.custom_derivatives.SymbolicZero):
        return None, None, None, None, None
    dy = dy.astype(static.x_dtype)
    rows = int(np.prod(static.x_shape[:-1]))
    shapes = {DX: (static.x_shape, static.x_dtype), DW: ((spec.n, spec.k), spec.dtype),
              DB: ((spec.n,), static.bias_dtype)}
    wanted = [bit for bit in shapes if static.wanted & bit]
    results = [jax.ShapeDtypeStruct(*shapes[bit]) for bit in wanted]
    overwrite = 0 if spec.gradient_slots else _abi.BACKWARD_OVERWRITE
    given = [dy, saved] if x is None else [dy, x, saved]
    shared = {}
    if spec.gradient_slots and DB in wanted:  # the backend adds to it, too
        shared[len(given)] = wanted.index(DB)
        given.append(jnp.zeros(spec.n, static.bias_dtype))
    out, written, of_backward = verb(
        "backward", _target(spec, spec.linear), spec.backward, values,
        given, results, _zeros(spec.backward),
        spec.plan.backward_workspace.bytes(rows), static.wanted | overwrite,
        shared=shared)
    gradients = dict(zip(wanted, out))
    record = None
    if static.has_record:
        if of_backward is not None:
            recorded = jnp.concatenate([recorded, of_backward])
        sums = recorded[spec.indices(_abi.COMBINE_SUM)]
        if spec.gradient_slots:
            sums = jnp.append(sums, jnp.float32(1))
        record = differentiable({"max": recorded[spec.indices(_abi.COMBINE_MAX)], "sum": sums,
                                 "gradient": written})
    return gradients.get(DX), gradients.get(DW), gradients.get(DB), None, record


_linear.defvjp(_linear_fwd, _linear_bwd, symbolic_zeros=True)

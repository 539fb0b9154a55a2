"""The verbs of a linear on arrays: the only place that calls them. A call quantizes the weight, so codes never outlive
the weight that they were made of."""
import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from .ffi import BIAS, DB, DW, DX, SAVE, verb
from .layout import accumulators


def empty_record(spec, gradient):
    """The empty arrays that the casts of a linear record in. gradient: slot id -> the gradient slots that backward
    adds to. Leaves of `count` > 1 are stacked."""
    stacked = (spec.count,) if spec.count > 1 else ()
    axes = tuple(jax.sharding.get_abstract_mesh().manual_axes)  # in shard_map each rank's own

    def zeros(places):
        value = jnp.zeros((*stacked, sum(p.size for p in accumulators(places))), jnp.float32)
        return jax.lax.pcast(value, axes, to="varying") if axes else value

    return {"quantize": zeros(spec.quantize), "forward": zeros(spec.forward), "backward": zeros(spec.backward),
            "gradient": gradient}


def made_by_quantize(spec):
    """The places that backward reads and quantize makes."""
    made = {p.slot for p in spec.quantize if p.access == _abi.ACCESS_WRITE}
    return tuple(p for p in spec.backward if p.access == _abi.ACCESS_READ and p.slot in made)


def forward(spec, x, weight, bias, reads, record=None, saves=False, is_evaluation=False):
    """Returns (y, (saved, *what backward reads of quantize's) or (), the new record). record: None: nothing is recorded."""
    values = dict(reads)
    for p in spec.quantize + spec.forward:
        if p.is_native:
            values[p.slot] = weight
    record = record and dict(record)
    if any(p.access != _abi.ACCESS_NONE for p in spec.quantize):
        _, made, recorded = verb(
            "quantize", f"linear {spec.name}", (spec.number, spec.parameter, 1), spec.quantize, values,
            record=record and record["quantize"], workspace=spec.weight_workspace)
        values.update(made)
        if recorded is not None:
            record["quantize"] = recorded
    rows = int(np.prod(x.shape[:-1]))
    results, flags = [jax.ShapeDtypeStruct((*x.shape[:-1], spec.n), x.dtype)], 0
    if saves:
        flags |= SAVE
        results.append(jax.ShapeDtypeStruct((spec.plan.saved.bytes(rows),), jnp.uint8))
    elif is_evaluation:
        flags |= _abi.FORWARD_EVALUATION
    given = [x]
    if bias is not None:
        flags |= BIAS
        # Kernels add a bias of x's dtype within the product.
        given.append(bias.astype(x.dtype) if bias.dtype == jnp.float32 else bias)
    (y, *saved), _, recorded = verb(
        "forward", f"linear {spec.name}", (spec.number, spec.linear, 1), spec.forward, values, given, results,
        record and record["forward"], spec.plan.forward_workspace.bytes(rows), flags)
    if recorded is not None:
        record["forward"] = recorded
    return y, (*saved, *(values[p.slot] for p in made_by_quantize(spec))) if saves else (), record


def backward(spec, dy, x, saved, weight, reads, wanted, bias_dtype, record):
    """Returns (the ones of dx, dw and db that `wanted` names, the new record). x: where the plan needs it; saved: of
    forward."""
    rows, record = int(np.prod(dy.shape[:-1])), dict(record)
    values = {**reads, **dict(zip((p.slot for p in made_by_quantize(spec)), saved[1:])), **record["gradient"]}
    for p in spec.backward:
        if p.is_native:
            values[p.slot] = weight
    shapes = {DX: ((*dy.shape[:-1], spec.k), dy.dtype), DW: ((spec.n, spec.k), spec.dtype), DB: ((spec.n,), bias_dtype)}
    bits = [bit for bit in shapes if wanted & bit]
    given, shared = [dy, saved[0]] if x is None else [dy, x, saved[0]], {}
    if spec.gradient_slots and DB in bits:  # the backend adds to it
        shared[len(given)] = bits.index(DB)
        given.append(jnp.zeros(spec.n, bias_dtype))
    out, written, recorded = verb(
        "backward", f"linear {spec.name}", (spec.number, spec.linear, 1), spec.backward, values, given,
        [jax.ShapeDtypeStruct(*shapes[bit]) for bit in bits], record["backward"],
        spec.plan.backward_workspace.bytes(rows), wanted | (0 if spec.gradient_slots else _abi.BACKWARD_OVERWRITE),
        shared=shared)
    if recorded is not None:
        record["backward"] = recorded
    record["gradient"] = {**record["gradient"], **written}
    return out, record

"""Averages the gradients that a backend keeps over the ranks of shard_map: octavo.gradients/1."""
import jax
import jax.numpy as jnp
from jax import lax

from .. import _abi, stages
from . import ffi
from .layout import accumulators, places
from .state import State, check_alive


def average_gradients(state, axis_name):
    """The State with its gradient slots averaged over the ranks of an axis of shard_map, which then hold
    the same; the wire carries codes. Also combines the flag that a gradient has Inf or NaN, which makes octavo.jax.adam skip a
    step. Call it before adam's update, or give that the axis. Without gradients in slots the State itself: average the host's
    gradients by lax.pmean. Raises OctavoError."""
    check_alive(state)
    session, slots = state.session, dict(state.slots)
    lists = [places(session.run, session.slots, _abi.VERB_REDUCE, _abi.OWNER_PARAMETER, id) for id in session.parameters]
    # As the handler counts: also of declined linears, whose gradients are 0.
    every = [p for list in lists for p in list if any(p.access != _abi.ACCESS_NONE for p in list)]
    if not every:
        return state
    world = lax.axis_size(axis_name)
    values = {p.slot: _one(state, session.slots[p.slot]) for p in every
              if p.access in (_abi.ACCESS_READ, _abi.ACCESS_UPDATE)}
    plan, buffer_bytes, state_bytes = ffi.plan(session.number, world)
    recv, scratch = jnp.zeros(buffer_bytes, jnp.uint8), jnp.zeros(state_bytes, jnp.uint8)
    record = jnp.zeros(sum(p.size for p in accumulators(every)), jnp.float32)
    shapes = [jax.ShapeDtypeStruct(b.shape, b.dtype) for b in (recv, scratch)]
    for number, stage in enumerate(plan):
        (send, scratch), written, after = ffi.verb(
            "run_stage", "average_gradients", (session.number, number, 1), every, values, [recv, scratch],
            shapes, record, None, world << 16, shared={1: 1})
        values.update(written)
        record = record if after is None else after
        recv = _collective(stage, send, axis_name, world)
    for spec in session.specs.values():
        for place in spec.gradient_slots:
            key = session.key(session.slots[place.slot])
            of_each = [values[s.id] for s in session.slots if s.id in values and
                       s.owner_kind == _abi.OWNER_PARAMETER and session.is_kept(s) and session.key(s) == key]
            slots[key] = jnp.stack(of_each) if spec.count > 1 else of_each[0]
    at = 0
    for place in accumulators(every):
        if session.is_kept(session.slots[place.slot]):
            key = session.key(session.slots[place.slot])
            slots[key] = slots[key] + record[at:at + place.size].reshape(slots[key].shape)
        at += place.size
    for slot in session.slots:
        if slot.role == _abi.ROLE_NONFINITE:
            slots[session.key(slot)] = lax.pmax(slots[session.key(slot)], axis_name)
    return State(session, slots)


def _one(state, slot):
    """The array of a slot; of stacked ones the part of its own parameter."""
    session = state.session
    if not session.is_kept(slot):
        return jnp.zeros((slot.rows, slot.cols), ffi.DTYPES.get(slot.dtype, jnp.uint8))
    value = state.slots[session.key(slot)]
    if slot.owner_kind != _abi.OWNER_PARAMETER:
        return value
    spec = session.specs[session.parameter_names[slot.owner]]
    return value[slot.owner - spec.parameter] if spec.count > 1 else value


def _collective(stage, send, axis_name, world):
    """The result of a stage's collective on send, in a buffer as long."""
    is_float = stage.dtype == _abi.F32
    width = 4 if is_float else 1
    value = send[:stage.send_count * width]
    if is_float:
        value = lax.bitcast_convert_type(value.reshape(-1, 4), jnp.float32)
    kind = stage.collective
    if kind == stages.ALL_REDUCE_MAX:
        value = lax.pmax(value, axis_name)
    elif kind == stages.ALL_REDUCE_SUM:
        value = lax.psum(value, axis_name)
    elif kind == stages.ALL_TO_ALL:
        value = lax.all_to_all(value.reshape(world, -1), axis_name, 0, 0).reshape(-1)
    elif kind == stages.ALL_GATHER:
        value = lax.all_gather(value, axis_name, tiled=True)
    elif kind == stages.REDUCE_SCATTER_SUM:
        value = lax.psum_scatter(value, axis_name, tiled=True)
    else:
        return send
    if is_float:
        value = lax.bitcast_convert_type(value, jnp.uint8).reshape(-1)
    return jnp.pad(value, (0, send.size - value.size))

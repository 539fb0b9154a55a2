"""Octavo in optax: the backend's own Adam, for weights that it keeps in slots, and a State that a
program's optimizer carries along."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from .. import _abi
from ..errors import InvalidError, UnsupportedError
from . import ffi
from .parameters import optimizer_bytes, optimizer_list
from .gradients import OptimizerState
from .reduction import average_gradients
from .state import State, check_alive, end_step


class AdamState(NamedTuple):
    """adam's state outside of the slots, which hold moments and step counts."""
    count: object  # int32: calls of update, for schedules


def adam(learning_rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0, gradient_scale=1.0,
         axis_name=None):
    """The Adam of a backend with octavo.optimizer/2, as an optax.GradientTransformation.

    Its updates are opaque: update(state, adam_state) takes the State of octavo.jax.value_and_grad, whose
    slots hold gradients, and returns (the State with stepped weights and cleared gradients, the next
    adam_state); there is nothing to add, so optax.apply_updates has no part in it. Parameters that the
    host keeps are optax's, unchanged. A step whose gradients have Inf or NaN changes nothing.
    axis_name: of shard_map, to average the gradients first. learning_rate: a float or an optax schedule;
    gradient_scale multiplies every gradient. Hyperparameters are arrays of the program, so a schedule
    compiles nothing anew. Raises UnsupportedError for a backend without it.
    """
    def init(state):
        check_alive(state)
        if not state.session.run.has("optimizer"):
            raise UnsupportedError(f"adam: expected a backend with octavo.optimizer/2, found "
                                   f"{state.session.run.backend or 'none'}; step the parameters with optax")
        algorithm, hyper = state.session.run.algorithm()
        if algorithm not in ("adam", "adamw"):
            raise UnsupportedError(f"adam: expected a backend that steps by adam or adamw, found {state.session.run.backend}, "
                                   f"which steps by {algorithm} with {', '.join(sorted(hyper))}; use another backend")
        return AdamState(jnp.zeros((), jnp.int32))

    def update(state, adam_state, params=None):
        del params
        check_alive(state)
        if axis_name is not None:
            state = average_gradients(state, axis_name)
        rate = learning_rate(adam_state.count) if callable(learning_rate) else learning_rate
        hyper = jnp.stack([jnp.asarray(v, jnp.float32) for v in (
            rate, b1, b2, eps, weight_decay, gradient_scale, 0, 0)])
        return _step(state, hyper), AdamState(adam_state.count + 1)

    return optax.GradientTransformation(init, update)


def with_state(optimizer, state, adam=None, axis_name=None):
    """An optax.GradientTransformation that carries a State in its own state and ends the step.

    optimizer: any optax transformation, of the host's parameters; adam: octavo.jax.adam, for a backend that keeps weights;
    axis_name: as of octavo.jax.end_step. It may be anywhere in another transformation, or in an nnx.Optimizer: the state of
    the whole is what octavo.jax.value_and_grad takes and returns. Its update takes those gradients and further arguments of
    `optimizer`, and returns its updates. A step whose casts met Inf or NaN, and so has gradients that are NaN, changes
    neither parameters nor `optimizer`, and is counted in `skipped` of its state. Raises InvalidError for a backend that
    keeps weights without adam.
    """
    check_alive(state)
    if adam is None and any(s.gradient_slots for s in state.session.specs.values()):
        raise InvalidError(f"with_state: expected adam=octavo.jax.adam(...), since "
                           f"{state.session.run.backend} steps the weights that it keeps, found None")
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params):
        return OptimizerState(state, optimizer.init(params), adam and adam.init(state), jnp.zeros((), jnp.int32))

    def update(gradients, carried, params=None, **extra):
        next_state, adam_state, is_bad = carried.octavo, carried.adam, _is_nan(gradients)
        if axis_name is not None:
            is_bad = lax.pmax(is_bad.astype(jnp.int32), axis_name) > 0
        updates, inner = optimizer.update(gradients, carried.inner, params, **extra)
        updates = jax.tree.map(lambda u: jnp.where(is_bad, jnp.zeros_like(u), u), updates)
        inner = jax.tree.map(lambda old, new: jnp.where(is_bad, old, new), carried.inner, inner)
        if adam is not None:
            next_state, adam_state = adam.update(_flagged(next_state, is_bad), adam_state)
        return updates, OptimizerState(end_step(next_state, axis_name), inner, adam_state,
                                       carried.skipped + is_bad.astype(jnp.int32))

    return optax.GradientTransformationExtraArgs(init, update)


def _is_nan(gradients):
    """Whether octavo.jax.value_and_grad met Inf or NaN: every element is NaN then, so one of each array is enough."""
    found = [jnp.isnan(g[(0,) * jnp.ndim(g)]) for g in map(jnp.asarray, jax.tree.leaves(gradients))
             if g.size and jnp.issubdtype(g.dtype, jnp.inexact)]
    return jnp.stack(found).any() if found else jnp.zeros((), bool)


def _flagged(state, is_bad):
    """The state with the flag that makes the backend's optimizer leave a step out."""
    slots = dict(state.slots)
    for slot in state.session.slots:
        if slot.role == _abi.ROLE_NONFINITE:
            key = state.session.key(slot)
            slots[key] = jnp.maximum(slots[key], is_bad.astype(slots[key].dtype))
    return State(state.session, slots)


def _step(state, hyper):
    session, slots = state.session, dict(state.slots)
    for spec in session.specs.values():
        if not spec.gradient_slots:
            continue
        places = optimizer_list(session, spec)
        values = {p.slot: slots[session.key(session.slots[p.slot])] for p in places
                  if p.access in (_abi.ACCESS_READ, _abi.ACCESS_UPDATE)}
        _, written, _ = ffi.verb(
            "optimizer_step", f"linear {spec.name}", (session.number, spec.parameter, spec.count), places, values,
            [hyper, _skip(state)], workspace=optimizer_bytes(session, spec))
        for id, value in written.items():
            slots[session.key(session.slots[id])] = value
        for p in spec.gradient_slots:
            if session.slots[p.slot].role == _abi.ROLE_GRADIENT:
                key = session.key(session.slots[p.slot])
                slots[key] = jnp.zeros_like(slots[key])
    return State(session, slots)


def _skip(state):
    for slot in state.session.slots:
        if slot.role == _abi.ROLE_NONFINITE:
            return state.slots[state.session.key(slot)].reshape(1)
    return jnp.zeros(1, jnp.float32)

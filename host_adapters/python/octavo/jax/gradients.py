"""Functions with a state: its training, its evaluation, and its gradient."""
import functools

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import InvalidError
from .binding import by_session, called
from .ffi import varying_axes
from .state import State, check_alive


class OptimizerState(NamedTuple):
    """The state of octavo.jax.with_state's transformation: the State, optax's own, and the steps that Inf or NaN left
    out."""
    octavo: State
    inner: object
    adam: object
    skipped: object


class Gradients(NamedTuple):
    """What value_and_grad returns for an OptimizerState: gradients, and the State that has what casts
    recorded."""
    values: object
    state: State


MUTABLE = []  # types whose objects a function changes in place, which a traced one cannot


def record(function):
    """A function in training: g(state, *args) -> (function(*args), the next State).

    Each forward and backward of the state's linears inside of function records what it casts, whether or not a gradient
    flows through it. function: one whose arguments and results are pytrees of arrays; take derivatives inside of it, such as
    jax.value_and_grad(loss). state: a State, or a tuple, list or dict of those of several models. Call it more than once
    before octavo.jax.end_step for micro-batches. Compiles what is called outside of jit.
    """
    @jax.jit
    def run(state, *args):
        states = by_session(_states(state))
        out, records = called(function, states, args, is_recorded=True)
        return out, jax.tree.map(lambda one: one.merged(records), state, is_leaf=_is_state)

    return _checked(function, run)


def evaluate(function):
    """A function in evaluation: g(state, *args) -> function(*args), with the scales that are in the state. Nothing is
    recorded. Where the backend evaluates in the host's precision, products are JAX's own. Inside of a function given to
    octavo.jax.record it is that of a state of its own, as a target network's. Otherwise as octavo.jax.record."""
    @jax.jit
    def run(state, *args):
        return called(function, by_session(_states(state)), args, is_recorded=False)[0]

    return _checked(function, run)


def value_and_grad(fun, argnums=0, has_aux=False):
    """As jax.value_and_grad, for a function whose layers run through a state: octavo.jax.record of it.

    Returns g with g(state, *args) -> (fun's value, gradients, the next State). A step in which a cast met Inf or NaN has
    gradients that are NaN. With the state of octavo.jax.with_state's optimizer in place of a State it returns (fun's value,
    Gradients), which that optimizer takes.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    recorded = record(jax.value_and_grad(fun, argnums, has_aux))

    @jax.jit
    def run(state, *args):
        for leaf in jax.tree.leaves([args[n] for n in numbers]):
            if not jax.dtypes.issubdtype(leaf.dtype, jnp.inexact):
                raise InvalidError(f"value_and_grad: expected floating point arrays in the arguments "
                                   f"{list(numbers)}, found {leaf.dtype}; give argnums of those to "
                                   "differentiate by")
        (value, gradients), state = recorded(state, *args)
        is_bad = functools.reduce(jnp.logical_or, [one.nonfinite for one in _states(state)])
        return value, jax.tree.map(lambda g: _spoiled(g, is_bad), gradients), state

    run = _checked(fun, run)

    @functools.wraps(fun)
    def checked(state, *args):
        if isinstance(state, OptimizerState):
            value, *gradients = run(state.octavo, *args)
            return value, Gradients(*gradients)
        return run(state, *args)

    return checked


def _spoiled(gradient, is_bad):
    axes = tuple(varying_axes(is_bad) - varying_axes(gradient))  # it is the sum over ranks
    is_bad = lax.pmax(is_bad.astype(jnp.int32), axes) > 0 if axes else is_bad
    return jnp.where(is_bad, jnp.nan, gradient)


def _is_state(value):
    return isinstance(value, State)


def _states(state):
    return [leaf for leaf in jax.tree.leaves(state, is_leaf=_is_state)]


def _checked(function, run):
    @functools.wraps(function)
    def checked(state, *args):
        if _carries_optimizer(state):
            raise InvalidError("state: expected a State, or the state of an optimizer of octavo.jax.with_state, found the "
                               "latter inside of another transformation's; wrap inside: octavo.jax.with_state("
                               "optax.apply_if_finite(optimizer, 5), state)")
        for one in _states(state) or [state]:
            check_alive(one)
        is_mutable = lambda value: isinstance(value, tuple(MUTABLE))  # noqa: E731
        for value in filter(is_mutable, jax.tree.leaves(args, is_leaf=is_mutable)):
            raise InvalidError(f"arguments: expected pytrees of arrays, found a {type(value).__name__}, whose changes would "
                               "be lost; give the function what flax.nnx.split(model) gives, and flax.nnx.merge inside")
        return run(state, *args)

    return checked


def _carries_optimizer(state):
    is_optimizer = lambda value: isinstance(value, OptimizerState)  # noqa: E731
    return any(map(is_optimizer, jax.tree.leaves(state, is_leaf=is_optimizer)))

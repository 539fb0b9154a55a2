"""Functions with a state: its training, its evaluation, and its gradient."""
import functools

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
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


MUTABLE = []  # types whose objects a function changes in place, which a traced one cannot
# type -> (take, give) of objects that carry a State and change in place: take(object) is the pytree, give(object, next) puts
# the next one in.
CARRIERS = {}


def record(function):
    """A function in training: g(state, *args) -> (function(*args), the next State).

    Each forward and backward of the state's linears inside of function records what it casts, whether or not a gradient
    flows through it. function: one whose arguments and results are pytrees of arrays; take derivatives inside of it, such as
    jax.value_and_grad(loss). state: a State, or a pytree with the States of several models, or the state of an optax optimizer
    with octavo.jax.with_state anywhere in it; the next State is the same pytree. Call it more than once before
    octavo.jax.end_step for micro-batches. Compiles what is called outside of jit.
    """
    @jax.jit
    def run(state, *args):
        states = by_session(_states(state))
        out, records = called(function, states, args, is_recorded=True)
        return out, jax.tree.map(lambda one: one.merged(records) if _is_state(one) else one, state, is_leaf=_is_state)

    return _checked(function, run)


def evaluate(function):
    """A function in evaluation: g(state, *args) -> function(*args), with the scales that are in the state. It records no
    casts. Where the backend evaluates in the host's precision, products are JAX's own. Inside of a function given to
    octavo.jax.record it evaluates a separate state, as a target network's. Otherwise as octavo.jax.record."""
    @jax.jit
    def run(state, *args):
        return called(function, by_session(_states(state)), args, is_recorded=False)[0]

    return _checked(function, run, returns_state=False)


def value_and_grad(fun, argnums=0, has_aux=False):
    """As jax.value_and_grad, for a function whose layers run through a state: octavo.jax.record of it.

    Returns g with g(state, *args) -> (fun's value, gradients, the next State). A step whose casts met Inf or NaN has gradients
    that are NaN, and a State in the state of octavo.jax.with_state's optimizer is then as before. An nnx.Optimizer given
    instead of the state is changed in place and returned.
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
        (value, gradients), after = recorded(state, *args)
        is_bad = functools.reduce(jnp.logical_or, [one.nonfinite for one in _states(after)])
        return value, jax.tree.map(lambda g: _spoiled(g, is_bad), gradients), _carried(is_bad, state, after)

    return _checked(fun, run)


def _carried(is_bad, before, after):
    """`after`, where a State that an optimizer carries is the one in `before` if the call was bad: a guard around the
    optimizer leaves its update out, and nothing else would clear what the call recorded."""
    def one(old, new):
        if not isinstance(old, OptimizerState):
            return new
        return jax.tree.map(lambda a, b: a if a is b else jnp.where(is_bad, a, b), old, new)

    return jax.tree.map(one, before, after, is_leaf=lambda value: isinstance(value, OptimizerState))


def _spoiled(gradient, is_bad):
    axes = tuple(varying_axes(is_bad) - varying_axes(gradient))  # it is the sum over ranks
    is_bad = lax.pmax(is_bad.astype(jnp.int32), axes) > 0 if axes else is_bad
    return jnp.where(is_bad, jnp.nan, gradient)


def _is_state(value):
    return isinstance(value, State)


def _states(tree):
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_state) if _is_state(leaf)]


def _checked(function, run, returns_state=True):
    """run, for the objects that a user may give instead of arrays. returns_state: the next state is its last result."""
    @functools.wraps(function)
    def checked(state, *args):
        take, give = next((CARRIERS[kind] for kind in CARRIERS if isinstance(state, kind)), (lambda s: s, lambda _, s: s))
        taken = take(state)
        for one in _states(taken) or [taken]:
            check_alive(one)
        _check_guards(taken)
        is_mutable = lambda value: isinstance(value, tuple(MUTABLE))  # noqa: E731
        for value in filter(is_mutable, jax.tree.leaves(args, is_leaf=is_mutable)):
            raise InvalidError(f"arguments: expected pytrees of arrays, found a {type(value).__name__}, whose changes would "
                               "be lost; give the function what flax.nnx.split(model) gives, and flax.nnx.merge inside")
        for path, leaf in jax.tree_util.tree_leaves_with_path(args):
            if not isinstance(leaf, (bool, int, float, complex)) and not hasattr(leaf, "dtype"):
                raise InvalidError(f"arguments: expected pytrees of arrays, found {leaf!r} in {jax.tree_util.keystr(path)}; give "
                                   "the function what flax.nnx.split, equinox.partition(model, equinox.is_inexact_array) or "
                                   "functools.partial leave of it")
        out = run(taken, *args)
        return (*out[:-1], give(state, out[-1])) if returns_state else out

    return checked


def _check_guards(state):
    """optax.MultiSteps keeps a NaN in its sum forever, unless it leaves such gradients out."""
    def is_kind(kind):
        return lambda value: isinstance(value, kind)

    for one in filter(is_kind(optax.MultiStepsState), jax.tree.leaves(state, is_leaf=is_kind(optax.MultiStepsState))):
        if one.skip_state == () and _states(one):
            raise InvalidError(
                "optimizer: expected optax.MultiSteps with a should_skip_update_fn around octavo.jax.with_state, since one step "
                "with Inf or NaN would stay in its sum, found none; give it optax.skip_not_finite, or wrap inside: "
                "octavo.jax.with_state(optax.MultiSteps(optimizer, 4), state)")

"""Which state the layers of a function use, and the gradient of such a function."""
import contextlib
import functools
import threading

from typing import NamedTuple

import jax

from ..errors import InvalidError
from .linear import differentiable, plain
from .state import State, check_alive

_using = threading.local()


class OptimizerState(NamedTuple):
    """The state of octavo.jax.with_state's transformation: the State, and optax's own."""
    octavo: State
    inner: object
    adam: object


class Gradients(NamedTuple):
    """What value_and_grad returns for an OptimizerState: gradients, and the State that has what casts
    recorded."""
    values: object
    state: State


@contextlib.contextmanager
def use(state):
    """Layers and injected ops inside of it find their slots in `state`: a State, which they read and
    do not record in, or name -> Site. Affects this thread, while JAX traces."""
    is_state = isinstance(state, State)
    with _set(sites={**current(), **(state.sites() if is_state else state)},
              declined=state.declined if is_state else getattr(_using, "declined", frozenset())):
        yield


def current():
    """The sites in use by name."""
    return getattr(_using, "sites", {})


@contextlib.contextmanager
def discover():
    """Layers inside of it note their name and the shape of their weight in the dict that it gives, and
    compute without a backend."""
    with _set(found={}):
        yield _using.found


def discovery():
    """The dict of `discover` around this call, or None."""
    return getattr(_using, "found", None)


def is_declined(name):
    """Whether the State in use says that the host computes this linear."""
    return name in getattr(_using, "declined", ())


@contextlib.contextmanager
def _set(**values):
    before = dict(_using.__dict__)
    _using.__dict__.update(values)
    try:
        yield
    finally:
        _using.__dict__.clear()
        _using.__dict__.update(before)


def value_and_grad(fun, argnums=0, has_aux=False):
    """As jax.value_and_grad, for a function whose layers run through a state.

    Returns g with g(state, *args) -> (fun's value, gradients, the next State): what casts recorded is in
    that state, until octavo.jax.end_step. Call it more than once before for micro-batches. fun(*args):
    its arguments are pytrees of arrays. Works inside of jit and shard_map; it compiles what is called
    outside of them. With the state of octavo.jax.with_state's optimizer in place of a State it returns
    (fun's value, Gradients), which that optimizer takes.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @jax.jit
    def run(state, *args):
        for leaf in jax.tree.leaves([args[n] for n in numbers]):
            if not jax.dtypes.issubdtype(leaf.dtype, jax.numpy.inexact):
                raise InvalidError(f"value_and_grad: expected floating point arrays in the arguments "
                                   f"{list(numbers)}, found {leaf.dtype}; give argnums of those to "
                                   "differentiate by")
        def inner(records, *inner_args):
            with use(state), use(state.sites(records)):
                return fun(*inner_args)

        gradient = jax.value_and_grad(inner, (0, *(n + 1 for n in numbers)), has_aux, allow_int=True)
        records = {name: differentiable(r) for name, r in state.records().items()}
        value, (recorded, *gradients) = gradient(records, *args)
        merged = state.merged({name: plain(r) for name, r in recorded.items()})
        return value, gradients[0] if isinstance(argnums, int) else tuple(gradients), merged

    @functools.wraps(fun)
    def checked(state, *args):
        if isinstance(state, OptimizerState):
            check_alive(state.octavo)
            value, *gradients = run(state.octavo, *args)
            return value, Gradients(*gradients)
        check_alive(state)
        return run(state, *args)

    return checked

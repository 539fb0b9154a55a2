"""Which state the layers of a function use, and the gradient of such a function."""
import contextlib
import functools
import threading

import jax

from .linear import differentiable, plain
from .state import State, check_alive

_using = threading.local()


@contextlib.contextmanager
def use(state):
    """Layers and injected ops inside of it find their slots in `state`: a State, which they read and
    do not record in, or name -> Site. Affects this thread, while JAX traces."""
    before = current()
    _using.sites = {**before, **(state.sites() if isinstance(state, State) else state)}
    try:
        yield
    finally:
        _using.sites = before


def current():
    """The sites in use by name."""
    return getattr(_using, "sites", {})


def value_and_grad(fun, argnums=0, has_aux=False):
    """As jax.value_and_grad, for a function whose layers run through a state.

    Returns g with g(state, *args) -> (fun's value, gradients, the next State): what casts recorded is in
    that state, until octavo.jax.end_step. Call it more than once before for micro-batches. fun(*args):
    its arguments are pytrees of arrays. Works inside of jit and shard_map; it compiles what is called
    outside of them.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @jax.jit
    def run(state, *args):
        def inner(records, *inner_args):
            with use(state.sites(records)):
                return fun(*inner_args)

        gradient = jax.value_and_grad(inner, (0, *(n + 1 for n in numbers)), has_aux, allow_int=True)
        records = {name: differentiable(r) for name, r in state.records().items()}
        value, (recorded, *gradients) = gradient(records, *args)
        merged = state.merged({name: plain(r) for name, r in recorded.items()})
        return value, gradients[0] if isinstance(argnums, int) else tuple(gradients), merged

    @functools.wraps(fun)
    def checked(state, *args):
        check_alive(state)
        return run(state, *args)

    return checked

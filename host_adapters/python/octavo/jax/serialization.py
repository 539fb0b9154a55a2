"""A State in flax.serialization: its slots by name, for one of the same model and configuration."""
import flax.serialization
import jax.numpy as jnp

from ..errors import InvalidError
from .state import State


def _restored(state, found):
    if set(found) != set(state.slots):
        raise InvalidError(f"state: expected {', '.join(sorted(state.slots))}, found {', '.join(sorted(found)) or 'none'}; is "
                           "this the state of another model or configuration?")
    for name, value in state.slots.items():
        if jnp.shape(found[name]) != value.shape:
            raise InvalidError(f"state: {name}: expected {list(value.shape)}, found {list(jnp.shape(found[name]))}; is this the "
                               "state of another model?")
    return State(state.session, {name: jnp.asarray(found[name], value.dtype) for name, value in state.slots.items()})


flax.serialization.register_serialization_state(State, lambda state: dict(state.slots), _restored)

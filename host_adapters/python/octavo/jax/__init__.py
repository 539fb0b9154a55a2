"""FP8 training in JAX, through the plugins that serve every host.

    state = octavo.jax.init({"up": up, "down": down}, "octavo.toml")
    value, gradients, state = octavo.jax.value_and_grad(loss)(state, parameters, batch)
    state = octavo.jax.end_step(state)

Functions of arrays: all that lives from step to step is in the State, a pytree.
"""
from .gradients import current, use, value_and_grad
from .linear import Site, linear
from .optimizer import adam
from .parameters import read_parameter
from .state import State, close, end_step, init, report

__all__ = ["Site", "State", "adam", "close", "current", "end_step", "init", "linear", "read_parameter", "report", "use",
           "value_and_grad"]

"""FP8 training in JAX, through the plugins that serve every host.

    state = octavo.jax.init({"up": up, "down": down}, "octavo.toml")
    value, gradients, state = octavo.jax.value_and_grad(loss)(state, parameters, batch)
    state = octavo.jax.end_step(state)

`prepare` makes the State of a flax.nnx model, `linen.prepare` the State of a flax.linen one, and `with_state` lets an optax
optimizer carry it. All that lives from step to step is in the State, a pytree.
"""
from .dot_general import dot_general
from .ffi import export_checks
from .gradients import evaluate, record, value_and_grad
from .layout import Site
from .linear import linear
from .optimizer import adam, with_state
from .parameters import read_parameter
from .reduction import average_gradients
from .nnx import Linear, prepare
from . import serialization as _serialization  # noqa: F401
from .state import State, close, end_step, init, load_checkpoint, report, save_checkpoint

__all__ = ["Linear", "Site", "State", "adam", "average_gradients", "close", "dot_general", "end_step", "evaluate",
           "export_checks", "init", "linear", "load_checkpoint", "prepare", "read_parameter", "record", "report",
           "save_checkpoint", "value_and_grad", "with_state"]

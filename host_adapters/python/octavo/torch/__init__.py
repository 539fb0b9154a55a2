"""The PyTorch adapter: see octavo.prepare."""
from . import requirement  # noqa: F401, before all others
import torch

from ..session_run import Config, Verdict
from .attention import MultiheadAttention
from .conv1d import Conv1D
from .counterpart import become
from .experts import Experts
from .export import export
from .fsdp_rest import kept_parameters
from .full_state import full_state, sharded_state_dict
from .groups import note_active_wrapper
from .join import join
from .linear import Linear, linear
from .optimizer import Adam, clip_grad_norm_
from .prepare import prepare, refresh, step
from .prepared import session_of
from .restore import restore
from .session import Session
from .slots import Weight, site_of
from .state import Stateful, load_state_dict, report, state_dict
from .telemetry import telemetry

__all__ = ["Adam", "Linear", "Stateful", "clip_grad_norm_", "export", "full_state", "join", "kept_parameters", "linear",
           "load_state_dict", "prepare", "refresh", "report", "restore", "session_of", "sharded_state_dict", "state_dict", "step",
           "telemetry"]

# What torch.load(weights_only=True) may build when it loads a whole prepared model.
torch.serialization.add_safe_globals([
    Config, Conv1D, Experts, Linear, MultiheadAttention, Session, Verdict, Weight,
    (become, "octavo.torch.counterpart.become"),
    (note_active_wrapper, "octavo.torch.groups.note_active_wrapper"), (site_of, "octavo.torch.slots.site_of")])

"""The PyTorch adapter: see octavo.prepare."""
from .linear import Linear, linear
from .optimizer import Adam, clip_grad_norm_
from .prepare import prepare, refresh, step
from .prepared import session_of
from .state import load_state_dict, report, state_dict

__all__ = ["Adam", "Linear", "clip_grad_norm_", "linear", "load_state_dict", "prepare", "refresh",
           "report", "session_of", "state_dict", "step"]

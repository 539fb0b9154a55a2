"""The PyTorch adapter: see octavo.prepare."""
from ..installation import EXPECTED_TORCH, INSTALL_TORCH, has_torch_abi

# Another torch is refused before anything is done with it.
try:
    import torch
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    raise ImportError(f"octavo.torch: expected {EXPECTED_TORCH}, found none; {INSTALL_TORCH}") from e
if not has_torch_abi(torch.__version__):
    raise ImportError(f"octavo.torch: expected {EXPECTED_TORCH}, found {torch.__version__} in {torch.__path__[0]}; {INSTALL_TORCH}")

from ..configuration import Config  # noqa: E402
from ..session_run import Verdict  # noqa: E402
from .checkpoint.state import (  # noqa: E402
    Stateful, load_checkpoint, load_state_dict, save_checkpoint, state_dict)
from . import debug  # noqa: E402
from .debug import plain as disabled  # noqa: E402
from .export import export  # noqa: E402
from .layers.attention import MultiheadAttention  # noqa: E402
from .layers.converted import become  # noqa: E402
from .layers.linear import Linear, linear  # noqa: E402
from .layers.transformers import Conv1D, Experts  # noqa: E402
from .models import session_of  # noqa: E402
from .optimizer import Adam, clip_grad_norm_, join  # noqa: E402
from .prepare import prepare, refresh, restore, step  # noqa: E402
from .ranks import ddp  # noqa: E402
from .ranks.fsdp import kept_parameters  # noqa: E402
from .ranks.groups import note_active_wrapper  # noqa: E402
from .ranks.owners import full_state, sharded_state_dict  # noqa: E402
from .report import Report, report  # noqa: E402
from .session import Session  # noqa: E402
from .slots import Weight, site_of  # noqa: E402
from .telemetry import telemetry  # noqa: E402

__all__ = ["Adam", "Linear", "Report", "Stateful", "clip_grad_norm_", "ddp", "debug", "disabled", "export", "full_state", "join",
           "kept_parameters", "linear", "load_checkpoint", "load_state_dict", "prepare", "refresh", "report", "restore",
           "save_checkpoint", "session_of", "sharded_state_dict", "state_dict", "step", "telemetry"]

# What torch.load(weights_only=True) may build when it loads a whole prepared model.
torch.serialization.add_safe_globals([
    Config, Conv1D, Experts, Linear, MultiheadAttention, Session, Verdict, Weight,
    *((f, f"{f.__module__}.{f.__qualname__}") for f in (become, note_active_wrapper, site_of))])

"""Octavo adds FP8 training to existing frameworks through plugins.

    model, optimizer = octavo.prepare(model, optimizer, "octavo.toml")

Importing this package imports no framework and loads no library. The first call that needs one
does.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .configuration import Config
from .errors import (DeviceError, InternalError, InvalidError, OctavoError, ResourceError,
                     StateError, UnsupportedError, VersionError)
from .exits import exit_code, exits
from .library import version
from .session_run import explain, list_plugins, probe

if TYPE_CHECKING:  # what __getattr__ finds in PyTorch's part
    from .torch import debug
    from .torch.checkpoint.state import Stateful, load_checkpoint, load_state_dict, save_checkpoint, state_dict
    from .torch.debug import plain as disabled
    from .torch.export import export
    from .torch.optimizer import clip_grad_norm_, join
    from .torch.prepare import prepare, refresh, restore, step
    from .torch.ranks.fsdp import kept_parameters
    from .torch.ranks.owners import full_state, sharded_state_dict
    from .torch.report import Report, report
    from .torch.telemetry import telemetry

__all__ = ["Config", "DeviceError", "InternalError", "InvalidError", "OctavoError", "ResourceError",
           "StateError", "UnsupportedError", "VersionError", "exit_code", "exits", "explain", "list_plugins", "probe", "version",
           "Report", "Stateful", "clip_grad_norm_", "debug", "disabled", "export", "full_state", "join", "kept_parameters",
           "load_checkpoint", "load_state_dict", "prepare", "refresh", "report", "restore", "save_checkpoint", "sharded_state_dict",
           "state_dict", "step", "telemetry"]
_OF_TORCH = [name for name in __all__ if name not in globals()]


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        from . import torch
        return getattr(torch, name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

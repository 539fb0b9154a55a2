"""Octavo adds FP8 training to existing frameworks through plugins.

    model, optimizer = octavo.prepare(model, optimizer, "octavo.toml")

Importing this package imports no framework and loads no library. The first call that needs one
does.
"""
from .errors import (DeviceError, InternalError, InvalidError, OctavoError, ResourceError,
                     StateError, UnsupportedError, VersionError)
from .exits import exit_code, exits
from .library import version
from .session_run import Config, explain, list_plugins, probe

_TORCH = ("Stateful", "prepare", "refresh", "report", "restore", "step", "state_dict", "load_state_dict", "save_checkpoint",
          "load_checkpoint", "clip_grad_norm_",
          "join", "telemetry", "export", "full_state", "sharded_state_dict", "kept_parameters")

__all__ = ["Config", "DeviceError", "InternalError", "InvalidError", "OctavoError", "ResourceError",
           "StateError", "UnsupportedError", "VersionError", "exit_code", "exits", "explain", "list_plugins", "probe", "version",
           *_TORCH]


def __getattr__(name):
    if name in _TORCH:
        from . import torch
        return getattr(torch, name)
    if name == "debug":
        from .torch import debug
        return debug
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")

"""The exceptions of this package, one per status of octavo/abi.h.

Each message states what was expected, what was found, where, and how to correct it.
"""
from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


class OctavoError(Exception):
    """Base class of the errors of this package. `status` is an octavo_status of octavo/abi.h."""
    status = 7


class UnsupportedError(OctavoError):
    """Valid, but nothing that the configuration allows can do it on this machine."""
    status = 1


class InvalidError(OctavoError, ValueError):
    """A malformed configuration, model, argument or checkpoint."""
    status = 2


class StateError(OctavoError):
    """A valid call at the wrong time: a model is prepared twice, a run is closed."""
    status = 3


class VersionError(OctavoError):
    """Incompatible versions of two components."""
    status = 4


class DeviceError(OctavoError):
    """The device or its driver failed, or a tensor is on the wrong device."""
    status = 5


class ResourceError(OctavoError):
    """Memory, a file or another resource is missing or exhausted."""
    status = 6


class InternalError(OctavoError):
    """A bug in Octavo or in a plugin."""
    status = 7


_BY_STATUS = {e.status: e for e in (UnsupportedError, InvalidError, StateError, VersionError,
                                    DeviceError, ResourceError, InternalError)}


# The part of Octavo that a line is from, and places in the TOML of a dict, which nobody sees.
_ASIDE = re.compile(r"^octavo\.[a-z_]+: (?=\S)|(?<=\(config\)):\d+:\d+", re.M)


def error(status, text):
    """Returns the exception for a status, whose text starts with the cause."""
    return _BY_STATUS.get(status, InternalError)(_ASIDE.sub("", text).replace("(config):", "config:"))


def renamed(where: str, **names: str) -> Callable[[Function], Function]:
    """Decorates a function some of whose keywords have other names now: {old: what to give, as "skip=..."}. An old one is one
    InvalidError that names the new one, and so is one that the function does not know."""
    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

        @functools.wraps(function)
        def checked(*args, **kwargs):
            for old in names.keys() & kwargs.keys():
                raise InvalidError(f"{where}: {old}= has another name now; give {names[old]}")
            for unknown in () if takes_any else kwargs.keys() - parameters.keys():
                near = difflib.get_close_matches(unknown, parameters, 1)
                raise InvalidError(f"{where}: unknown keyword {unknown}=; " + (
                    f"did you mean {near[0]}=?" if near else f"expected {', '.join(f'{name}=' for name in parameters)}"))
            return function(*args, **kwargs)
        return cast(Function, checked)
    return decorate


def from_op(raised):
    """Converts an exception of an octavo op to an exception of this package. Returns any other
    exception unchanged."""
    text = str(raised)
    found = re.search(r"\[octavo status (\d+)\] (.*?)(?:\nException raised|\Z)", text, re.S)
    return error(int(found.group(1)), found.group(2).strip()) if found else raised

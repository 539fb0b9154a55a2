"""One exception type for each status of the contract; every text says what was expected, what was
found, where, and what to do."""
import re


class OctavoError(Exception):
    """Base of all errors of this package. `status` is the number of octavo/abi.h."""
    status = 7


class UnsupportedError(OctavoError):
    """Well formed, but nothing that the configuration allows can do it here."""
    status = 1


class InvalidError(OctavoError, ValueError):
    """A malformed configuration, model, argument or checkpoint."""
    status = 2


class StateError(OctavoError):
    """A legal call at an illegal time: preparing a model twice, a closed run."""
    status = 3


class VersionError(OctavoError):
    """Two parts whose versions do not fit."""
    status = 4


class DeviceError(OctavoError):
    """The device or its driver failed, or a tensor lies on the wrong device."""
    status = 5


class ResourceError(OctavoError):
    """Memory, a file or another resource is missing or full."""
    status = 6


class InternalError(OctavoError):
    """A defect of the implementation."""
    status = 7


_BY_STATUS = {e.status: e for e in (UnsupportedError, InvalidError, StateError, VersionError,
                                    DeviceError, ResourceError, InternalError)}


def error(status, text):
    """The exception of this status."""
    return _BY_STATUS.get(status, InternalError)(text)


def from_op(raised):
    """What an op of octavo raised, as an exception of this package; foreign errors come back as
    they are."""
    text = str(raised)
    found = re.search(r"\[octavo status (\d+)\] (.*?)(?:\nException raised|\Z)", text, re.S)
    return error(int(found.group(1)), found.group(2).strip()) if found else raised

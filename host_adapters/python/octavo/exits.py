"""How a training program ends, so that what started it knows what helps.

    with octavo.exits():
        main()

The codes are the ones in sysexits.h with the nearest meaning. torchrun restarts after any of them, up to
--max-restarts; a scheduler that reads codes can tell the first row from the others.
"""
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from .errors import (DeviceError, InternalError, InvalidError, ResourceError, StateError, UnsupportedError,
                     VersionError)

RESTART, FILES, INTERNAL, CONFIGURATION, OTHER = 75, 74, 70, 78, 1  # EX_TEMPFAIL, EX_IOERR, EX_SOFTWARE, EX_CONFIG
_CODES = ((DeviceError, RESTART), (ResourceError, FILES), (InternalError, INTERNAL),
          ((UnsupportedError, InvalidError, StateError, VersionError), CONFIGURATION), (OSError, FILES))


def exit_code(error: BaseException) -> int:
    """The code for an exception.

    Args:
        error: The exception that ended the program.

    Returns:
        75: a rank ended, hangs or came late: start every rank again from a checkpoint. 74: a disk is full, or a file cannot
        be written or read: free it, then start again. 78: the configuration, the program or a version has to change. 70: a
        fault of Octavo or of a plugin. 1: anything else.

    Example:
        >>> sys.exit(octavo.exit_code(error))
    """
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict):  # CheckpointException of torch: {rank: (exception, trace)}
        codes = [exit_code(each[0]) for each in failures.values() if isinstance(each, tuple)]
        return next((code for code in (FILES, RESTART, CONFIGURATION, INTERNAL) if code in codes), OTHER)
    if any(c.__name__ == "DistError" for c in type(error).__mro__):
        return RESTART
    if isinstance(error, RuntimeError):  # torch's words for a transport, and for a file that is short
        words = {"/gloo/": RESTART, "caused pair closure": RESTART, "inline_container": FILES}
        return next((code for word, code in words.items() if word in str(error)), OTHER)
    return OTHER


@contextlib.contextmanager
def exits() -> Iterator[None]:
    """Around a program's main function: an exception ends the process at once, with its traceback on stderr and
    its exit_code. It does not wait for torch's threads, since one may be in a collective that nobody answers.
    SystemExit and KeyboardInterrupt pass through."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code(error))

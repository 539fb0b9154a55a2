"""Finds and loads liboctavo, and finds the directories that contain plugins."""
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import threading
import warnings

from . import _abi
from .errors import ResourceError


def once(function):
    """The result of the first call, which other threads wait for."""
    lock, inner = threading.RLock(), functools.lru_cache(maxsize=None)(function)

    @functools.lru_cache(maxsize=None)
    @functools.wraps(function)
    def call():
        with lock:
            return inner()
    return call


def folder():
    """The folder of liboctavo.so and the op library: $OCTAVO_LIBRARY_DIR if set, otherwise `lib`
    inside the package. Raises ResourceError if liboctavo.so is not there."""
    named = os.environ.get("OCTAVO_LIBRARY_DIR")
    # liboctavo finds its plugins by its own path.
    path = pathlib.Path(named).absolute() if named else pathlib.Path(__file__).parent / "lib"
    if (path / "liboctavo.so").exists():
        return path
    where = f"OCTAVO_LIBRARY_DIR={named}" if named else "the package octavo"
    raise ResourceError(
        f"liboctavo.so: expected it in {path} ({where}), found none; install the wheel of octavo, or "
        "set OCTAVO_LIBRARY_DIR to the lib folder of a build")


@once
def liboctavo():
    """Loads the library once, with its prototypes. Raises ResourceError if it is missing or does
    not load."""
    path = folder() / "liboctavo.so"
    try:
        return _abi.declare(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as e:
        raise ResourceError(f"{path}: expected a liboctavo of this package's version, found one "
                            f"that does not load: {e}") from e


@once
def plugin_directories():
    """The folders of the packages that installed distributions name in the entry-point group
    `octavo.backends`. The packages are not imported."""
    directories = []
    for entry in importlib.metadata.entry_points(group="octavo.backends"):
        spec = importlib.util.find_spec(entry.value.partition(":")[0])
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            warnings.warn(f"entry point octavo.backends: {entry.name} = {entry.value}: expected an "
                          "installed package, found none; its plugin is ignored", stacklevel=2)
        directories += places
    return tuple(directories)


def version() -> str:
    """The version of liboctavo, such as "0.1.0"."""
    return str(liboctavo().octavo_version())

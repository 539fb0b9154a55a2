"""Finds and loads liboctavo, and the directories that hold plugins."""
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import warnings

from . import _abi
from .errors import ResourceError


def folder():
    """The folder of liboctavo.so and the op library: $OCTAVO_LIBRARY_DIR, else inside the
    package."""
    named = os.environ.get("OCTAVO_LIBRARY_DIR")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "lib"
    if (path / "liboctavo.so").exists():
        return path
    where = f"OCTAVO_LIBRARY_DIR={named}" if named else "the package octavo"
    raise ResourceError(
        f"liboctavo.so: expected it in {path} ({where}), found none; install the wheel of octavo, or "
        "set OCTAVO_LIBRARY_DIR to the lib folder of a build")


@functools.lru_cache(maxsize=None)
def liboctavo():
    """The loaded library with its prototypes; raises ResourceError when it is missing."""
    path = folder() / "liboctavo.so"
    try:
        return _abi.declare(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as e:
        raise ResourceError(f"{path}: expected a liboctavo of this package's version, found one "
                            f"that does not load: {e}") from e


@functools.lru_cache(maxsize=None)
def plugin_directories():
    """Folders of installed distributions that name a package in the entry-point group
    `octavo.backends`. Nothing of these packages is imported."""
    directories = []
    for entry in importlib.metadata.entry_points(group="octavo.backends"):
        spec = importlib.util.find_spec(entry.value.partition(":")[0])
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            warnings.warn(f"entry point octavo.backends: {entry.name} = {entry.value}: expected an "
                          "installed package, found none; its plugin is left out", stacklevel=2)
        directories += places
    return tuple(directories)


def version():
    """The version of liboctavo, "0.1.0"."""
    return str(liboctavo().octavo_version())

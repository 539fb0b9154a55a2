"""The program `octavo`, as `python -m octavo` and as the wheel puts it on PATH."""
import os
import sys

from . import library
from .errors import OctavoError, ResourceError


def program():
    """The path of the compiled program. Raises ResourceError if it is missing."""
    folder = library.folder()
    places = [folder / "octavo" / "octavo", folder.parent / "bin" / "octavo"]  # of a wheel, of a build
    for place in places:
        if place.is_file():
            return place
    raise ResourceError(f"octavo: expected the program {' or '.join(map(str, places))}, found none; "
                        "install the wheel of octavo again")


# The commands that look for plugins.
SEARCHING = ("bench", "check", "config schema", "config show", "doctor", "estimate", "init", "plugin list", "plugin lock",
             "plugin try", "plugin verify")


def arguments(given, python=sys.executable):
    """The given arguments, and those that only Python knows: `doctor` also asks the Python that runs this, unless another one
    is named, and plugins of installed packages are found as `octavo.prepare` finds them."""
    added = []
    is_named = any(word == "--python" or word.startswith("--python=") for word in given)
    if given[:1] == ["doctor"] and not is_named and python:
        added += ["--python", python]
    if any(" ".join(given[:n]) in SEARCHING for n in (1, 2)):
        added += [word for folder in library.plugin_directories() for word in ("--plugin-dir", folder)]
    return [*given, *added]


def main():
    """Replaces this process by the program, or for `run` by the Python that runs this. Exit code 3: it is not there."""
    try:
        if sys.argv[1:2] == ["run"]:
            os.execv(sys.executable, [sys.executable, "-m", "octavo.run", *sys.argv[2:]])
        path = program()
        os.execv(path, [str(path), *arguments(sys.argv[1:])])
    except (OctavoError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())

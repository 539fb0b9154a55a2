"""Problems of the Python that octavo is installed in, for `octavo doctor`. Imports no framework."""
import importlib.metadata
import importlib.util
import os
import pathlib
import sys

from . import library

PYTHON, TORCH = (3, 10), (2, 11)  # the oldest that work; the stable ABI of torch that the op library uses
NEXT_TORCH = (3, 0)  # torch keeps that ABI at least until then
OPS = "liboctavo_torch_ops.so"


def numbers(version):
    """(2, 11) of "2.11.0+cpu"."""
    return tuple(int(part) for part in version.split(".")[:2])


def dotted(version):
    """"2.11" of (2, 11)."""
    return ".".join(map(str, version))


EXPECTED_TORCH = f"torch {dotted(TORCH)} or later, below {dotted(NEXT_TORCH)}"
INSTALL_TORCH = f"run `python -m pip install 'torch>={dotted(TORCH)},<{dotted(NEXT_TORCH)}'`"


def has_torch_abi(version):
    return TORCH <= numbers(version) < NEXT_TORCH


def version_of(distribution):
    """The version of an installed distribution; None: it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _octavos():
    """[(version, folder)] of the distributions called octavo, in the order of sys.path."""
    found = {}
    for each in importlib.metadata.distributions(name="octavo"):
        found.setdefault(str(pathlib.Path(each.locate_file("")).resolve()), each.version)
    return [(version, folder) for folder, version in found.items()]


def problems():
    """[{"text": what was expected and found, "apply": a command, or ""}], worst first."""
    return list(_problems())


def _problems():
    def problem(text, apply=""):
        return {"text": text, "apply": apply}

    here = pathlib.Path(__file__).parent
    if sys.version_info[:2] < PYTHON:
        yield problem(f"expected Python {dotted(PYTHON)} or later, found {sys.version.split()[0]}")
    octavos = _octavos()
    if len(octavos) > 1:
        places = " and ".join(f"{version} in {folder}" for version, folder in octavos)
        yield problem(f"expected one octavo, found {places}; the first one counts", "run `python -m pip uninstall octavo`")
    elif octavos and not here.is_relative_to(octavos[0][1]):
        yield problem(f"expected the octavo that is installed in {octavos[0][1]}, found {here} before it on sys.path; "
                      "take that folder out of PYTHONPATH")
    own = library.version()
    if octavos and octavos[0][0] != own:
        yield problem(f"expected liboctavo {octavos[0][0]}, the package's version, found {own} in {library.folder()}; "
                      "unset OCTAVO_LIBRARY_DIR, or install the wheel again")
    torch = version_of("torch")
    if torch is None and version_of("jax") is None:
        yield problem("expected torch or jax, found neither", "run `python -m pip install torch`")
    if torch is not None and not has_torch_abi(torch):
        yield problem(f"expected {EXPECTED_TORCH}, found {torch}", INSTALL_TORCH)
    # octavo.torch.device takes cuBLAS from one of these three.
    cublas = version_of("nvidia-cublas") or "0.0"
    if torch is not None and "+cu" in torch and "+cu13" not in torch and version_of("octavo-cuda") is not None \
            and numbers(cublas)[0] != 13 and not os.environ.get("OCTAVO_CUBLASLT"):
        yield problem(f"expected cuBLAS of CUDA 13 for octavo-cuda, found torch {torch} without the package "
                      "nvidia-cublas of version 13", "run `python -m pip install 'nvidia-cublas>=13,<14'`")
    if torch is not None and not (library.folder() / OPS).exists():
        yield problem(f"expected {OPS} in {library.folder()}, found none: this octavo was built without torch; "
                      "install the wheel, or build with OCTAVO_BUILD_TORCH_OPS=ON")
    for entry in importlib.metadata.entry_points(group="octavo.backends"):
        if importlib.util.find_spec(entry.value.partition(":")[0].partition(".")[0]) is None:
            yield problem(f"expected the package {entry.value}, which the entry point {entry.name} of octavo.backends names, "
                          "found none; its plugin is not found: install it again")

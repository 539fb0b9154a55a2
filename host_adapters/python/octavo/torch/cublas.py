"""cuBLASLt of CUDA 13, by which the kernels for NVIDIA GPUs multiply.

A torch for CUDA 13 has loaded it. One for CUDA 12 has another, so it comes from the package
nvidia-cublas, from the loader's path, or from OCTAVO_CUBLASLT. The kernels open it by name and would
miss it in the first forward only, when the model is converted.
"""
import ctypes
import importlib.util
import os
import pathlib

import torch

from .. import _abi
from ..errors import VersionError

NAME, OLDEST = "libcublasLt.so.13", 130000  # kernels/cuda/blas.h
_packaged = []  # the library of nvidia-cublas: it stays loaded


def _folders():
    """Where NVIDIA's packages keep their libraries."""
    spec = importlib.util.find_spec("nvidia")
    return [pathlib.Path(p) / "cu13" / "lib" for p in spec.submodule_search_locations or ()] if spec else []


def _load(path):
    try:
        return ctypes.CDLL(str(path)), ""
    except OSError as e:
        return None, str(e)


def find():
    """Loads the library of nvidia-cublas if the loader has none of this name, so that the kernels find
    it."""
    if _packaged or os.environ.get("OCTAVO_CUBLASLT") or _load(NAME)[0] is not None:
        return
    for folder in _folders():
        library, _ = _load(folder / NAME)
        if library is not None:
            _packaged.append(library)
            return


def check(run):
    """Raises VersionError if a run on NVIDIA GPUs would not find the library."""
    if run.device is None or run.device[0] != _abi.DEVICE_CUDA:
        return
    if run.kernels != "cuda" or os.environ.get("OCTAVO_CUDA_GEMM") == "reference":
        return
    path = os.environ.get("OCTAVO_CUBLASLT") or NAME
    library, why = _load(path)
    version = _version(library) if library is not None else 0
    if version >= OLDEST:
        return
    found = why if library is None else f"version {version} in {path}"
    built = torch.version.cuda
    raise VersionError(
        f"cuBLASLt: expected version {OLDEST} or later, of CUDA 13, by which the kernels multiply, found "
        f"{found}; torch {torch.__version__} is built for CUDA {built or 'none'}: install a torch for "
        f"CUDA 13, or the package nvidia-cublas of version 13, or set OCTAVO_CUBLASLT to a {NAME}")


def _version(library):
    try:
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        return library.cublasLtGetVersion()
    except AttributeError:
        return 0

"""Where a session's tensors are: torch's device, and Octavo's.

The CPU; cuda:N, with the kernels of that GPU; or a device of any other type in torch, with kernels whose kind is the type's
name, as "npu" of a renamed PrivateUse1, or with the kernels that the configuration names.
"""
import ctypes
import importlib.util
import os
import pathlib

import torch
from torch.utils.dlpack import DLDeviceType

from .. import _abi
from ..errors import DeviceError, UnsupportedError, VersionError
from ..session_run import with_kind
from .models import is_dtensor


# cuBLASLt of CUDA 13, by which the kernels for NVIDIA GPUs multiply.
#
# A torch for CUDA 13 has loaded it. One for CUDA 12 has another, so it comes from the package
# nvidia-cublas, from the loader's path, or from OCTAVO_CUBLASLT. The kernels open it by name and would
# miss it in the first forward only, when the model is converted.

CUBLASLT, OLDEST_CUBLASLT = "libcublasLt.so.13", 130000  # kernels/cuda/blas.h
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


def find_cublas():
    """Loads the library of nvidia-cublas if the loader has none of this name, so that the kernels find
    it."""
    if _packaged or os.environ.get("OCTAVO_CUBLASLT") or _load(CUBLASLT)[0] is not None:
        return
    for folder in _folders():
        library, _ = _load(folder / CUBLASLT)
        if library is not None:
            _packaged.append(library)
            return


def check_cublas(run):
    """Raises VersionError if a run on NVIDIA GPUs would not find the library."""
    if run.device is None or run.device[0] != _abi.DEVICE_CUDA:
        return
    if run.kernels != "cuda" or os.environ.get("OCTAVO_CUDA_GEMM") == "reference":
        return
    path = os.environ.get("OCTAVO_CUBLASLT") or CUBLASLT
    library, why = _load(path)
    version = _version(library) if library is not None else 0
    if version >= OLDEST_CUBLASLT:
        return
    found = why if library is None else f"version {version} in {path}"
    built = torch.version.cuda
    raise VersionError(
        f"cuBLASLt: expected version {OLDEST_CUBLASLT} or later, of CUDA 13, since the kernels multiply by it, found "
        f"{found}; torch {torch.__version__} is built for CUDA {built or 'none'}: install a torch for "
        f"CUDA 13, or the package nvidia-cublas of version 13, or set OCTAVO_CUBLASLT to a {CUBLASLT}")


def _version(library):
    try:
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        return library.cublasLtGetVersion()
    except AttributeError:
        return 0


_NAMES = {_abi.DEVICE_CPU: "cpu", _abi.DEVICE_CUDA: "cuda"}


def device_of(weights):
    """The device of all weights. Raises DeviceError for weights on several devices."""
    first = weights[0] if weights else None
    device = _device_of(first.parameter) if first else torch.device("cpu")
    for w in weights:
        here = _device_of(w.parameter)
        if here != device:
            raise DeviceError(
                f"{w.name}: expected every parameter on {device}, as {first.name}, found "
                f"{here}; call model.to({str(device)!r}) before octavo.prepare")
    if device.type == "cuda" and torch.version.hip is not None:
        raise UnsupportedError(
            f"the model: expected cpu, or a GPU of NVIDIA, found {device} and torch {torch.__version__}, "
            "which is built for ROCm; call model.cpu() before octavo.prepare")
    return device


def _device_of(parameter):
    """Where its values are, or will be once a parameter without memory (meta) gets some: on its mesh,
    on torch's default device, or on the accelerator of this process."""
    if not parameter.is_meta:
        return parameter.device
    if is_dtensor(parameter):
        return _current(parameter.device_mesh.device_type)
    default = torch.get_default_device()
    if default.type not in ("cpu", "meta"):
        return default
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if found is None else _current(found.type)


def _current(kind):
    return torch.device("cpu") if kind == "cpu" else torch.device(
        kind, torch.get_device_module(kind).current_device())


def wanted(device, config):
    """(the configuration, what to open for a device that is not the CPU, as Run takes it)."""
    index = device.index or 0
    if device.type == "cuda":
        return config, (_abi.DEVICE_CUDA, index)
    config, is_other = with_kind(config, device.type)
    if is_other:  # the user knows that these kernels compute there
        return config, (_abi.DEVICE_AUTO, index)
    types = {"xpu": DLDeviceType.kDLOneAPI, torch._C._get_privateuse1_backend_name(): DLDeviceType.kDLExtDev}
    return config, (int(types.get(device.type, _abi.DEVICE_AUTO)), index)


def open(device, config, run):
    """run(configuration, what to open there). On the CPU the configuration also counts: there device.kind = "cuda" is a
    mistake to report. Raises its refusal of another device with the other remedies."""
    if device.type == "cpu":
        return run(config, (_abi.DEVICE_AUTO, 0))
    config, there = wanted(device, config)
    if device.type == "cuda":
        find_cublas()
    try:
        return run(config, there)
    except UnsupportedError as e:
        built = f" for CUDA {torch.version.cuda or 'none'}" if device.type == "cuda" else ""
        raise UnsupportedError(
            f"{e}\n  the model is on {device}, of torch {torch.__version__}{built}; model.cpu() before octavo.prepare "
            "trains it on the CPU") from None


def check(device, opened):
    """Raises DeviceError unless a run on `opened` (Run.device) reads tensors on torch's device."""
    if opened is None:
        return
    on_cpu = opened[0] == _abi.DEVICE_CPU
    if (device.type == "cpu") == on_cpu and (on_cpu or opened[1] == (device.index or 0)):
        return
    other = f"device type {opened[0]}" if device.type == "cpu" else device.type
    name = _NAMES.get(opened[0], other)
    remedy = ('set device.kind to that device, or call model.cpu() before octavo.prepare'
              if name == "cpu" else
              f'call model.to("{name}:{opened[1]}") before octavo.prepare, or set device.kind = "cpu"')
    name += "" if name == "cpu" else f":{opened[1]}"
    raise DeviceError(f"the model: expected its parameters on {name}, where the configuration runs, "
                      f"found them on {device}; {remedy}")


def is_captured(device):
    """Whether work on the current stream becomes part of a CUDA graph instead of running."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()

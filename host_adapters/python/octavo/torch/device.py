"""Where a session's tensors are: torch's device, and Octavo's.

The CPU; cuda:N, with the kernels of that GPU; or a device of torch's PrivateUse1, with the kernels
that device.kind names.
"""
import torch

from .. import _abi
from ..errors import DeviceError, UnsupportedError
from . import cublas
from .foreign import is_dtensor

_NAMES = {_abi.DEVICE_CPU: "cpu", _abi.DEVICE_CUDA: "cuda"}


def device_of(weights):
    """The device of all weights. Raises DeviceError for weights on several devices, and for one that
    no kernels exist for."""
    first = weights[0] if weights else None
    device = _device_of(first.parameter) if first else torch.device("cpu")
    for w in weights:
        here = _device_of(w.parameter)
        if here != device:
            raise DeviceError(
                f"{w.name}: expected every parameter on {device}, as {first.name}, found "
                f"{here}; call model.to({str(device)!r}) before octavo.prepare")
    if device.type not in ("cpu", "cuda", torch._C._get_privateuse1_backend_name()):
        raise DeviceError(f"the model: expected its parameters on cpu or cuda, found {device}; call "
                          "model.cpu() or model.cuda() before octavo.prepare")
    if device.type == "cuda" and torch.version.hip is not None:
        raise UnsupportedError(
            f"the model: expected cpu, or a GPU of NVIDIA, found {device} of torch {torch.__version__}, "
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


def wanted(device):
    """What to open for it, as Run takes it. On the CPU the configuration is asked, too: there
    device.kind = "cuda" is a mistake to report."""
    if device.type == "cuda":
        return _abi.DEVICE_CUDA, device.index or 0
    return _abi.DEVICE_AUTO, 0


def open(device, run):
    """run(what to open for it). Raises its refusal of a GPU with what else there is to do."""
    kind, index = wanted(device)
    if kind != _abi.DEVICE_CUDA:
        return run((kind, index))
    cublas.find()
    try:
        return run((kind, index))
    except UnsupportedError as e:
        raise UnsupportedError(
            f"{e}\n  the model is on {device}, of torch {torch.__version__} for CUDA "
            f"{torch.version.cuda or 'none'}; model.cpu() before octavo.prepare trains it on the CPU"
        ) from None


def check(device, opened):
    """Raises DeviceError unless a run on `opened` (Run.device) reads tensors of torch's device."""
    if opened is None or (device.type == "cpu") == (opened[0] == _abi.DEVICE_CPU):
        return
    name = _NAMES.get(opened[0], f"device type {opened[0]}")
    remedy = ('set device.kind to that device, or call model.cpu() before octavo.prepare'
              if name == "cpu" else
              f'call model.to("{name}:{opened[1]}") before octavo.prepare, or set device.kind = "cpu"')
    raise DeviceError(f"the model: expected its parameters on {name}, where the configuration runs, "
                      f"found them on {device}; {remedy}")


def is_captured(device):
    """Whether work on the current stream becomes part of a CUDA graph in the place of running."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()

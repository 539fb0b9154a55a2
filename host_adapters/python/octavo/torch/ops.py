"""The op library: torch.ops.octavo, and registered runs.

The library uses torch's stable ABI. Ops refer to a run by number, so a compiled graph that outlives
its model raises StateError instead of crashing.
"""
import ctypes
import threading

import torch

from .. import _abi
from ..errors import OctavoError, ResourceError, UnsupportedError, VersionError, error, from_op
from ..installation import OPS, TORCH, numbers
from ..library import folder, liboctavo, once
from . import fakes
from .op_numbers import (ASK_TORCH, ASKED, DTYPES, GATHERED, NO_BACKWARD, NO_VERSION, OF_GATHERED, OF_GRAPH,
                         OF_PACKED, PACKED, PROLOGUE_LAYER_NORM, PROLOGUE_RMS_NORM, PROLOGUE_SWIGLU, QUIET, TORCH_DTYPES,
                         WANT_DB, WANT_DW, WANT_DX)


# The overloads for hot code, set by library(). An overload packet would resolve them in each call.
linear_forward = linear_backward = None


class LinearShape(ctypes.Structure):
    """As octavo::core::LinearShape."""
    _fields_ = [("name", _abi.Str), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("gradient_dtype", ctypes.c_uint32), ("parameter", ctypes.c_uint32)]


class ParameterShape(ctypes.Structure):
    """As octavo::core::ParameterShape."""
    _fields_ = [("name", _abi.Str), ("transposed", ctypes.c_uint32)]


# Of compiled code: everything else asks the host before the op, see coupling. Their first argument is Registration.host,
# which this package does not need.
ANSWER = 256  # octavo::core::kAnswer
COMBINE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
SETTLE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)


class Registration(ctypes.Structure):
    """As octavo::core::Registration."""
    _fields_ = [("run", ctypes.c_void_p), ("parameters", ctypes.POINTER(ParameterShape)),
                ("linears", ctypes.POINTER(LinearShape)),
                ("gradients", ctypes.c_void_p), ("weights", ctypes.c_void_p),
                ("since", ctypes.c_void_p), ("combine", COMBINE), ("settle", SETTLE),
                ("host", ctypes.c_void_p),
                ("parameter_count", ctypes.c_uint32), ("linear_count", ctypes.c_uint32),
                ("device", _abi.Str)]


@once
def library():
    """Loads the op library once and returns it. Raises ResourceError or VersionError with the
    remedy."""
    liboctavo()
    path = folder() / OPS
    if not path.exists():
        raise ResourceError(f"{OPS}: expected it in {path.parent}, found none; this "
                            "build of octavo has no torch support: install the wheel, or build with "
                            "OCTAVO_BUILD_TORCH_OPS=ON")
    if numbers(torch.__version__) < TORCH:
        raise VersionError(f"torch: expected {'.'.join(map(str, TORCH))} or later, whose stable ABI {path.name} uses, found "
                           f"{torch.__version__}; upgrade torch")
    try:
        torch.ops.load_library(str(path))
        lib = ctypes.CDLL(str(path))
    except OSError as e:
        raise ResourceError(f"{path}: expected a library that loads into torch "
                            f"{torch.__version__}: {e}") from e
    lib.octavo_torch_host.restype = ctypes.c_void_p
    lib.octavo_torch_take_diagnostics.restype = ctypes.c_char_p
    lib.octavo_torch_register.restype = ctypes.c_int64
    lib.octavo_torch_register.argtypes = [ctypes.POINTER(Registration)]
    lib.octavo_torch_diagnose.argtypes = [ctypes.c_char_p]
    lib.octavo_torch_release.argtypes = [ctypes.c_int64]
    lib.octavo_torch_is_due.restype = ctypes.c_int32
    lib.octavo_torch_is_due.argtypes = [ctypes.c_int64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64]
    lib.octavo_torch_plan_shard.restype = ctypes.c_uint32
    lib.octavo_torch_plan_shard.argtypes = [ctypes.c_int64, ctypes.c_uint32, ctypes.c_int64,
                                            ctypes.POINTER(ctypes.c_uint64)]
    lib.octavo_torch_calls.restype = ctypes.c_uint64
    lib.octavo_torch_calls.argtypes = [ctypes.c_int64, ctypes.c_uint32]
    lib.octavo_torch_forwards.restype = ctypes.c_uint64
    lib.octavo_torch_forwards.argtypes = [ctypes.c_int64, ctypes.c_uint32]
    lib.octavo_torch_xxh3_128.restype = None
    lib.octavo_torch_xxh3_128.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p]
    lib.octavo_torch_gpu.restype = ctypes.c_int32
    lib.octavo_torch_gpu.argtypes = [ctypes.c_int64, ctypes.c_char_p]
    fakes.register()
    global linear_forward, linear_backward
    linear_forward = torch.ops.octavo.linear_forward.default
    linear_backward = torch.ops.octavo.linear_backward.default
    return lib


def take_diagnostics():
    """Returns and clears the diagnostics of this thread."""
    return library().octavo_torch_take_diagnostics().decode("utf-8", "replace")


def register(opened, weights, linears, plans, slots, flags, callbacks, device):
    """Registers a sealed session_run.Run and returns its number.

    weights: the Weight of each parameter; linears: [(name, Weight)]; plans: an octavo_linear_plan
    per linear; slots: a tensor per slot, None for a native one, which each op asks for its memory; flags: Flags;
    callbacks: (COMBINE, SETTLE), functions of the host; device: a torch.device. Flags and callbacks must live
    until release.
    """
    shapes = [LinearShape(_abi.Str.of(name), *w.shape, DTYPES[w.parameter.dtype], w.id)
              for name, w in linears]
    given = Registration(
        opened.handle,
        (ParameterShape * len(weights))(*(ParameterShape(_abi.Str.of(w.name), w.transposed) for w in weights)),
        (LinearShape * len(shapes))(*shapes), ctypes.addressof(flags.gradients),
        ctypes.addressof(flags.weights), ctypes.addressof(flags.since), *callbacks, None,
        len(weights), len(shapes), _abi.Str.of(str(device)))
    number = library().octavo_torch_register(ctypes.byref(given))
    if number == 0:
        raise UnsupportedError(take_diagnostics())
    held = {i: t for i, t in enumerate(slots) if t is not None}
    try:
        run("hold_slots", number, list(held), list(held.values()))
    except BaseException:
        library().octavo_torch_release(number)
        raise
    fakes.shapes_of[number] = fakes.Shapes(shapes, plans)
    return number


def answer(call):
    """What a function of the host answers to the op that calls it. An exception becomes the text of the op's error; one
    that ends programs, such as KeyboardInterrupt, is also raised as itself once the op has failed."""
    try:
        call()
    except BaseException as e:  # none may cross C
        status, said = (e.status, str(e)) if isinstance(e, OctavoError) else (OctavoError.status, f"{type(e).__name__}: {e}")
        library().octavo_torch_diagnose(said.encode("utf-8", "replace"))
        if not isinstance(e, Exception):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(type(e)))
        return ANSWER + status
    return ANSWER


def release(number):
    """Forgets a run. Ops that refer to it raise StateError afterwards."""
    fakes.shapes_of.pop(number, None)
    library().octavo_torch_release(number)


def is_due(number, parameter, data, version):
    """Whether a forward that records would be a boundary, by the weight (an id) at this address and of this version."""
    return bool(library().octavo_torch_is_due(number, parameter, data, version))


def plan_shard(number, parameter, rows):
    """For ranks that have `rows` rows of a parameter (an id) each: (bytes of a packet of codes, None), or
    (None, why the backend cannot cast shards like these). Raises what is no refusal."""
    packet_bytes = ctypes.c_uint64()
    status = library().octavo_torch_plan_shard(number, parameter, rows, ctypes.byref(packet_bytes))
    said = take_diagnostics()
    if status not in (0, UnsupportedError.status):
        raise error(status, said)
    return (None, said) if status else (packet_bytes.value, None)


def gpu(number):
    """The UUID of the GPU of a run as hexadecimal digits, the same in every process; empty where no
    driver says it."""
    uuid = ctypes.create_string_buffer(16)
    size = library().octavo_torch_gpu(number, uuid)
    return uuid.raw[:size].hex()


def calls(number, verb):
    """How many times a verb (octavo/slots.h) ran through ops of this run."""
    return library().octavo_torch_calls(number, verb)


def run(name, *arguments):
    """Calls torch.ops.octavo.<name>. Raises its errors as exceptions of this package."""
    try:
        return getattr(torch.ops.octavo, name)(*arguments)
    except RuntimeError as e:
        typed = from_op(e)
        if typed is e:
            raise
        raise typed from None


def xxh3(tensor):
    """XXH3 with 128 bits of the bytes of a contiguous tensor on the CPU, in 32 digits; other threads run meanwhile."""
    digest = ctypes.create_string_buffer(16)
    library().octavo_torch_xxh3_128(tensor.data_ptr(), tensor.numel() * tensor.element_size(), digest)
    return digest.raw.hex()


def forwards(number, linear):
    """How many times the forward of a linear ran through ops of this run."""
    return library().octavo_torch_forwards(number, linear)

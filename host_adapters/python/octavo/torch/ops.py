"""The op library: torch.ops.octavo, its shape functions for tracing compilers, and registered runs.

The library uses torch's stable ABI. Ops refer to a run by number, so a compiled graph that outlives
its model raises StateError instead of crashing.
"""
import ctypes
import functools

import torch

from .. import _abi
from ..errors import (OctavoError, ResourceError, StateError, UnsupportedError, VersionError, error,
                      from_op)
from ..library import folder, liboctavo

# Flags of linear_forward: `saved` stays empty; casts record nothing.
NO_BACKWARD, QUIET = 256, 512
# Flags of linear_backward: the op records that it added to a gradient slot; FSDP gathered the weight.
OF_GRAPH, OF_GATHERED = 256, 512
# version of linear_forward: the op asks torch for the weight's; there is none (inference tensors);
# FSDP gathered the weight, and Flags alone say what is stale.
ASK_TORCH, NO_VERSION, GATHERED = -1, -2, -4
WANT_DX, WANT_DW, WANT_DB = 1, 2, 4
PROLOGUE_LAYER_NORM, PROLOGUE_RMS_NORM, PROLOGUE_SWIGLU = 1, 2, 5

DTYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16, torch.float16: _abi.F16}
TORCH_DTYPES = {_abi.F32: torch.float32, _abi.BF16: torch.bfloat16, _abi.F16: torch.float16,
                _abi.I32: torch.int32}


# The overloads for hot code, set by library(). An overload packet would resolve them in each call.
linear_forward = linear_backward = None


class LinearShape(ctypes.Structure):
    """As octavo::core::LinearShape."""
    _fields_ = [("name", _abi.Str), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("gradient_dtype", ctypes.c_uint32), ("parameter", ctypes.c_uint32)]


class ParameterShape(ctypes.Structure):
    """As octavo::core::ParameterShape."""
    _fields_ = [("name", _abi.Str), ("transposed", ctypes.c_uint32)]


# Their first argument is Registration.host, which this package does not need.
COMBINE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
SETTLE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)


class Registration(ctypes.Structure):
    """As octavo::core::Registration."""
    _fields_ = [("run", ctypes.c_void_p), ("slots", ctypes.POINTER(ctypes.c_void_p)),
                ("parameters", ctypes.POINTER(ParameterShape)),
                ("linears", ctypes.POINTER(LinearShape)),
                ("gradients", ctypes.c_void_p), ("weights", ctypes.c_void_p),
                ("since", ctypes.c_void_p), ("combine", COMBINE), ("settle", SETTLE),
                ("host", ctypes.c_void_p),
                ("parameter_count", ctypes.c_uint32), ("linear_count", ctypes.c_uint32),
                ("device", _abi.Str)]


@functools.lru_cache(maxsize=None)
def library():
    """Loads the op library once and returns it. Raises ResourceError or VersionError with the
    remedy."""
    liboctavo()
    path = folder() / "liboctavo_torch_ops.so"
    if not path.exists():
        raise ResourceError(f"liboctavo_torch_ops.so: expected it in {path.parent}, found none; this "
                            "build of octavo has no torch support: install the wheel, or build with "
                            "OCTAVO_BUILD_TORCH_OPS=ON")
    version = tuple(int(v) for v in torch.__version__.split(".")[:2])
    if version < (2, 11):
        raise VersionError(f"torch: expected 2.11 or later, whose stable ABI {path.name} uses, found "
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
    lib.octavo_torch_move_slots.restype = ctypes.c_uint32
    lib.octavo_torch_move_slots.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_uint32),
                                            ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64]
    lib.octavo_torch_calls.restype = ctypes.c_uint64
    lib.octavo_torch_calls.argtypes = [ctypes.c_int64, ctypes.c_uint32]
    lib.octavo_torch_forwards.restype = ctypes.c_uint64
    lib.octavo_torch_forwards.argtypes = [ctypes.c_int64, ctypes.c_uint32]
    lib.octavo_torch_gpu.restype = ctypes.c_int32
    lib.octavo_torch_gpu.argtypes = [ctypes.c_int64, ctypes.c_char_p]
    _register_fakes()
    global linear_forward, linear_backward
    linear_forward = torch.ops.octavo.linear_forward.default
    linear_backward = torch.ops.octavo.linear_backward.default
    return lib


def take_diagnostics():
    """Returns and clears the diagnostics of this thread."""
    return library().octavo_torch_take_diagnostics().decode("utf-8", "replace")


class Shapes:
    """What a tracing compiler must know about a registered run."""

    def __init__(self, shapes, plans):
        self.linears = [(s.n, s.k, TORCH_DTYPES[s.gradient_dtype]) for s in shapes]
        self.saved = [plan.saved for plan in plans]
        self.gradients = [plan.gradient for plan in plans]


_shapes = {}  # run number -> Shapes


def register(run, weights, linears, plans, slots, flags, callbacks, device):
    """Registers a sealed run and returns its number.

    weights: the Weight of each parameter; linears: [(name, Weight)]; plans: an octavo_linear_plan
    per linear; slots: a tensor per slot, None for a native one; flags: Flags; callbacks: (COMBINE,
    SETTLE), functions of the host; device: a torch.device. Slots, flags and callbacks must live
    until release.
    """
    shapes = [LinearShape(_str(name), *w.shape, DTYPES[w.parameter.dtype], w.id)
              for name, w in linears]
    given = Registration(
        run.handle, (ctypes.c_void_p * len(slots))(*(None if t is None else t.data_ptr()
                                                     for t in slots)),
        (ParameterShape * len(weights))(*(ParameterShape(_str(w.name), w.transposed)
                                          for w in weights)),
        (LinearShape * len(shapes))(*shapes), ctypes.addressof(flags.gradients),
        ctypes.addressof(flags.weights), ctypes.addressof(flags.since), *callbacks, None,
        len(weights), len(shapes), _str(str(device)))
    number = library().octavo_torch_register(ctypes.byref(given))
    if number == 0:
        raise UnsupportedError(take_diagnostics())
    _shapes[number] = Shapes(shapes, plans)
    return number


def _str(text):
    data = text.encode()
    return _abi.Str(data, len(data))


def answer(call):
    """The status of a function of the host that an op calls; an exception becomes the text of the
    op's error."""
    try:
        call()
    except Exception as e:  # none may cross C
        status = e.status if isinstance(e, OctavoError) else OctavoError.status
        library().octavo_torch_diagnose(f"{e or type(e).__name__}".encode())
        return status
    return 0


def release(number):
    """Forgets a run. Ops that refer to it raise StateError afterwards."""
    _shapes.pop(number, None)
    library().octavo_torch_release(number)


def move_slots(number, slots, addresses):
    """The memory of these slots (ids) is at these addresses from now on; None: it is released."""
    count = len(slots)
    status = library().octavo_torch_move_slots(number, (ctypes.c_uint32 * count)(*slots),
                                               (ctypes.c_void_p * count)(*addresses), count)
    if status:
        raise error(status, take_diagnostics())


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


def forwards(number, linear):
    """How many times the forward of a linear ran through ops of this run."""
    return library().octavo_torch_forwards(number, linear)


def _known(run):
    if run not in _shapes:
        raise StateError(f"run {run}: expected the number of an open run, found none; the model was "
                         "closed, or this graph was compiled for another one: call octavo.prepare "
                         "and torch.compile again")
    return _shapes[run]


def _rows(t):
    rows = 1
    for size in t.shape[:-1]:
        rows = rows * size
    return rows


def _saved(shapes, linear, flags, x):
    keeps = not flags & (NO_BACKWARD | _abi.FORWARD_EVALUATION)
    size = shapes.saved[linear].bytes(_rows(x)) if keeps else 0
    return x.new_empty((size,), dtype=torch.uint8)


def _register_fakes():
    """Registers functions that compute the shapes and dtypes of results for fake and meta tensors,
    also for dynamic batch sizes."""
    fake = torch.library.register_fake

    @fake("octavo::linear_forward")
    def _(run, linear, flags, version, x, weight, bias):
        shapes = _known(run)
        n = shapes.linears[linear][0]
        return x.new_empty((*x.shape[:-1], n)), _saved(shapes, linear, flags, x)

    @fake("octavo::linear_backward")
    def _(run, linear, flags, wanted, dy, x, saved, weight, token):
        shapes = _known(run)
        n, k, dtype = shapes.linears[linear]
        dw_dtype = dtype
        if flags & OF_GATHERED and weight is not None:
            dw_dtype = weight.dtype
        own_dw = wanted & WANT_DW and shapes.gradients[linear] == _abi.GRADIENT_TENSOR
        none = (0,)
        dx = (dy.new_empty((*dy.shape[:-1], k)) if wanted & WANT_DX
              else dy.new_empty(none, dtype=torch.uint8))
        dw = (dy.new_empty((n, k), dtype=dw_dtype) if own_dw
              else dy.new_empty(none, dtype=torch.uint8))
        db = (dy.new_empty((n,), dtype=dtype) if wanted & WANT_DB
              else dy.new_empty(none, dtype=torch.uint8))
        return dx, dw, db

    @fake("octavo::fused_forward")
    def _(run, linear, flags, op, eps, version, x, gamma, beta, weight, bias):
        shapes = _known(run)
        n = shapes.linears[linear][0]
        rows = _rows(x)
        mean = rows if op == PROLOGUE_LAYER_NORM else 0
        rstd = rows if op in (PROLOGUE_LAYER_NORM, PROLOGUE_RMS_NORM) else 0
        return (x.new_empty((*x.shape[:-1], n)), _saved(shapes, linear, flags, x),
                x.new_empty((mean,), dtype=torch.float32),
                x.new_empty((rstd,), dtype=torch.float32))

    def nothing(*_):
        return None

    for name in ("end_step", "optimizer_step", "sum_of_squares", "prepare_step",
                 "read_parameter", "write_parameter", "run_stage"):
        fake(f"octavo::{name}")(nothing)

"""The op library: torch.ops.octavo, and registered runs.

The library uses torch's stable ABI. Ops refer to a run by number, so a compiled graph that outlives
its model raises StateError instead of crashing.
"""
import ctypes
import threading

import torch

from .. import _abi
from ..errors import OctavoError, ResourceError, StateError, UnsupportedError, VersionError, error, from_op
from ..installation import OPS, TORCH, numbers
from ..library import folder, liboctavo, once


# Numbers of the ops: flags, special versions, dtypes.

# Flags of linear_forward: `saved` stays empty; casts record nothing.
NO_BACKWARD, QUIET, ASKED = 256, 512, 1024
# Flags of linear_backward: the op records that it added to a gradient slot; FSDP gathered the weight; its
# codes.
OF_GRAPH, OF_GATHERED, OF_PACKED = 256, 512, 1024
# version of linear_forward: the op asks torch for the weight's; there is none (inference tensors);
# FSDP gathered the weight, and Flags alone say what is stale; it gathered its codes, and there is no weight.
ASK_TORCH, NO_VERSION, GATHERED, PACKED = -1, -2, -4, -5
WANT_DX, WANT_DW, WANT_DB = 1, 2, 4
PROLOGUE_LAYER_NORM, PROLOGUE_RMS_NORM, PROLOGUE_SWIGLU = 1, 2, 5

DTYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16, torch.float16: _abi.F16}
TORCH_DTYPES = {_abi.F32: torch.float32, _abi.BF16: torch.bfloat16, _abi.F16: torch.float16,
                _abi.I32: torch.int32}


# Shapes and dtypes of what the ops give, for tracing compilers: fake and meta tensors.


class Shapes:
    """The facts about a registered run that a tracing compiler needs."""

    def __init__(self, shapes, plans):
        self.linears = [(s.n, s.k, TORCH_DTYPES[s.gradient_dtype]) for s in shapes]
        self.saved = [plan.saved for plan in plans]
        self.gradients = [plan.gradient for plan in plans]


shapes_of = {}  # run number -> Shapes


def _known(run):
    if run not in shapes_of:
        raise StateError(f"run {run}: expected the number of an open run, found none; the model was "
                         "closed, or this graph was compiled for another one: call octavo.prepare "
                         "and torch.compile again")
    return shapes_of[run]


def _rows(t):
    rows = 1
    for size in t.shape[:-1]:
        rows = rows * size
    return rows


def _saved(shapes, linear, flags, x):
    keeps = not flags & (NO_BACKWARD | _abi.FORWARD_EVALUATION)
    size = shapes.saved[linear].bytes(_rows(x)) if keeps else 0
    return x.new_empty((size,), dtype=torch.uint8)


def register_fakes():
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
        dw_dtype = weight.dtype if flags & OF_GATHERED and weight is not None else dtype
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

    for name in ("hold_slots", "end_step", "optimizer_step", "sum_of_squares", "prepare_step",
                 "read_parameter", "write_parameter", "run_stage", "shard_measure", "shard_cast",
                 "shard_gathered"):
        fake(f"octavo::{name}")(nothing)


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
    register_fakes()
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
    per linear; slots: a tensor per slot, None for a native one, whose memory each op looks up; flags: Flags;
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
    shapes_of[number] = Shapes(shapes, plans)
    return number


def answer(call):
    """The status that a function of the host returns to the op that calls it. An exception becomes the text of the op's error;
    one that ends programs, such as KeyboardInterrupt, is also raised as itself once the op has failed."""
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
    shapes_of.pop(number, None)
    library().octavo_torch_release(number)


def is_due(number, parameter, data, version):
    """Whether a forward that records would be a boundary, by the weight (an id) at this address and of this version."""
    return bool(library().octavo_torch_is_due(number, parameter, data, version))


def plan_shard(number, parameter, rows):
    """For ranks that have `rows` rows of a parameter (an id) each: (bytes of a packet of codes, None), or
    (None, why the backend cannot cast shards like these). Raises errors other than a refusal."""
    packet_bytes = ctypes.c_uint64()
    status = library().octavo_torch_plan_shard(number, parameter, rows, ctypes.byref(packet_bytes))
    said = take_diagnostics()
    if status not in (0, UnsupportedError.status):
        raise error(status, said)
    return (None, said) if status else (packet_bytes.value, None)


def gpu(number):
    """The UUID of the GPU of a run as hexadecimal digits, the same in every process; empty where no driver has it."""
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

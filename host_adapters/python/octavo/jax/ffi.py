"""The library of XLA handlers, and its calls in JAX programs.

Programs refer to a run by number, so one that outlives its run gets StateError's text from XLA instead
of a crash. A failure inside a program is JAX's own exception, whose text starts with "[octavo status N]" and ends with the
remedy.
"""
import ctypes

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap

from .. import _abi, stages
from ..errors import InvalidError, ResourceError, UnsupportedError, VersionError, error
from ..library import folder, liboctavo, once

OLDEST = (0, 10)  # jaxlib with the version of the FFI that the library is built with
VERBS = ("quantize", "forward", "backward", "end_step", "optimizer_step", "write_parameter",
         "read_parameter", "run_stage")
PLATFORMS = {"cpu": "cpu", "CUDA": "cuda"}  # of jax.ffi -> of the symbols
_others = set()  # the platform of a plugin that has handlers in this process
BIAS, SAVE, DX, DW, DB, RECORDS = 256, 512, 1024, 2048, 4096, 8192  # host_adapters/jax/call.h

DTYPES = {_abi.F32: jnp.float32, _abi.BF16: jnp.bfloat16, _abi.F16: jnp.float16,
          _abi.I32: jnp.int32, _abi.U8: jnp.uint8, _abi.E4M3FN: jnp.float8_e4m3fn,
          _abi.E5M2: jnp.float8_e5m2, _abi.E8M0FNU: jnp.float8_e8m0fnu}
OCTAVO_DTYPES = {np.dtype(v): k for k, v in DTYPES.items() if k in (_abi.F32, _abi.BF16, _abi.F16)}


class Registration(ctypes.Structure):
    """As octavo::jax::Registration."""
    _fields_ = [("run", ctypes.c_void_p), ("shapes", ctypes.POINTER(ctypes.c_int64)),
                ("weights", ctypes.POINTER(ctypes.c_uint32)), ("parameter_count", ctypes.c_uint32),
                ("linear_count", ctypes.c_uint32), ("options", ctypes.c_char_p)]


@once
def library():
    """Loads the library once and registers its handlers with XLA for the CPU and for CUDA; serve adds others. Raises
    ResourceError or VersionError with the remedy."""
    liboctavo()
    path = folder() / "liboctavo_jax.so"
    if not path.exists():
        raise ResourceError(f"liboctavo_jax.so: expected it in {path.parent}, found none; this build "
                            "of octavo has no JAX support: install a wheel of a release, or build with "
                            "OCTAVO_BUILD_JAX=ON")
    if tuple(int(v) for v in jax.__version__.split(".")[:2]) < OLDEST:
        raise VersionError(f"jax: expected {OLDEST[0]}.{OLDEST[1]} or later, found {jax.__version__}; "
                           "upgrade jax and jaxlib")
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as e:
        raise ResourceError(f"{path}: expected a library that loads: {e}") from e
    lib.octavo_jax_host.restype = ctypes.c_void_p
    lib.octavo_jax_take_diagnostics.restype = ctypes.c_char_p
    lib.octavo_jax_register.restype = ctypes.c_int64
    lib.octavo_jax_register.argtypes = [ctypes.POINTER(Registration)]
    lib.octavo_jax_release.argtypes = [ctypes.c_int64]
    lib.octavo_jax_optimizer_bytes.restype = ctypes.c_uint32
    lib.octavo_jax_optimizer_bytes.argtypes = [ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32,
                                               ctypes.POINTER(ctypes.c_uint64)]
    lib.octavo_jax_plan.restype = ctypes.c_uint32
    lib.octavo_jax_plan.argtypes = [ctypes.c_int64, ctypes.c_uint32, *stages.OUTPUTS]
    for platform, suffix in PLATFORMS.items():
        _register(lib, platform, suffix)
    return lib


def _register(lib, platform, suffix):
    for verb in VERBS:
        handler = getattr(lib, f"octavo_jax_{verb}_{suffix}")
        jax.ffi.register_ffi_target(f"octavo_{verb}", jax.ffi.pycapsule(handler), platform=platform)


def serve(platform):
    """Registers the handlers for the platform of a PJRT plugin, under its name in JAX. XLA gets them when the plugin
    registers how it takes custom calls. Raises UnsupportedError for a second platform of this process, whose calls the
    handlers could not tell from the first one's."""
    if _others - {platform}:
        raise UnsupportedError(f"platform {platform!r}: expected {', '.join(_others)}, whose handlers this process has; "
                               "use one process for each platform of a plugin")
    if not _others:
        _register(library(), platform, "other")
        _others.add(platform)


def export_checks():
    """The disabled_checks that let jax.export take programs that call a backend: they run where a run of an equal model
    with equal options is open, on the same version of octavo."""
    return [jax.export.DisabledSafetyCheck.custom_call(f"octavo_{verb}") for verb in VERBS]


def take_diagnostics():
    """Returns and clears what the backend said outside of programs."""
    return library().octavo_jax_take_diagnostics().decode("utf-8", "replace")


def register(run, shapes, weights, options):
    """Registers a sealed run and returns its number. shapes: (rows, cols) of each parameter; weights: the parameter of each
    linear; options: text that differs where options of the backend or of a layer do, so that a program that was exported
    finds a run with its own. The run must stay open until release."""
    flat = [size for shape in shapes for size in shape]
    given = Registration(run.handle, (ctypes.c_int64 * max(len(flat), 1))(*flat),
                         (ctypes.c_uint32 * max(len(weights), 1))(*weights), len(shapes),
                         len(weights), options.encode())
    return library().octavo_jax_register(ctypes.byref(given))


def release(number):
    """Waits for calls in flight of this run; later ones fail."""
    library().octavo_jax_release(number)


def optimizer_bytes(number, first, count):
    """The workspace of the optimizer's verbs for `count` parameters from `first` on. Raises an
    OctavoError."""
    bytes = ctypes.c_uint64()
    status = library().octavo_jax_optimizer_bytes(number, first, count, ctypes.byref(bytes))
    if status:
        raise error(status, take_diagnostics() or "workspace_bytes of octavo.optimizer/2")
    return bytes.value


def plan(number, world):
    """The reduction over `world` ranks of all gradients that the backend keeps: ([stages.Stage], bytes of
    send and of recv, bytes of state). Raises an OctavoError."""
    return stages.collect(take_diagnostics, library().octavo_jax_plan, number, world)


def verb(name, layer, target, places, values, given=(), results=(), record=None, workspace=0, flags=0,
         access=None, shared=None):
    """One call of a verb inside of a JAX program.

    layer: its name, for messages; target: (run, object, count of stacked objects); places: the Places of
    the object's list; values: slot id -> array, of every place that the verb reads; given, results: the operands and the
    jax.ShapeDtypeStructs in front of the slots; record: f32 [number of accumulators], or None: record
    nothing; workspace: bytes, None: the verb has none; access: how every place is used instead of its own
    access; shared: index of a given operand -> index of the result in the same memory. Returns (results, {slot id: what was
    written}, the new record or None). Any thread.
    """
    operands, outputs, aliases, written = list(given), list(results), dict(shared or {}), []
    for place in places:
        how = access or place.access
        if how in (_abi.ACCESS_NONE, _abi.ACCESS_ACCUMULATE):
            continue
        shape = (*target[2:], *place.shape) if target[2] > 1 else place.shape
        if how != _abi.ACCESS_WRITE:
            operands.append(_checked(name, values[place.slot], shape, place))
        if how != _abi.ACCESS_READ:
            if how == _abi.ACCESS_UPDATE:
                aliases[len(operands) - 1] = len(outputs)
            outputs.append(jax.ShapeDtypeStruct(shape, place.dtype))
            written.append(place.slot)
    if record is not None and record.size:
        flags |= RECORDS
        aliases[len(operands)] = len(outputs)
        operands.append(record)
        outputs.append(jax.ShapeDtypeStruct(record.shape, jnp.float32))
    if workspace is not None:
        outputs.append(jax.ShapeDtypeStruct((workspace,), jnp.uint8))
    numbers = dict(zip(("run", "object", "count"), map(np.int64, target)), flags=np.int64(flags))
    call = jax.ffi.ffi_call(f"octavo_{name}", outputs, input_output_aliases=aliases)
    out = _plain_call(lambda *a: tuple(call(*a, **numbers)), layer)(*operands)
    out = varying(out, operands)  # as XLA cannot know
    after = len(results) + len(written)
    return (out[:len(results)], dict(zip(written, out[len(results):after])),
            out[after] if flags & RECORDS else None)


def varying(tree, others):
    """The tree as one that differs between the ranks of shard_map where any of `others` does."""
    axes = varying_axes(others)
    return jax.tree.map(lambda leaf: jax.lax.pcast(leaf, tuple(axes - varying_axes(leaf)), to="varying"), tree)


def varying_axes(tree):
    """The axes of shard_map over whose ranks any leaf differs."""
    return frozenset().union(*(jax.typeof(leaf).manual_axis_type.varying for leaf in jax.tree.leaves(tree)))


def _checked(name, value, shape, place):
    if place.is_session and value.shape == place.shape:  # the handler has one for each stacked object
        value = jnp.broadcast_to(value, shape)
    if value.shape == shape and value.dtype == place.dtype:
        return value
    raise InvalidError(f"{name}: slot {place.slot}: expected {list(shape)} of "
                       f"{np.dtype(place.dtype).name}, found {list(value.shape)} of {value.dtype.name}; "
                       "is this the state of another model?")


def _plain_call(function, layer):
    """vmap is a loop, as of any pure function; a derivative is an UnsupportedError."""
    call = jax.custom_jvp(sequential_vmap(function))

    @call.defjvp
    def refuse(primals, tangents):
        raise UnsupportedError(
            f"{layer}: expected no derivative of a result of octavo.jax.record or value_and_grad, found one; differentiate "
            "inside of the function given to octavo.jax.record")

    return call

"""liboctavo's CPU kernels through ctypes, on torch tensors: what compare.py calls.

The structs repeat sdk/include/octavo/{abi,tensor,kernels,octavo}.h; every call states their sizes,
which the kernels check, so a layout that went out of date is refused.
"""
import ctypes
import pathlib

import torch

F32, BF16, F16 = (2 | 32 << 8), (4 | 16 << 8), (2 | 16 << 8)
E4M3, E5M2 = (10 | 8 << 8), (12 | 8 << 8)
DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16,
          torch.float8_e4m3fn: E4M3, torch.float8_e5m2: E5M2}
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
KIND_KERNELS_CAPS, KIND_QUANTIZE, KIND_GEMM, KIND_OPEN = 24, 25, 30, 42
RULE_QUOTIENT = 1

U32, U64, I64, F = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_float
Pointer = ctypes.c_void_p


def struct(name, fields):
    return type(name, (ctypes.Structure,), {"_fields_": fields})


HEADER = [("size", U32), ("kind", U32)]
Str = struct("Str", [("data", ctypes.c_char_p), ("size", U64)])
Tensor = struct("Tensor", [("data", Pointer), ("rows", I64), ("cols", I64), ("stride", I64),
                           ("dtype", U32), ("reserved", U32)])
Scale = struct("Scale", [("data", Pointer), ("stride", I64), ("dtype", U32), ("granularity", U32),
                         ("second", Pointer), ("order", U32), ("reserved", U32)])
Device = struct("Device", [("type", U32), ("index", ctypes.c_int32)])
Caps = struct("Caps", HEADER + [("id", Str), ("flags", U64), ("alignment", U64),
                                ("pack_rows", U64)])
OpenDesc = struct("OpenDesc", HEADER + [
    ("config_path", Str), ("config_text", Str), ("overrides", Pointer), ("override_count", U64),
    ("plugin_dirs", Pointer), ("plugin_dir_count", U64), ("device", Device), ("host", Pointer)])
SessionDesc = struct("SessionDesc", HEADER + [
    ("device", Device), ("host", Pointer), ("kernels", ctypes.POINTER(Pointer)),
    ("caps", ctypes.POINTER(Caps)), ("kernels_ctx", Pointer), ("options", Pointer),
    ("option_count", U64)])
Quantize = struct("Quantize", HEADER + [
    ("stream", Pointer), ("in_", Pointer), ("in_scale_inv", Pointer), ("out", Pointer),
    ("out_t", Pointer), ("out_scale_inv", Pointer), ("scale", Pointer), ("counter", Pointer),
    ("amax", Pointer), ("nonfinite", Pointer), ("format_max", F), ("window", F), ("rule", U32),
    ("flags", U32), ("workspace", Pointer), ("out_t_scale_inv", Pointer), ("eps", F),
    ("rounding", U32)])
Gemm = struct("Gemm", HEADER + [
    ("stream", Pointer), ("a", Pointer), ("b", Pointer), ("d", Pointer), ("bias", Pointer),
    ("a_scale_inv", Pointer), ("b_scale_inv", Pointer), ("workspace", Pointer),
    ("accumulate", U32), ("fast_accumulation", U32), ("bias_after", U32), ("layout", U32)])
# Positions of the functions in octavo_kernels, after its 8 bytes of header.
WORKSPACE_BYTES, QUANTIZE, GEMM = 5, 6, 11
CONFIG = b'mixed_precision = "fp8"\n[plugins]\ntrust = "dev"\n[fp8]\nbackend = "reference"\n'


def tensor(t):
    """A borrowed octavo_tensor of a contiguous torch matrix."""
    if not t.is_contiguous() or t.dim() != 2:
        raise ValueError(f"expected a contiguous matrix, found shape {t.shape}, {t.stride()}")
    return Tensor(t.data_ptr(), t.shape[0], t.shape[1], t.shape[1], DTYPES[t.dtype], 0)


def address(value):
    return None if value is None else ctypes.addressof(value)


def check(status, verb):
    if status != 0:
        raise RuntimeError(f"{verb} answered status {status}, expected 0")


class Codes:
    """An FP8 matrix, its transpose, and the scale_inv of both."""

    def __init__(self, rows, cols, dtype, row_wise=True, transposed=False):
        self.out = torch.empty(rows, cols, dtype=dtype) if row_wise else None
        self.out_t = torch.empty(cols, rows, dtype=dtype) if transposed else None
        self.inverse = torch.empty(1)
        self.amax = torch.zeros(1)
        self.dtype = dtype
        self.row = tensor(self.out) if row_wise else None
        self.column = tensor(self.out_t) if transposed else None
        self.scale = Scale(self.inverse.data_ptr(), 0, F32, 0)


class Kernels:
    """The table of one build, on the calling thread."""

    def __init__(self, build):
        library = pathlib.Path(build, "lib", "liboctavo.so").resolve()  # plugins lie beside it
        self.library = ctypes.CDLL(str(library))
        run = Pointer()
        desc = OpenDesc(ctypes.sizeof(OpenDesc), KIND_OPEN)
        desc.config_text = Str(CONFIG, len(CONFIG))
        status = self.library.octavo_open(ctypes.byref(desc), ctypes.byref(run))
        if status != 0:
            raise RuntimeError(f"octavo_open of {library} answered status {status}; build the "
                               "target octavo_plugin_reference")
        get = self.library.octavo_run_session_desc
        get.restype = ctypes.POINTER(SessionDesc)
        session = get(run).contents
        self.ctx = session.kernels_ctx
        self.level = session.caps.contents.id.data[:session.caps.contents.id.size].decode()
        verb = ctypes.CFUNCTYPE(ctypes.c_uint32, Pointer, Pointer)
        sizes = ctypes.CFUNCTYPE(ctypes.c_uint32, Pointer, Pointer, ctypes.POINTER(U64))
        table = ctypes.cast(session.kernels, ctypes.POINTER(Pointer))
        self.workspace_bytes = sizes(table[1 + WORKSPACE_BYTES])
        self._quantize = verb(table[1 + QUANTIZE])
        self._gemm = verb(table[1 + GEMM])
        self._workspace = torch.empty(0, dtype=torch.uint8)

    def _reserve(self, call):
        need = U64()
        check(self.workspace_bytes(self.ctx, address(call), ctypes.byref(need)), "workspace_bytes")
        if self._workspace.numel() < need.value + 64:
            self._workspace = torch.empty(need.value + 64, dtype=torch.uint8)
        call.workspace = (self._workspace.data_ptr() + 63) // 64 * 64

    def quantize(self, source, codes):
        """Current scaling of a torch matrix into `codes`: amax, scale, clamp and cast."""
        given = tensor(source)
        call = Quantize(ctypes.sizeof(Quantize), KIND_QUANTIZE)
        call.in_ = address(given)
        call.out = address(codes.row)
        call.out_t = address(codes.column)
        call.out_scale_inv = address(codes.scale)
        call.amax = codes.amax.data_ptr()
        call.format_max = LARGEST[codes.dtype]
        call.rule = RULE_QUOTIENT
        self._reserve(call)
        check(self._quantize(self.ctx, address(call)), "quantize")

    def multiply(self, a, a_scale, b, b_scale, out):
        """out = a b^T, scaled: a [M, K] and b [N, K] are octavo_tensors, out a torch matrix."""
        result = tensor(out)
        call = Gemm(ctypes.sizeof(Gemm), KIND_GEMM)
        call.a, call.b, call.d = address(a), address(b), address(result)
        call.a_scale_inv, call.b_scale_inv = address(a_scale), address(b_scale)
        self._reserve(call)
        check(self._gemm(self.ctx, address(call)), "gemm")
        return out

"""The call structs of octavo/kernels.h, and views of the memory that they describe."""
import ctypes as C

import ml_dtypes
import numpy as np

OK, UNSUPPORTED, INVALID = 0, 1, 2
I32, U8, F16, F32, BF16, E4M3, E5M2, E8M0 = (
    0x2000, 0x0801, 0x1002, 0x2002, 0x1004, 0x080A, 0x080C, 0x080E)
PER_TENSOR, PER_ROW, B1X128, B128X128, B1X32, FLAT_256, B32X32 = range(7)
GIVEN, QUOTIENT, POW2, RECIPROCAL, MSAMP, MX_UP, MX_FLOOR, DEEPGEMM, DEEPGEMM_POW2 = range(9)
NP = {F16: np.dtype(np.float16), F32: np.dtype(np.float32), BF16: np.dtype(ml_dtypes.bfloat16),
      E4M3: np.dtype(ml_dtypes.float8_e4m3fn), E5M2: np.dtype(ml_dtypes.float8_e5m2)}
PLAIN, CODES = (F32, BF16, F16), (E4M3, E5M2)
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
FLT_MAX = np.finfo(np.float32).max
RULES = {PER_ROW: range(1, 5), B1X128: (1, 2, 7, 8), B128X128: (1, 2, 7, 8), B1X32: (5, 6),
         B32X32: (5, 6)}
BLOCK = {B1X128: (1, 128), B128X128: (128, 128), B1X32: (1, 32), B32X32: (32, 32)}
PACK_ROWS = 4
f32 = np.float32


class Str(C.Structure):
    _fields_ = [('data', C.c_void_p), ('size', C.c_uint64)]

    def bytes(self):
        return C.string_at(self.data, self.size)


def struct(name, text, **types):
    """A ctypes struct from "<type> <names>; ...": u uint32, U uint64, I int64, i int32, f, d, p, s."""
    types = {'u': C.c_uint32, 'i': C.c_int32, 'U': C.c_uint64, 'I': C.c_int64, 'f': C.c_float,
             'd': C.c_double, 'p': C.c_void_p, 's': Str, **types}
    fields = [(field, types[part.split()[0]]) for part in text.split(';')
              for field in part.split()[1:]]
    return type(name, (C.Structure,), {'_fields_': fields})


HEAD = 'u size kind; p stream; '
Tensor = struct('Tensor', 'p data; I rows cols stride; u dtype reserved')
Scale = struct('Scale', 'p data; I stride; u dtype granularity; p second; u order reserved')
Caps = struct('Caps', 'u size kind; s id; U flags alignment pack_rows')
Quantize = struct('Quantize', HEAD + 'p in_ in_scale_inv out out_t out_scale_inv scale counter amax '
                  'nonfinite; f format_max window; u rule flags; p workspace out_t_scale_inv; f eps;'
                  'u rounding')
Dequantize = struct('Dequantize', HEAD + 'p in_ scale_inv out; u accumulate reserved')
Stats = struct('Stats', HEAD + 'p in_ codes scale_inv saturated underflow signal noise workspace')
FromAmax = struct('FromAmax', HEAD + 'p amax scale scale_inv; U n; f format_max divide_by;'
                  'u rule reserved; p kept')
Amax = struct('Amax', HEAD + 'p in_ in_scale_inv amax nonfinite')
Delayed = struct('Delayed', HEAD + 'p amax history scale counter; U n length; f format_max;'
                 'i margin; u use_max rule history_flags reserved')
Gemm = struct('Gemm', HEAD + 'p a b d bias a_scale_inv b_scale_inv workspace; u accumulate '
              'fast_accumulation bias_after layout')
Sum = struct('Sum', HEAD + 'p in_ in_scale_inv out; u accumulate reserved; p workspace')
Pack = struct('Pack', HEAD + 'p in_ out')
Prologue = struct('Prologue', 'u size kind op; f eps; p in_ gamma beta mean rstd')
PrologueCall = struct('PrologueCall', HEAD + 'p prologue out quantize workspace')
KIND = {Caps: 24, Quantize: 25, Dequantize: 26, FromAmax: 27, Amax: 28, Delayed: 29, Gemm: 30,
        Sum: 33, Stats: 43, Prologue: 44, PrologueCall: 45, Pack: 50}


class Refused(Exception):
    pass


def need(condition, text, status=INVALID):
    if not condition:
        raise Refused(status, text)


def support(condition, text):
    need(condition, text, UNSUPPORTED)


def take(kind, address):
    """OCTAVO_TAKE: the bytes that both sides know, the rest 0."""
    need(address, f'{kind.__name__} is null')
    own, size = kind(), C.c_uint32.from_address(address).value
    C.memmove(C.byref(own), address, min(size, C.sizeof(own)))
    need(own.kind == KIND[kind], f'expected kind {KIND[kind]}, found {own.kind}')
    return own


def floats(address, n=1):
    if not address or not n:
        return None if not address else np.empty(0, f32)
    return np.frombuffer((C.c_float * n).from_address(address), f32)


def strided(address, n, shape, dtype, stride):
    memory = (C.c_ubyte * (n * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, (stride * dtype.itemsize, dtype.itemsize))


def tensor(address, dtypes, name, data=True):
    """The struct and a strided view of a matrix; null gives (None, None)."""
    if not address:
        return None, None
    t = Tensor.from_address(address)
    support(t.dtype in dtypes, f'{name} has dtype {t.dtype:#x}')
    need(t.rows >= 0 and t.cols >= 0 and t.stride >= t.cols, f'{name} is {t.rows} x {t.cols}, '
         f'stride {t.stride}')
    dtype = NP[t.dtype]
    if not data or not t.rows * t.cols:
        return t, np.empty((t.rows, t.cols) if data else (0, 0), dtype)
    need(t.data, f'{name} has no data')
    n = (t.rows - 1) * t.stride + t.cols
    return t, strided(t.data, n, (t.rows, t.cols), dtype, t.stride)


def grid(granularity, shape):
    """Rows and columns of one block, and those of the matrix of scales."""
    if granularity == FLAT_256:
        return 1, 256, 1, -(-shape[0] * shape[1] // 256)
    if granularity == PER_ROW:
        return 1, max(shape[1], 1), shape[0], 1
    if granularity == PER_TENSOR:
        return max(shape[0], 1), max(shape[1], 1), 1, 1
    br, bc = BLOCK[granularity]
    return br, bc, -(-shape[0] // br), -(-shape[1] // bc)


def scale_view(address, shape, name):
    """The struct of scales and a view of its memory, a matrix, for a tensor of this shape."""
    s = Scale.from_address(address)
    g = s.granularity
    support(g in range(7) and s.order == 0 and not s.second, f'{name}: granularity {g}, order '
            f'{s.order}')
    support(s.dtype == (E8M0 if g in (B1X32, B32X32) else F32), f'{name}: dtype {s.dtype:#x}')
    need(s.data, f'{name} has no data')
    support(g != FLAT_256 or s.stride in (0, 1), f'{name} has stride {s.stride}')
    _, _, rows, cols = grid(g, shape)
    dtype = np.dtype(np.uint8 if s.dtype == E8M0 else f32)
    if not rows * cols:
        return s, np.empty((rows, cols), dtype)
    need(rows == 1 or s.stride >= cols, f'{name} has stride {s.stride}')
    stride = s.stride if rows > 1 else cols
    n = (rows - 1) * stride + cols
    return s, strided(s.data, n, (rows, cols), dtype, stride)

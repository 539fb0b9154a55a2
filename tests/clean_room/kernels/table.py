"""kernels.py as a table of octavo.kernels/1, below a backend in the host of ../host.

table.py HOST CASES BACKEND: HOST is that host as a library, CASES a file with hashes of whole trainings on the
CPU's kernels, which kernels.py reaches, too: it adds in the order of those. Exits with 77 where numpy or ml_dtypes
are missing.
"""
import ctypes as C
import sys
import traceback

try:
    import kernels as K
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

from structs import BLOCK, CODES, Caps, Gemm, KIND, PACK_ROWS, PER_ROW, PER_TENSOR, Quantize, Str, struct

EMULATED, COPY, KERNELS, INTERNAL = 2, 34, 36, 7
EXACT_GEMM_AND_DETERMINISTIC = 1 | 4
ADDRESS = C.c_void_p
ID = C.create_string_buffer(b'numpy', 5)
Verdict = struct('Verdict', 'u size kind level decision reason reserved; s text evidence remedy '
                   'remedy_key remedy_value remedy_command')
Sink = struct('Sink', 'u size kind; p ctx verdict')
Ability = struct('Ability', 'u size kind call flags dtype granularity b_dtype b_granularity decision '
                   'scale_order; s evidence')
Copy = struct('Copy', 'u size kind; p stream out in_; U bytes')


def probe_device(device, sink):
    v = Verdict(C.sizeof(Verdict), 2, 3, EMULATED)
    sink = Sink.from_address(sink)
    C.CFUNCTYPE(None, ADDRESS, ADDRESS)(sink.verdict)(sink.ctx, C.addressof(v))
    return 0


def open_device(device, host, out):
    ADDRESS.from_address(out).value = C.addressof(ID)
    return 0


def describe(ctx, out):
    caps = Caps.from_address(out)
    caps.id = Str(C.addressof(ID), len(ID))
    caps.flags, caps.alignment, caps.pack_rows = EXACT_GEMM_AND_DETERMINISTIC, 1, PACK_ROWS
    return 0


def can(q):
    if q.call == KIND[Gemm]:
        return K.gemm_formats(q.dtype, q.granularity, q.b_dtype, q.b_granularity, q.flags) is None
    if q.call == KIND[Quantize]:
        return q.dtype in CODES and q.granularity in (PER_TENSOR, PER_ROW, *BLOCK)
    return q.call in KIND.values() or q.call == COPY


def ability(ctx, question):
    q = Ability.from_address(question)
    q.decision = EMULATED if can(q) else 0
    return 0


def workspace_bytes(ctx, call, out):
    C.c_uint64.from_address(out).value = 0
    return 0


def copy(ctx, call):
    c = Copy.from_address(call)
    C.memmove(c.out, c.in_, c.bytes) if c.in_ else C.memset(c.out, 0, c.bytes)
    return 0


def verb(name):
    def run(ctx, call):
        status, text = K.call(name, call)
        if text:
            print(text, file=sys.stderr)
        return status
    return run


def guarded(function):
    """An exception in a callback would be a 0, which is a success."""
    def run(*arguments):
        try:
            return function(*arguments)
        except BaseException:
            traceback.print_exc()
            return INTERNAL
    return run


class Device(C.Structure):
    _fields_ = [('type', C.c_uint32), ('index', C.c_int32)]


def table():
    """A table, as addresses, and what it refers to. A function that it lacks is null."""
    verbs = [(verb(name), ADDRESS, ADDRESS) for name in (
        'quantize', 'dequantize', 'compute_amax', 'scale_from_amax', 'delayed_scale_update', 'gemm', 'sum_rows')]
    functions = [(probe_device, Device, ADDRESS), (open_device, Device, ADDRESS, ADDRESS),
                 (lambda ctx: 0, ADDRESS), (describe, ADDRESS, ADDRESS), (ability, ADDRESS, ADDRESS),
                 (workspace_bytes, ADDRESS, ADDRESS, ADDRESS), *verbs, (copy, ADDRESS, ADDRESS)]
    alive = [C.CFUNCTYPE(C.c_uint32, *types)(guarded(f)) for f, *types in functions]
    missing = 5  # quantize_stats, the prologues, pack and get_extension
    addresses = [C.cast(f, ADDRESS).value for f in alive] + [None] * missing
    words = (ADDRESS * (1 + len(addresses)))(0, *addresses)
    head = (C.c_uint32 * 2).from_buffer(words)
    head[0], head[1] = C.sizeof(words), KERNELS
    return words, alive


if __name__ == '__main__':
    host, cases, backend = sys.argv[1:]
    words, alive = table()
    run = C.CDLL(host).run_on
    run.argtypes = [C.c_char_p, C.c_char_p, ADDRESS]
    run(cases.encode(), backend.encode(), C.addressof(words))

"""Compares the CPU kernels with kernels.py, bit by bit: compare.py PLUGIN HEADERS [CALLS [SEED]].

PLUGIN has the kernels as a table, HEADERS is the folder of octavo/kernels.h. Calls, formats, values and sizes are
random. Exits with 77 where numpy or ml_dtypes are missing.
"""
import collections
import ctypes as C
import pathlib
import re
import sys

try:
    import ml_dtypes  # noqa: F401
    import numpy as np
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

import kernels as K
from kernels import BF16, E4M3, E5M2, E8M0, F16, F32, NP, f32

COMPARED = 0.5  # of all calls at least this share is one that both accept

Device = K.struct('Device', 'u type; i index')
DIAGNOSE = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p)
EXTENSION = C.CFUNCTYPE(C.c_void_p, C.c_void_p, K.Str)
Host = K.struct('Host', 'u size kind abi_major abi_minor; p ctx diagnose get_extension')


class Numpy:
    """kernels.py with the interface of Kernels."""
    pack_rows = K.PACK_ROWS

    def __call__(self, name, call):
        status, self.said = K.call(name, C.addressof(call))
        return status


class Kernels:
    """A plugin's table of kernels on the CPU."""

    def __init__(self, path, headers):
        self.said = ''
        self.callbacks = DIAGNOSE(self.diagnose), EXTENSION(lambda ctx, name: None)
        self.host = Host(C.sizeof(Host), 4, 1, 0, None,
                         *(C.cast(f, C.c_void_p) for f in self.callbacks))
        self.library = C.CDLL(path)
        plugin = C.c_void_p()
        text = {name: pathlib.Path(headers, 'octavo', name).read_text() for name in ('plugin.h', 'kernels.h')}
        symbol = re.search('#define OCTAVO_PLUGIN_SYMBOL "(.+)"', text['plugin.h'])[1]
        table = re.search(r'struct octavo_kernels \{(.+?)\n\}', text['kernels.h'], re.DOTALL)[1]
        self.names = re.findall(r'\(\*(\w+)\)\(', table)
        assert self.library[symbol](C.byref(self.host), C.byref(plugin)) == 0, self.said
        interface = C.CFUNCTYPE(C.c_void_p, K.Str)(C.c_void_p.from_address(plugin.value + 48).value)
        name = b'octavo.kernels/1'
        self.table = interface(K.Str(C.cast(C.c_char_p(name), C.c_void_p), len(name)))
        self.ctx = C.c_void_p()
        status = self.function('open_device', Device, C.c_void_p, C.c_void_p)(
            Device(1, 0), C.addressof(self.host), C.addressof(self.ctx))
        assert status == 0, self.said
        caps = self.make(K.Caps)
        self('describe', caps)
        self.pack_rows = caps.pack_rows

    def diagnose(self, ctx, d):
        self.said = K.Str.from_address(d + 32).bytes().decode()

    def function(self, name, *types):
        address = C.c_void_p.from_address(self.table + 8 + 8 * self.names.index(name)).value
        return C.CFUNCTYPE(C.c_uint32, *types)(address)

    @staticmethod
    def make(kind, **fields):
        """A call struct; arrays and structs become addresses and stay alive with it."""
        own = kind()
        if hasattr(own, 'size'):
            own.size, own.kind = C.sizeof(own), K.KIND[kind]
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                setattr(own, name, value.ctypes.data)
            elif isinstance(value, C.Structure) and not isinstance(getattr(own, name), C.Structure):
                setattr(own, name, C.addressof(value))
            else:
                setattr(own, name, value)
        own.alive = fields
        return own

    def __call__(self, name, call):
        self.said = ''
        if hasattr(call, 'workspace'):
            bytes_needed = C.c_uint64()
            self.function('workspace_bytes', C.c_void_p, C.c_void_p, C.c_void_p)(
                self.ctx, C.addressof(call), C.addressof(bytes_needed))
            self.work = np.zeros(bytes_needed.value + 64, np.uint8)
            call.workspace = -(-self.work.ctypes.data // 64) * 64
        return self.function(name, C.c_void_p, C.c_void_p)(self.ctx, C.addressof(call))


make = Kernels.make
DTYPE_OF = {v: k for k, v in NP.items()}


def matrix(x, cols=None):
    """The view of an array, of its first `cols` columns if given."""
    return make(K.Tensor, data=x, rows=x.shape[0], cols=x.shape[1] if cols is None else cols,
                stride=x.shape[1], dtype=DTYPE_OF[x.dtype])


def scales_for(shape, g):
    """An array of scales for a tensor of this shape, and its octavo_scale."""
    n = K.grid(g, shape)[2:]
    e8 = g in (K.B1X32, K.B32X32)
    x = np.zeros((n[0], n[1]), np.uint8 if e8 else f32)
    return x, make(K.Scale, data=x, stride=n[1] if g % 5 else 0, dtype=E8M0 if e8 else F32, granularity=g)


# The comparison: random calls, made on two tables with copies of all memory.

PROFILES = 'normal wide zero tiny subnormal huge inf nan bits mixed'.split()


def values(rng, shape, dtype, profile):
    n = rng.standard_normal(shape)
    if dtype in K.CODES or profile == 'bits':
        return rng.integers(0, 256, (shape[0], shape[1] * NP[dtype].itemsize), np.uint8).view(NP[dtype])
    if profile == 'mixed':
        n *= 2.0 ** rng.integers(-140, 120, (shape[0], 1))
    n = {'wide': n * 2.0 ** rng.integers(-30, 30, shape), 'zero': n * 0, 'tiny': n * 2.0 ** -125,
         'subnormal': n * 2.0 ** -135, 'huge': n * 1.5e38}.get(profile, n)
    if profile in ('inf', 'nan'):
        n = np.where(rng.random(shape) < 0.02, rng.choice([1, -1]) * float(profile), n)
    with np.errstate(all='ignore'):
        return n.astype(f32).astype(NP[dtype])


def pick(rng, *choices):
    return choices[rng.integers(len(choices))]


def wide(rng, shape):
    return shape[0], shape[1] + int(pick(rng, 0, 0, 3, 64))


def quantize_case(rng):
    shape = int(rng.integers(0, 70)), int(pick(rng, 1, 31, 32, 64, 100, 128, 200, 256))
    dtype, out_type = pick(rng, F32, BF16, F16, E4M3, E5M2), pick(rng, E4M3, E5M2)
    g, rule, profile = int(rng.integers(7)), int(rng.integers(9)), pick(rng, *PROFILES)
    if g in K.BLOCK or g == K.PER_ROW:
        rule = max(rule, 1) if g not in (K.B1X32, K.B32X32) else pick(rng, 5, 6)
    x = values(rng, wide(rng, shape), dtype, profile)
    pad = pick(rng, 0, 0, 5, 130) if g != K.FLAT_256 else 0
    if g == K.FLAT_256:
        x = np.ascontiguousarray(x[:, :shape[1]])
    o_shape, t_shape = (shape[0] + pad, shape[1] + pad), (shape[1] + pad, shape[0])
    with_out, with_t = pick(rng, 1, 1, 0), g != K.FLAT_256 and pick(rng, 0, 1)
    own_t = with_t and (g in K.BLOCK or pick(rng, 0, 1))
    state = g == 0 and pick(rng, 0, 1), g == 0 and rule and pick(rng, 0, 0, 1)
    numbers = rng.random(4) * 10, pick(rng, 0, 3), pick(rng, 0, 0, 1)
    eps, top = pick(rng, 0, 0, 1e-3), pick(rng, 448, 57344)

    def build():
        o = {'scale_inv': None}
        o['scale_inv'], s = scales_for(o_shape, g)
        given, amax, bad = (np.array([v], f32) for v in (numbers[0][0], numbers[0][1] / 4, 0))
        o['amax'], o['nonfinite'] = amax, bad
        fields = dict(in_=matrix(x.copy(), shape[1]), out_scale_inv=s, amax=amax, nonfinite=bad,
                      format_max=top, rule=rule, eps=eps, flags=numbers[2], window=2)
        if with_out:
            o['out'] = np.full(o_shape, 0x55, np.uint8).view(NP[out_type])
            fields['out'] = matrix(o['out'])
        if with_t:
            o['out_t'] = np.full(t_shape, 0x55, np.uint8).view(NP[out_type])
            fields['out_t'] = matrix(o['out_t'])
        if own_t:
            o['t_scale_inv'], fields['out_t_scale_inv'] = scales_for(t_shape, g)
        if state[0] or state[1]:
            fields['scale'] = given
        if state[1]:
            fields['counter'] = np.array([numbers[1]], f32)
        if dtype in K.CODES:
            fields['in_scale_inv'] = np.array([numbers[0][2]], f32)
        return make(K.Quantize, **fields), o
    return f'quantize g{g} rule{rule}', (f'{NP[dtype]}->{NP[out_type]}', profile,
            f'out{with_out} t{with_t} own_t{own_t} pad{pad} eps{eps} {state} flags{numbers[2]} '
            f'max{top} {shape}'), 'quantize', build


def scale_case(rng):
    n, rule = int(rng.integers(1, 50)), int(rng.integers(9))
    amax = np.abs(values(rng, (1, n), F32, pick(rng, *PROFILES)))
    divide, top, kept = pick(rng, 1, 8, 0.3), pick(rng, 448, 57344), pick(rng, 0, 1)

    def build():
        o = {'scale': np.zeros(n, f32), 'scale_inv': np.zeros(n, f32)}
        more = {'kept': np.full(n, 3.7, f32)} if kept else {}
        return make(K.FromAmax, amax=amax.copy(), n=n, format_max=top, divide_by=divide, rule=rule,
                    **o, **more), o
    return f'scale_from_amax rule{rule}', (f'divide {divide} max {top} kept {kept}',), \
        'scale_from_amax', build


def history_case(rng):
    n, length, rule = int(rng.integers(1, 40)), int(pick(rng, 1, 2, 3, 17)), int(rng.integers(1, 5))
    kinds = np.array([0, 1, 3.5, 1e-40, 1e-37, np.inf, np.nan, 7, 3e38], f32)
    data = rng.choice(kinds, (length + 1, n))
    if pick(rng, 0, 1):
        data = np.abs(values(rng, data.shape, F32, pick(rng, *PROFILES)))
    flags, use_max, margin = int(rng.integers(16)), pick(rng, 0, 1), int(pick(rng, 0, 0, 1, 8, 30, 31, -3))
    top = pick(rng, 448, 57344)

    def build():
        o = {'amax': data[0].copy(), 'history': data[1:].copy(), 'scale': np.full(n, 2.5, f32),
             'counter': np.full(n, 5, f32)}
        return make(K.Delayed, **o, n=n, length=length, format_max=top, margin=margin,
                    use_max=use_max, rule=rule, history_flags=flags), o
    return f'history rule{rule}', (f'flags {flags} max {use_max} length '
            f'{length} margin {margin} M {top}',), 'delayed_scale_update', build


def value_case(rng):
    """dequantize, compute_amax, sums and stats of one tensor."""
    shape = int(rng.integers(0, 40)), int(pick(rng, 1, 33, 128, 200))
    dtype, g, profile = pick(rng, F32, BF16, E4M3, E5M2), int(rng.integers(7)), pick(rng, *PROFILES)
    x, other = values(rng, shape, dtype, profile), pick(rng, F32, BF16, F16)
    inv = scales_for(shape, g)[0]
    inv = (rng.integers(90, 160, inv.shape, np.uint8) if inv.dtype == np.uint8 else
           rng.random(inv.shape).astype(f32))
    name = pick(rng, 'dequantize', 'compute_amax', 'sum_rows', 'quantize_stats')
    accumulate, start = pick(rng, 0, 1), values(rng, shape, other, 'normal')
    plain = values(rng, shape, other, 'normal' if profile == 'bits' else profile)

    def build():
        s = make(K.Scale, data=inv.copy(), stride=inv.shape[1] if g % 5 else 0, granularity=g,
                 dtype=E8M0 if inv.dtype == np.uint8 else F32)
        t, more = matrix(x.copy()), {'in_scale_inv': s} if dtype in K.CODES else {}
        if name == 'dequantize':
            o = {'out': start.copy()}
            return make(K.Dequantize, in_=t, out=matrix(o['out']), accumulate=accumulate,
                        **({'scale_inv': s} if more else {})), o
        if name == 'compute_amax':
            o = {'amax': np.ones(1, f32), 'nonfinite': np.zeros(1, f32)}
            return make(K.Amax, in_=t, **more, **o), o
        if name == 'quantize_stats':
            o = {k: np.ones(1, f32) for k in ('saturated', 'underflow', 'signal', 'noise')}
            return make(K.Stats, in_=matrix(plain.copy()), codes=t, scale_inv=s, **o), o
        o = {'out': np.ones(shape[1], f32)}
        return make(K.Sum, in_=t, accumulate=accumulate, **more, **o), o
    return f'{name} {"g%d" % g if dtype in K.CODES else "plain"}', (str(NP[dtype]), profile, str(NP[other]),
            f'{shape} accumulate {accumulate}'), name, build


def gemm_case(rng):
    m, n, k = int(rng.integers(0, 20)), int(rng.integers(1, 20)), int(pick(rng, 0, 16, 32, 100, 256, 300))
    da, db = pick(rng, *NP), pick(rng, *NP)
    ga, gb = (int(pick(rng, 0, 0, 1, 1, 2, 3, 4, 6)) if d in K.CODES else 0 for d in (da, db))
    if ga in K.BLOCK and db in K.CODES:
        gb = pick(rng, ga, pick(rng, 2, 3) if ga in (2, 3) else pick(rng, 4, 6))
    layout = pick(rng, 0, 0, 0, 1, 2, 3, 4)
    scaled = pick(rng, 0, 0, 1)
    small = lambda s, d: np.where(np.isfinite(v := values(rng, s, d, 'normal')), v, NP[d].type(1))
    a, b = small((m, k), da), small((n, k), db)
    inv = [scales_for(s, g)[0] for s, g in ((a.shape, ga), (b.shape, gb))]
    inv = [rng.integers(110, 140, i.shape, np.uint8) if i.dtype == np.uint8 else
           rng.random(i.shape).astype(f32) for i in inv]
    dd, bias, after, accumulate = (pick(rng, F32, BF16, F16), pick(rng, 0, 1), pick(rng, 0, 1),
                                   pick(rng, 0, 0, 1))
    start, bias_value = values(rng, (m, n), dd, 'normal'), values(rng, (1, n), BF16, 'normal')

    def build(table):
        o, more = {'d': start.copy()}, {}
        tb = matrix(np.ascontiguousarray(b.T if layout & 2 else b))
        if layout & 4 and table.pack_rows and db in K.CODES:
            packed = np.zeros((-(-n // table.pack_rows) * table.pack_rows, k), NP[db])
            table('pack', make(K.Pack, in_=tb, out=matrix(packed)))
            tb = matrix(packed)
            tb.rows = n
        for side, d, g, i in (('a', da, ga, inv[0]), ('b', db, gb, inv[1])):
            if d in K.CODES or scaled:
                more[side + '_scale_inv'] = make(K.Scale, data=i.copy(), granularity=g, stride=(
                    i.shape[1] if g else 0), dtype=E8M0 if i.dtype == np.uint8 else F32)
        if bias:
            more['bias'] = matrix(bias_value.copy())
        return make(K.Gemm, a=matrix(np.ascontiguousarray(a.T if layout & 1 else a)), b=tb,
                    d=matrix(o['d']), bias_after=after, accumulate=accumulate, layout=layout, **more), o
    kind = 'codes' if da in K.CODES and db in K.CODES else 'mixed' if {da, db} & set(K.CODES) else 'plain'
    return f'gemm {kind} g{ga} g{gb} layout{layout}', (f'{NP[da]} {NP[db]} -> {NP[dd]}',
            f'{m}x{n}x{k} bias{bias} after{after} accumulate{accumulate}'), 'gemm', build


def prologue_case(rng):
    m, k, op = int(rng.integers(0, 10)), int(pick(rng, 1, 17, 64, 200)), int(rng.integers(1, 6))
    dtype, out_type = pick(rng, F32, BF16, F16), pick(rng, F32, BF16, F16)
    x = values(rng, (m, 2 * k if op == 5 else k), dtype, 'normal')
    gamma = values(rng, (1, k), F32, 'normal')

    def build():
        o = {'out': np.zeros((m, k), NP[out_type]), 'mean': np.zeros(m, f32), 'rstd': np.zeros(m, f32)}
        norm = dict(gamma=matrix(gamma.copy()), eps=1e-5, rstd=o['rstd']) if op < 3 else {}
        if op == 1:
            norm.update(beta=matrix(gamma.copy()), mean=o['mean'])
        p = make(K.Prologue, op=op, in_=matrix(x.copy()), **norm)
        return make(K.PrologueCall, prologue=p, out=matrix(o['out'])), o
    return f'prologue {op}', (f'{NP[dtype]}->{NP[out_type]} {m}x{k}',), 'prologue', build


# erf, tanh and exp are those of another library: a distance, as a share of the value and from 0.
ACTIVATIONS = {'prologue 3', 'prologue 4', 'prologue 5'}
SHARE = {F32: 1e-6, F16: 2.0 ** -10, BF16: 2.0 ** -7}


def difference(a, b, is_near):
    """The first differing element. NaN of f32, bf16 and f16 are equal, those of codes are not."""
    bits = [x.reshape(-1).view(f'u{x.itemsize}') for x in (a, b)]
    wrong = bits[0] != bits[1]
    if a.itemsize > 1:
        wrong &= ~(np.isnan(a.reshape(-1)) & np.isnan(b.reshape(-1)))
    if is_near:
        x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
        wrong &= ~(np.abs(x - y) <= 1e-6 + SHARE[DTYPE_OF[a.dtype]] * np.abs(y))
    i = int(np.argmax(wrong)) if wrong.any() else 0
    return wrong.any() and f'at {i}: {bits[0][i]:#x} and {bits[1][i]:#x}, {wrong.sum()} of {wrong.size}'


def compare(library, numpy, count, seed):
    """Whether all calls that both accept leave equal bits, and the library none that numpy refuses. Prints what
    differs, by kind."""
    rng = np.random.default_rng(seed)
    seen, compared, differ, example = collections.Counter(), 0, collections.Counter(), {}
    for _ in range(count):
        key, note, name, build = pick(rng, quantize_case, quantize_case, quantize_case, scale_case,
                                      history_case, value_case, value_case, gemm_case,
                                      prologue_case)(rng)
        (status, mine), (other, theirs) = (
            (table(name, call), o) for table in (library, numpy)
            for call, o in [build(table) if name == 'gemm' else build()])
        seen[key] += 1
        if other and not status:  # the library may decline a combination, but compute none that is no call
            differ[f'{key}: status'] += 1
            example.setdefault(f'{key}: status', f'{note} {numpy.said}')
        if status or other:
            continue
        compared += 1
        for label in mine:
            found = difference(mine[label], theirs[label], key in ACTIVATIONS)
            if found:
                differ[f'{key}: {label}'] += 1
                example.setdefault(f'{key}: {label}', f'{note} {found}')
    for key in sorted(differ):
        print(f'{key} differs in {differ[key]} of {seen[key.split(":")[0]]} calls\n    {example[key]}')
    print(f'{count} calls of {len(seen)} kinds, seed {seed}: {compared} compared, {len(differ)} kinds of results differ')
    if compared < COMPARED * count:
        print(f'expected at least {COMPARED * count:.0f} calls that both accept')
    return not differ and compared >= COMPARED * count


if __name__ == '__main__':
    calls, start = (int(x) for x in (sys.argv[3:] + ['4000', '7'][len(sys.argv) - 3:]))
    sys.exit(not compare(Kernels(sys.argv[1], sys.argv[2]), Numpy(), calls, start))

"""The calls of octavo/kernels.h in numpy, as functions of the addresses of call structs.

From the text of the headers only, without anything of kernels/. compare.py runs them.
"""
import ctypes as C
import math

import ml_dtypes
import numpy as np

from structs import (Amax, B1X32, B32X32, BF16, BLOCK, CODES, Caps, DEEPGEMM, DEEPGEMM_POW2, Delayed,
    Dequantize, E4M3, E5M2, E8M0, F16, F32, FLAT_256, FLT_MAX, FromAmax, GIVEN, Gemm, KIND, LARGEST, MSAMP,
    MX_FLOOR, MX_UP, NP, OK, PACK_ROWS, PER_ROW, PER_TENSOR, PLAIN, POW2, Pack, Prologue, PrologueCall,
    QUOTIENT, Quantize, RECIPROCAL, RULES, Refused, Scale, Stats, Str, Sum, Tensor, UNSUPPORTED, f32, floats,
    grid, need, scale_view, struct, support, take, tensor)


def power(code):
    """2^(code - 127) of an E8M0 code; 255 is NaN."""
    code = np.asarray(code, np.int32)
    return np.where(code == 255, f32(np.nan), np.ldexp(f32(1), np.minimum(code, 254) - 127).astype(f32))


def spread(scales, granularity, shape):
    """One number for each element of a tensor, or something that broadcasts to it."""
    if scales.dtype == np.uint8:
        scales = power(scales)
    if granularity in (PER_TENSOR, PER_ROW):
        return scales[:shape[0]]
    if granularity == FLAT_256:
        return np.repeat(scales[0], 256)[:shape[0] * shape[1]].reshape(shape)
    br, bc = BLOCK[granularity]
    return np.repeat(np.repeat(scales, br, 0), bc, 1)[:shape[0], :shape[1]]


def decode(x, scale_address=None, name='scale_inv'):
    """fl32(code * scale_inv), or the plain values."""
    x = x.astype(f32)
    if not scale_address:
        return x
    s, scales = scale_view(scale_address, x.shape, name)
    return x * spread(scales, s.granularity, x.shape)


def encode(x, dtype):
    """Round to nearest even, saturate; NaN is 0x7F with its sign."""
    top = f32(LARGEST[dtype])
    codes = np.clip(x, -top, top).astype(NP[dtype]).view(np.uint8)
    return np.where(np.isnan(x), np.where(np.signbit(x), np.uint8(0xFF), np.uint8(0x7F)), codes)


def scaled(x, factor):
    """fl32(x * factor); a NaN has the sign of x."""
    y = x * factor
    return np.where(np.isnan(y), np.copysign(f32(np.nan), x), y)


def magnitude(x):
    """Absolute values, 0 for NaN. (fmax would answer NaN to a signalling NaN.)"""
    return np.where(np.isnan(x), f32(0), np.abs(x))


def largest(x):
    """The amax."""
    return magnitude(x).max(initial=f32(0))


def block_amax(x, g, shape):
    """The amax of each block of x, which is padded to a shape."""
    br, bc, rows, cols = grid(g, shape)
    padded = np.zeros((rows * br, cols * bc), f32)
    padded[:x.shape[0], :x.shape[1]] = magnitude(x)
    return padded.reshape(rows, br, cols, bc).max((1, 3), initial=f32(0))


def floor_pow2(x):
    return np.ldexp(np.ones_like(x), np.frexp(x)[1] - 1)


def exponent_up(x):
    """The smallest E8M0 code with 2^(code - 127) >= x."""
    mantissa, exponent = np.frexp(x)
    up = exponent - (mantissa == 0.5)
    return np.where(x == 0, 0, np.where(np.isinf(x), 254, np.clip(up + 127, 0, 254)))


def apply_rule(rule, amax, format_max, kept, limit=FLT_MAX, margin=0):
    """scale and scale_inv of each amax, both fp32. The margin is that of a delayed scale."""
    amax, top, one = np.asarray(amax, f32), f32(format_max), f32(1)
    usable = (amax > 0) & np.isfinite(amax)
    if rule in (QUOTIENT, POW2):
        q = np.ldexp(top, -margin) / amax
        q = np.where(np.isinf(q), f32(limit), q)
        scale = np.where(usable, floor_pow2(q) if rule == POW2 else q, f32(kept))
        return scale, one / scale
    if rule == RECIPROCAL:
        scale = np.where(usable, np.minimum(np.ldexp(one / amax * top, -margin), limit), f32(kept))
        return scale, one / scale
    if rule == MSAMP:
        inverse = np.where(np.isinf(one / amax), 1 / amax.astype(np.float64), one / amax)
        q = inverse * float(top)
        q = np.where((q > FLT_MAX) | (q < 2.0 ** -126), q, q.astype(f32))
        e = np.clip(np.frexp(q)[1] - 1 - margin, -126, 127)
        scale = np.where(usable, np.ldexp(one, e), f32(kept))
        return scale, one / scale
    if rule in (MX_UP, MX_FLOOR):
        if rule == MX_UP:
            code = exponent_up(amax * (one / top))
        else:
            emax = math.floor(math.log2(format_max))
            code = np.frexp(amax)[1] - 1 - emax + 127
            code = np.where(np.isinf(amax), 255, np.where(amax == 0, 0, np.clip(code, 0, 254)))
        return np.where(code == 255, f32(np.nan), power(254 - code)), power(code)
    if rule in (DEEPGEMM, DEEPGEMM_POW2):
        inv = np.maximum(amax, f32(1e-4)) / f32(448)
        inv = power(exponent_up(inv)) if rule == DEEPGEMM_POW2 else inv
        return one / inv, inv
    raise Refused(UNSUPPORTED, f'rule {rule}')


def cast_flat(c, x, t, s, scales, out):
    need(t is not None and (t.rows, t.cols) == x.shape and t.stride == t.cols and not c.out_t and
         not c.scale and not c.counter, 'FLAT_256 takes dense tensors of one shape')
    support(t.dtype == E4M3, 'FLAT_256 takes E4M3 codes')
    flat = np.where(np.isinf(x), f32(0), x).reshape(-1)
    amax = block_amax(flat[None], FLAT_256, (1, flat.size))
    scales[:] = np.maximum(amax, f32(1e-12)) / f32(448)
    return encode(x / spread(scales, FLAT_256, x.shape), t.dtype)


def cast(c, x, t, out, scale_address, dtype_in, amax):
    """Casts x to the codes of one output, if there is one, with its scales."""
    shape = (t.rows, t.cols) if t else x.shape
    need(shape[0] >= x.shape[0] and shape[1] >= x.shape[1], f'output {shape} for input {x.shape}')
    s, scales = scale_view(scale_address, shape, 'out_scale_inv')
    g = s.granularity
    if g == FLAT_256:
        codes = cast_flat(c, x, t, s, scales, out)
    else:
        old = floats(c.scale)
        if g == PER_TENSOR:
            counter = floats(c.counter)
            support(c.rule <= MSAMP, f'rule {c.rule} is for blocks')
            if c.rule == GIVEN or counter is not None and counter[0] >= f32(c.window):
                scale = f32(1) if old is None else old[0]
                inv = f32(1) / scale
            else:
                scale, inv = apply_rule(c.rule, np.fmax(amax, f32(c.eps)), c.format_max,
                                        1 if old is None else old[0])
            scales[:] = inv
        else:
            need(not c.scale and not c.counter, 'blocks have no scale and no counter')
            support(c.rule in RULES[g], f'rule {c.rule} with granularity {g}')
            support(c.rule < DEEPGEMM or t.dtype == E4M3, 'DEEPGEMM takes E4M3 codes')
            block_in = g in BLOCK and dtype_in in PLAIN
            limit = float(ml_dtypes.finfo(NP[dtype_in]).max) if block_in else FLT_MAX
            block = block_amax(x, g, shape)
            scale, inv = apply_rule(c.rule, np.fmax(block, f32(c.eps)), c.format_max, 1, limit)
            scales[:] = (inv.view(np.uint32) >> 23) if s.dtype == E8M0 else inv
            scale = spread(scale, g, x.shape)
        if t is None:
            return
        codes = encode(scaled(x, scale), t.dtype)
    if c.flags & 1:
        codes = np.where((x > 0) & (codes == 0), np.uint8(1), codes)
    out, (rows, cols) = out.view(np.uint8), codes.shape
    out[:rows, :cols] = codes
    out[rows:] = 0
    out[:rows, cols:] = 0


def check_quantize(c):
    support(c.rounding == 0, f'rounding {c.rounding}')
    support(c.flags <= 1, f'flags {c.flags:#x}')
    support(c.rule <= DEEPGEMM_POW2, f'rule {c.rule}')
    need(c.out_scale_inv, 'out_scale_inv is null')


def quantize(address):
    c = take(Quantize, address)
    check_quantize(c)
    t_in, x = tensor(c.in_, PLAIN + CODES, 'in')
    need(t_in is not None, 'in is null')
    raw = x.astype(f32)
    given = floats(c.in_scale_inv)
    x = raw if given is None else scaled(raw, given[0])
    t, out = tensor(c.out, CODES, 'out')
    t_t, out_t = tensor(c.out_t, CODES, 'out_t')
    one_scale = Scale.from_address(c.out_scale_inv).granularity == PER_TENSOR
    need(t or t_t or one_scale, 'out and out_t are null')
    need(not t_t or c.out_t_scale_inv or one_scale, 'out_t has no scales of its own')
    amax = largest(x)
    if t or t_t and one_scale:
        cast(c, x, t, out, c.out_scale_inv, t_in.dtype, amax)
    if t_t:
        cast(c, x.T, t_t, out_t, c.out_t_scale_inv or c.out_scale_inv, t_in.dtype, amax)
    if c.amax:
        floats(c.amax)[:] = np.fmax(floats(c.amax), amax)
    if c.nonfinite and not np.isfinite(raw).all():
        floats(c.nonfinite)[:] = 1


def dequantize(address):
    c = take(Dequantize, address)
    t_in, x = tensor(c.in_, PLAIN + CODES, 'in')
    _, out = tensor(c.out, PLAIN, 'out')
    need(t_in is not None and out is not None and out.shape == x.shape, 'in and out differ')
    value = decode(x, c.scale_inv)
    out[:] = (out.astype(f32) + value if c.accumulate else value).astype(out.dtype)


def quantize_stats(address):
    c = take(Stats, address)
    _, x = tensor(c.in_, PLAIN, 'in')
    t, codes = tensor(c.codes, CODES, 'codes')
    need(x is not None and t is not None and codes.shape >= x.shape and c.scale_inv, 'arguments')
    rows, cols = x.shape
    x = x.astype(f32)
    s, scales = scale_view(c.scale_inv, codes.shape, 'scale_inv')
    inv = np.broadcast_to(spread(scales, s.granularity, codes.shape), codes.shape)[:rows, :cols]
    finite = np.isfinite(x) & np.isfinite(codes[:rows, :cols].astype(f32))
    limit = inv * f32(LARGEST[t.dtype] * (1 + 2.0 ** -20))
    zero = (codes[:rows, :cols].view(np.uint8) & 0x7F) == 0
    decoded = codes[:rows, :cols].astype(f32) * inv
    error = np.where(finite, x.astype(np.float64) - decoded, 0)
    value = np.where(finite, x, f32(0)).astype(np.float64)
    for out, result in ((c.saturated, f32(np.count_nonzero(~finite | (np.abs(x) > limit)))),
                        (c.underflow, f32(np.count_nonzero(zero & finite & (x != 0)))),
                        (c.signal, ascending(value * value)), (c.noise, ascending(error * error))):
        if out:
            floats(out)[:] += result


def ascending(x):
    """The sum in double and memory order, rounded once."""
    return f32(np.add.accumulate(np.append(0.0, x.reshape(-1)))[-1])


def scale_from_amax(address):
    c = take(FromAmax, address)
    support(GIVEN < c.rule <= MSAMP, f'rule {c.rule}')
    amax, kept = floats(c.amax, c.n), floats(c.kept, c.n)
    need(c.n == 0 or amax is not None, 'amax is null')
    if not c.n:
        return
    kept = np.ones(c.n, f32) if kept is None else kept
    scale = apply_rule(c.rule, amax / f32(c.divide_by), c.format_max, kept)[0]
    for out, result in ((c.scale, scale), (c.scale_inv, f32(1) / scale)):
        if out:
            floats(out, c.n)[:] = result


def compute_amax(address):
    c = take(Amax, address)
    _, raw = tensor(c.in_, PLAIN + CODES, 'in')
    need(raw is not None and c.amax, 'in or amax is null')
    floats(c.amax)[:] = np.fmax(floats(c.amax), largest(decode(raw, c.in_scale_inv)))
    if c.nonfinite and not np.isfinite(raw.astype(f32)).all():
        floats(c.nonfinite)[:] = 1


def delayed_scale_update(address):
    c = take(Delayed, address)
    support(GIVEN < c.rule <= MSAMP, f'rule {c.rule}')
    support(c.history_flags < 16, f'history_flags {c.history_flags:#x}')
    need(c.length >= 1, 'length is 0')
    need(0 <= c.margin <= 30, f'margin {c.margin}')
    if not c.n:
        return
    need(c.amax and c.history and c.scale, 'a pool is null')
    skip, drop, nan_keeps, from_one = (bool(c.history_flags & bit) for bit in (1, 2, 4, 8))
    amax, scale = floats(c.amax, c.n), floats(c.scale, c.n)
    history = floats(c.history, c.n * c.length).reshape(c.length, c.n)
    active = amax != 0 if skip else np.ones(c.n, bool)
    live = history.copy()
    live[0] = np.where(np.isfinite(amax), amax, f32(0)) if drop else amax
    chosen = np.where(np.isnan(live), f32(0), live).max(0) if c.use_max else live[0]
    new = apply_rule(c.rule, chosen, c.format_max, 1, margin=c.margin)[0]
    keep = ~((chosen > 0) & np.isfinite(chosen)) | (nan_keeps & np.isnan(live).any(0) & bool(c.use_max))
    scale[:] = np.where(active & ~keep, new, scale)
    rolled = np.roll(live, -1, 0)
    rolled[0] = 0
    history[:] = np.where(active, rolled, history)
    if c.counter:
        counter = floats(c.counter, c.n)
        start = f32(1 if from_one else 0)
        counter[:] = np.where(active, np.where(np.isfinite(amax), counter + f32(1), start), counter)
    amax[:] = np.where(active, f32(0), amax)


def dot(a, b):
    """a[M, K] b[N, K]^T in fp32, in ascending order of K. Products of codes are exact."""
    total = np.zeros((a.shape[0], b.shape[0]), f32)
    for k in range(a.shape[1]):
        total = total + a[:, k, None] * b[None, :, k]
    return total


def unpack(b):
    """The codes [N, K] of packed panels."""
    rows = -(-b.rows // PACK_ROWS) * PACK_ROWS
    if not rows * b.cols:
        return np.empty((b.rows, b.cols), NP[b.dtype])
    flat = np.frombuffer((C.c_ubyte * (rows * b.cols)).from_address(b.data), NP[b.dtype])
    return flat.reshape(-1, b.cols, PACK_ROWS).transpose(0, 2, 1).reshape(rows, -1)[:b.rows]


def gemm_formats(a, ga, b, gb, layout):
    """Why a product cannot be computed, or None."""
    for dtype, g, flag in ((a, ga, layout & 1), (b, gb, layout & 2)):
        if dtype not in PLAIN + CODES or g not in range(7) or g == FLAT_256:
            return 'an operand has an unknown format'
        if flag and g != PER_TENSOR:
            return 'transposed codes have one scale'
    if layout > 7 or layout & 4 and (layout & 2 or b not in CODES or a not in CODES + (BF16,)):
        return 'this layout'
    blocks = [BLOCK[g][1] for g in (ga, gb) if g in BLOCK]
    if blocks and (len(blocks) == 1 or blocks[0] != blocks[1]):
        return 'scales of blocks of different lengths along K'
    return None


def gemm(address):
    c = take(Gemm, address)
    ta, a = tensor(c.a, PLAIN + CODES, 'a')
    tb, b = tensor(c.b, PLAIN + CODES, 'b', not c.layout & 4)
    td, d = tensor(c.d, PLAIN, 'd')
    _, bias = tensor(c.bias, PLAIN, 'bias')
    need(ta and tb and td, 'a, b or d is null')
    scale_a, scale_b = (Scale.from_address(s) if s else None for s in (c.a_scale_inv, c.b_scale_inv))
    ga, gb = (s.granularity if s else PER_TENSOR for s in (scale_a, scale_b))
    why = gemm_formats(ta.dtype, ga, tb.dtype, gb, c.layout)
    support(why is None, why)
    b = unpack(tb) if c.layout & 4 else b
    a = (a.T if c.layout & 1 else a).astype(f32)
    b = (b.T if c.layout & 2 else b).astype(f32)
    need(a.shape[1] == b.shape[1] and d.shape == (a.shape[0], b.shape[0]), 'shapes of a, b, d')
    need(bias is None or bias.shape == (1, d.shape[1]), 'shape of bias')
    one = np.ones((1, 1), f32)
    sa = scale_view(c.a_scale_inv, a.shape, 'a_scale_inv')[1] if scale_a else one
    sb = scale_view(c.b_scale_inv, b.shape, 'b_scale_inv')[1] if scale_b else one
    if ga in BLOCK:
        step, value = BLOCK[ga][1], np.zeros(d.shape, f32)
        sa, sb = spread(sa, ga, a.shape), spread(sb, gb, b.shape)
        for k in range(0, a.shape[1], step):
            p = dot(a[:, k:k + step], b[:, k:k + step])
            value = value + p * (sa[:, k, None] * sb[None, :, k])
    else:
        value = dot(a, b)
        if scale_a or scale_b:
            value = value * (sa * sb.T)
    if bias is not None:
        if c.bias_after:
            value = value.astype(d.dtype).astype(f32)
        value = value + bias.astype(f32)
    if c.accumulate:
        value = value.astype(d.dtype).astype(f32) if c.bias_after and bias is not None else value
        value = d.astype(f32) + value
    d[:] = value.astype(d.dtype)


def column_sums(x):
    """Sums in double: of 32 rows each, of 8 such sums each, and of those, in ascending order."""
    total = x.astype(np.float64)
    for group in (32, 8, max(1, -(-len(x) // 256))):
        groups = np.zeros((max(1, -(-len(total) // group)), group, x.shape[1]))
        groups.reshape(-1, x.shape[1])[:len(total)] = total
        total = np.add.accumulate(groups, 1)[:, -1]
    return total[0]


def sum_rows(address):
    c = take(Sum, address)
    _, x = tensor(c.in_, PLAIN + CODES, 'in')
    need(x is not None and (c.out or not x.shape[1]), 'in or out is null')
    x = decode(x, c.in_scale_inv)
    out = floats(c.out, x.shape[1])
    total = column_sums(x).astype(f32)
    out[:] = out + total if c.accumulate else total


def pack(address):
    c = take(Pack, address)
    t_in, x = tensor(c.in_, CODES, 'in')
    t, out = tensor(c.out, CODES, 'out')
    need(t_in and t and t.dtype == t_in.dtype and t.stride == t.cols == t_in.cols and
         t.rows == -(-t_in.rows // PACK_ROWS) * PACK_ROWS, 'out is not the packed shape of in')
    if not t.cols:
        return
    padded = np.zeros((t.rows, t.cols), np.uint8)
    padded[:t_in.rows] = x.view(np.uint8)
    panels = padded.reshape(-1, PACK_ROWS, t.cols).transpose(0, 2, 1)
    out.view(np.uint8)[:] = panels.reshape(t.rows, t.cols)


def lanes(x):
    """Sums of rows in fp32: column c belongs to lane c % 16, and lanes are added by halves."""
    padded = np.zeros((x.shape[0], -(-x.shape[1] // 16) * 16), f32)
    padded[:, :x.shape[1]] = x
    total = np.zeros((x.shape[0], 16), f32)
    for first in range(0, padded.shape[1], 16):
        total = total + padded[:, first:first + 16]
    for half in (8, 4, 2, 1):
        total = total[:, :half] + total[:, half:]
    return total[:, 0]


def compute_prologue(p):
    """The result of a prologue in fp32."""
    support(1 <= p.op <= 5, f'prologue {p.op}')
    _, x = tensor(p.in_, PLAIN, 'in')
    _, gamma = tensor(p.gamma, PLAIN, 'gamma')
    _, beta = tensor(p.beta, PLAIN, 'beta')
    need(x is not None, 'in is null')
    x = x.astype(np.float64)
    rows, cols = x.shape
    if p.op > 2:
        if p.op == 3:
            y = x * 0.5 * (1 + np.vectorize(math.erf, [np.float64])(x * math.sqrt(0.5)))
        elif p.op == 4:
            y = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
        else:
            need(cols % 2 == 0, 'SWIGLU has gate and up')
            gate, up = x[:, :cols // 2], x[:, cols // 2:]
            y = gate / (1 + np.exp(-gate)) * up
        return y.astype(f32)
    for g in (gamma, beta):
        need(g is None or g.shape == (1, cols), 'shape of gamma or beta')
    x, n = x.astype(f32), f32(cols)
    mean = lanes(x) / n if p.op == 1 else np.zeros(rows, f32)
    centered = x - mean[:, None]
    rstd = f32(1) / np.sqrt(lanes(centered * centered) / n + f32(p.eps))
    y = centered * rstd[:, None]
    y = y if gamma is None else y * gamma.astype(f32)
    y = y if beta is None or p.op == 2 else y + beta.astype(f32)
    if p.mean and p.op == 1 and rows:
        floats(p.mean, rows)[:] = mean
    if p.rstd and rows:
        floats(p.rstd, rows)[:] = rstd
    return y


def prologue(address):
    c = take(PrologueCall, address)
    y = compute_prologue(take(Prologue, c.prologue))
    _, out = tensor(c.out, PLAIN, 'out')
    need(out is not None and out.shape == y.shape, 'shape of out')
    out[:] = y.astype(out.dtype)


CALLS = {f.__name__: f for f in (
    quantize, dequantize, compute_amax, scale_from_amax, delayed_scale_update, gemm, sum_rows,
    quantize_stats, prologue, pack)}


def call(name, address):
    """Runs a call: its status, and the text of a diagnostic."""
    try:
        with np.errstate(all='ignore'):
            CALLS[name](address)
        return OK, ''
    except Refused as refused:
        status, text = refused.args
    return status, f'{name}: {text}'

"""The plugin kernels-cuda through ctypes, on torch tensors: its table alone, without liboctavo.

A call is prepared once and made many times, so that what is timed is the call. Structs that the CPU's
comparison uses as well are those of tests/bench/python/octavo_kernels.py.
"""
import ctypes
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
for place in (HERE, HERE.parents[1] / "bench" / "python"):
    sys.path.insert(0, str(place))

import octavo_kernels as common
from octavo_kernels import F, HEADER, U32, U64, Pointer, Scale, Str, Tensor, address, struct

KIND_HOST, KIND_ADAM, KIND_SUM_QUANTIZED, KIND_SUM = 4, 0x8013, 0x8015, 33
KIND_ADAM_ROUNDED, KIND_ADAM_ONE_PASS = 0x8001, 0x8004
DEVICE_CUDA = 2
PER_TENSOR, PER_ROW, BLOCK_1X128, BLOCK_128X128 = 0, 1, 2, 3
RULE_GIVEN, RULE_QUOTIENT, RULE_MSAMP = 0, 1, 4
# Positions of the functions in octavo_kernels, after its 8 bytes of header.
OPEN, CLOSE, WORKSPACE, QUANTIZE, GEMM, SUM_ROWS, GET_EXTENSION = 1, 2, 5, 6, 11, 12, 18
# Verbs of the tables of octavo/draft: id of the table, place in it.
ADAM, SUM_QUANTIZED, ONE_PASS = ("adam", 0), ("msamp", 0), ("one_pass", 0)

Diagnostic = struct("Diagnostic", HEADER + [("code", U32), ("severity", U32), ("domain", Str),
                                            ("text", Str)])
Diagnose = ctypes.CFUNCTYPE(None, Pointer, ctypes.POINTER(Diagnostic))
Extension = ctypes.CFUNCTYPE(Pointer, Pointer, Str)
Host = struct("Host", HEADER + [("major", U32), ("minor", U32), ("ctx", Pointer),
                                ("diagnose", Diagnose), ("get_extension", Extension)])
GetInterface = ctypes.CFUNCTYPE(Pointer, Str)
Plugin = struct("Plugin", HEADER + [("major", U32), ("minor", U32), ("id", Str), ("version", Str),
                                    ("get_interface", GetInterface)])
AdamItem = struct("AdamItem", [
    ("weight", Tensor), ("gradient", Tensor), ("exp_avg", Tensor), ("exp_avg_sq", Tensor),
    ("weight_scale_inv", Pointer), ("gradient_scale_inv", Pointer), ("exp_avg_scale_inv", Pointer),
    ("exp_avg_sq_scale_inv", Pointer), ("step", Pointer), ("hyper", Pointer)])
Adam = struct("Adam", HEADER + [
    ("stream", Pointer), ("items", Pointer), ("count", U64), ("skip", Pointer),
    ("workspace", Pointer), ("rule", U32), ("decay_mode", U32), ("state_granularity", U32),
    ("flags", U32)])
AdamRounded = struct("AdamRounded", HEADER + [
    ("stream", Pointer), ("step", Pointer), ("workspace", Pointer), ("keys", Pointer), ("weight_rounding", U32),
    ("exp_avg_rounding", U32), ("exp_avg_sq_rounding", U32), ("reserved", U32)])
AdamOnePass = struct("AdamOnePass", HEADER + [
    ("stream", Pointer), ("rounded", Pointer), ("workspace", Pointer), ("amax", Pointer)])
SumQuantized = struct("SumQuantized", HEADER + [
    ("stream", Pointer), ("codes", Pointer), ("out", Pointer), ("count", U64), ("shards", U64),
    ("shard_stride", U64), ("saturated", Pointer), ("dtype", U32), ("count_as", F),
    ("added", Pointer), ("workspace", Pointer)])
Sum = struct("Sum", HEADER + [("stream", Pointer), ("in_", Pointer), ("in_scale_inv", Pointer),
                              ("out", Pointer), ("accumulate", U32), ("reserved", U32),
                              ("workspace", Pointer)])


def tensor(t):
    """As octavo_kernels.tensor; None stays None."""
    return None if t is None else common.tensor(t)


class Codes:
    """An FP8 matrix, its transpose on request, and the scale_inv of each."""

    def __init__(self, rows, cols, device, granularity=PER_TENSOR, dtype=torch.float8_e4m3fn,
                 transposed=False):
        self.dtype = dtype
        self.granularity = granularity
        self.out = torch.zeros(rows, cols, dtype=dtype, device=device)
        self.out_t = torch.zeros(cols, rows, dtype=dtype, device=device) if transposed else None
        self.inverse, self.scale = self._scales(rows, cols, device)
        self.inverse_t, self.scale_t = self._scales(cols, rows, device) if transposed else (None, None)
        self.amax = torch.zeros(1, device=device)
        self.given = torch.ones(1, device=device)

    def _scales(self, rows, cols, device):
        length = {PER_TENSOR: (0, 0), PER_ROW: (1, 0), BLOCK_1X128: (1, 128),
                  BLOCK_128X128: (128, 128)}[self.granularity]
        r = -(-rows // length[0]) if length[0] else 1
        c = -(-cols // length[1]) if length[1] else 1
        values = torch.zeros(r, c, device=device)
        stride = 0 if self.granularity == PER_TENSOR else c
        return values, Scale(values.data_ptr(), stride, common.F32, self.granularity)

    def decoded(self):
        values = self.out.float()
        rows, cols = values.shape
        scales = self.inverse
        if self.granularity in (BLOCK_1X128, BLOCK_128X128):
            high = 1 if self.granularity == BLOCK_1X128 else 128
            scales = scales.repeat_interleave(high, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
        return values * scales


class GpuKernels:
    """The table of one plugin, on a device; calls go to `stream`, torch's current one at first."""

    def __init__(self, plugin, device):
        self.device = torch.device(device)
        self.said = []
        self.follow_torch()
        self._host = Host(ctypes.sizeof(Host), KIND_HOST, 1, 0)
        self._host.diagnose = Diagnose(self._keep)
        self._host.get_extension = Extension(lambda ctx, name: None)
        library = ctypes.CDLL(str(plugin))
        found = ctypes.POINTER(Plugin)()
        common.check(library.octavo_plugin_query_rc4(ctypes.byref(self._host), ctypes.byref(found)),
                     "octavo_plugin_query_rc4")
        name = b"octavo.kernels/1"
        table = ctypes.cast(found.contents.get_interface(Str(name, len(name))),
                            ctypes.POINTER(Pointer))
        verb = ctypes.CFUNCTYPE(ctypes.c_uint32, Pointer, Pointer)
        self._verbs = {i: verb(table[1 + i]) for i in (QUANTIZE, GEMM, SUM_ROWS)}
        self._bytes = ctypes.CFUNCTYPE(ctypes.c_uint32, Pointer, Pointer,
                                       ctypes.POINTER(U64))(table[1 + WORKSPACE])
        self._close = ctypes.CFUNCTYPE(None, Pointer)(table[1 + CLOSE])
        self.ctx = Pointer()
        opened = ctypes.CFUNCTYPE(ctypes.c_uint32, common.Device, Pointer, ctypes.POINTER(Pointer))
        index = self.device.index or 0
        self._check(opened(table[1 + OPEN])(common.Device(DEVICE_CUDA, index),
                                            ctypes.addressof(self._host), ctypes.byref(self.ctx)),
                    "open_device")
        extension = ctypes.CFUNCTYPE(Pointer, Pointer, Str)(table[1 + GET_EXTENSION])
        for draft, place in (ADAM, SUM_QUANTIZED, ONE_PASS):
            name = f"octavo.kernels.{draft}/{2 if draft == 'adam' else 1}".encode()
            further = ctypes.cast(extension(self.ctx, Str(name, len(name))), ctypes.POINTER(Pointer))
            self._verbs[draft, place] = verb(further[1 + place])

    def follow_torch(self):
        """From here on calls go to what is torch's current stream now."""
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.current_stream().cuda_stream if on_gpu else None

    def close(self):
        self._close(self.ctx)

    def _keep(self, _, diagnostic):
        text = diagnostic.contents.text
        self.said.append(ctypes.string_at(text.data, text.size).decode())

    def _check(self, status, verb):
        if status != 0:
            raise RuntimeError("\n  ".join([f"{verb} answered status {status}"] + self.said))

    def _prepare(self, position, verb, call, keep):
        """A function without arguments that makes the call."""
        need = U64()
        self._check(self._bytes(self.ctx, address(call), ctypes.byref(need)), "workspace_bytes")
        workspace = torch.empty(need.value + 256, dtype=torch.uint8, device=self.device)
        call.workspace = (workspace.data_ptr() + 255) // 256 * 256
        keep = keep + (workspace,)
        function, ctx, where = self._verbs[position], self.ctx, address(call)

        def run(_kept=(call, keep)):
            call.stream = self.stream
            status = function(ctx, where)
            if status != 0:
                self._check(status, verb)
        return run

    def quantize(self, source, codes, delayed=False):
        """Current scaling, or with `delayed` a scale that is given."""
        given = (tensor(source), tensor(codes.out), tensor(codes.out_t), codes.scale, codes.scale_t)
        call = common.Quantize(ctypes.sizeof(common.Quantize), common.KIND_QUANTIZE)
        call.in_, call.out, call.out_t = (address(t) for t in given[:3])
        call.out_scale_inv = address(codes.scale)
        if codes.out_t is not None and codes.granularity != PER_TENSOR:
            call.out_t_scale_inv = address(codes.scale_t)
        if codes.granularity == PER_TENSOR:
            call.amax = codes.amax.data_ptr()
        if delayed:
            call.scale = codes.given.data_ptr()
        call.format_max = common.LARGEST[codes.dtype]
        call.rule = RULE_GIVEN if delayed else RULE_QUOTIENT
        return self._prepare(QUANTIZE, "quantize", call, (given, source, codes))

    def multiply(self, a, b, out, fast=True, bias=None):
        """out = a b^T + bias of Codes [M, K] and [N, K], or of their transposes given as (codes, "t")."""
        parts = []
        for operand in (a, b):
            codes, turned = operand if isinstance(operand, tuple) else (operand, "")
            whole = turned and codes.granularity != PER_TENSOR
            parts += [tensor(codes.out_t if turned else codes.out),
                      codes.scale_t if whole else codes.scale]
        result, added = tensor(out), tensor(bias)
        call = common.Gemm(ctypes.sizeof(common.Gemm), common.KIND_GEMM)
        call.a, call.a_scale_inv, call.b, call.b_scale_inv = (address(p) for p in parts)
        call.d, call.bias = address(result), address(added)
        call.fast_accumulation = 1 if fast else 0
        return self._prepare(GEMM, "gemm", call, (parts, result, added, a, b, out, bias))

    def adam(self, items, one_pass=False):
        """One step of all items: dicts of weight, gradient, exp_avg, exp_avg_sq and *_scale_inv.

        In one pass scales come from bounds of the new values: octavo/draft/one_pass.h.
        """
        array = (AdamItem * len(items))()
        for place, item in zip(array, items):
            for name in ("weight", "gradient", "exp_avg", "exp_avg_sq"):
                setattr(place, name, tensor(item[name]))
                scale = item.get(name + "_scale_inv")
                setattr(place, name + "_scale_inv", None if scale is None else scale.data_ptr())
            place.step, place.hyper = item["step"].data_ptr(), item["hyper"].data_ptr()
        call = Adam(ctypes.sizeof(Adam), KIND_ADAM)
        call.items, call.count, call.rule = ctypes.addressof(array), len(items), RULE_MSAMP
        if not one_pass:
            return self._prepare(ADAM, "adam_step", call, (array, items))
        amaxes = [torch.zeros(4, device=self.device) for _ in items]
        places = (Pointer * len(items))(*(a.data_ptr() for a in amaxes))
        rounded = AdamRounded(ctypes.sizeof(AdamRounded), KIND_ADAM_ROUNDED)
        rounded.step = address(call)
        bound = AdamOnePass(ctypes.sizeof(AdamOnePass), KIND_ADAM_ONE_PASS)
        bound.rounded, bound.amax = address(rounded), ctypes.addressof(places)
        return self._prepare(ONE_PASS, "adam_one_pass", bound, (array, items, call, rounded, amaxes, places))

    def sum_quantized(self, codes, out):
        """out [count] = the sum of codes [shards, count]."""
        call = SumQuantized(ctypes.sizeof(SumQuantized), KIND_SUM_QUANTIZED)
        call.codes, call.out, call.dtype = codes.data_ptr(), out.data_ptr(), common.DTYPES[codes.dtype]
        call.shards, call.count = codes.shape
        call.shard_stride = call.count
        return self._prepare(SUM_QUANTIZED, "sum_quantized", call, (codes, out))

    def sum_rows(self, source, out):
        """out [1, C] f32 = the sums of the columns of source."""
        given = tensor(source)
        call = Sum(ctypes.sizeof(Sum), KIND_SUM)
        call.in_, call.out = address(given), out.data_ptr()
        return self._prepare(SUM_ROWS, "sum_rows", call, (given, source, out))

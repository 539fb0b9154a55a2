"""A host without torch's machinery: one linear of liboctavo driven through ctypes, on the memory of
octavo_store. Tensors are torch's only as memory.

Verbs are called as octavo/backend.h says; the struct layouts below are its call structs.
"""
import ctypes as c

import torch

from octavo import _abi
from octavo.library import liboctavo
from octavo.configuration import Config
from octavo.session_run import Run
from octavo.torch.ops import DTYPES

P, U32, U64, I64 = c.c_void_p, c.c_uint32, c.c_uint64, c.c_int64


class Matrix(c.Structure):
    _fields_ = [("data", P), ("rows", I64), ("cols", I64), ("stride", I64), ("dtype", U32),
                ("reserved", U32)]

    @staticmethod
    def of(t):
        rows, cols = t.shape if t.dim() == 2 else (1, t.numel())
        return Matrix(t.data_ptr(), rows, cols, cols, DTYPES[t.dtype], 0)


def call_struct(kind, *fields):
    head = [("size", U32), ("kind", U32)]

    def build(**given):
        out = cls(**{k: (c.cast(c.pointer(v), P) if isinstance(v, c.Structure) else v)
                     for k, v in given.items()})
        out.size, out.kind, out.kept = c.sizeof(cls), kind, given
        return out

    cls = type("Call", (c.Structure,), {"_fields_": head + list(fields)})
    return build


WeightCall = call_struct(15, ("parameter", U32), ("flags", U32), ("stream", P), ("slots", P),
                         ("workspace", P))
ForwardCall = call_struct(16, ("linear", U32), ("flags", U32), ("stream", P), ("x", P), ("y", P),
                          ("bias", P), ("slots", P), ("saved", P), ("workspace", P))
BackwardCall = call_struct(17, ("linear", U32), ("flags", U32), ("stream", P), ("dy", P), ("x", P),
                           ("dx", P), ("dw", P), ("db", P), ("slots", P), ("saved", P),
                           ("workspace", P))
StepCall = call_struct(18, ("stream", P), ("slots", P))
OptimizerCall = call_struct(0x800A, ("stream", P), ("items", P), ("count", U64), ("skip", P),
                            ("workspace", P))
ParameterCall = call_struct(0x800C, ("parameter", U32), ("role", U32), ("stream", P), ("plain", P),
                            ("slots", P), ("workspace", P))
# Places of the verbs in octavo_backend and octavo_optimizer, counted in pointers after the head.
QUANTIZE_WEIGHT, LINEAR_FORWARD, LINEAR_BACKWARD, END_STEP = 7, 8, 9, 10
WORKSPACE_BYTES, OPTIMIZER_STEP, WRITE_PARAMETER = 1, 2, 6


class Item(c.Structure):
    _fields_ = [("parameter", U32), ("reserved", U32), ("slots", P), ("hyper", P)]


def store_functions(library):
    pointers = {"octavo_run_backend": [P], "octavo_run_session": [P], "octavo_run_interface": [P, _abi.Str],
                "octavo_store_slots": [P, U32, U32, U32], "octavo_store_address": [P, U32]}
    for name, arguments in pointers.items():
        getattr(library, name).restype, getattr(library, name).argtypes = P, arguments
    library.octavo_store_open.argtypes = [P, c.POINTER(P)]
    library.octavo_store_native.argtypes = [P, U32, U32, P]
    library.octavo_store_close.argtypes, library.octavo_store_close.restype = [P], None
    return library


class PlainHost:
    """One linear: weight [N, K] and bias [N], float32, the host's own where they are native."""

    def __init__(self, overrides, weight, bias):
        self.weight, self.bias = weight.clone(), bias.clone()
        self.bias_gradient = torch.zeros_like(bias)
        self.library = store_functions(liboctavo())
        self.run = Run(Config.of(None, overrides))
        f32, linear_weight = _abi.F32, _abi.PARAMETER_LINEAR_WEIGHT
        n, k = weight.shape
        self.ids = [self.run.add_parameter("weight", n, k, f32, linear_weight)[0],
                    self.run.add_parameter("bias", 1, n, f32, 0)[0]]
        self.linear, verdict = self.run.add_linear("model", self.ids[0])
        assert verdict.accepted, verdict
        self.run.seal()
        self.plan, self.slots = self.run.plan(self.linear), self.run.slots()
        self.table, self.session = (getattr(self.library, f"octavo_run_{n}")(self.run.handle)
                                    for n in ("backend", "session"))
        name = b"octavo.optimizer/2"
        self.adam = self.library.octavo_run_interface(self.run.handle, _abi.Str(name, len(name)))
        self.store = P()
        assert self.library.octavo_store_open(self.run.handle, c.byref(self.store)) == 0
        native = {(0, _abi.ROLE_WEIGHT): self.weight, (1, _abi.ROLE_WEIGHT): self.bias,
                  (1, _abi.ROLE_GRADIENT): self.bias_gradient}
        for s in self.slots:
            if s.flags & _abi.SLOT_NATIVE:
                data = native[(s.owner, s.role)].data_ptr()
                assert self.library.octavo_store_native(self.store, s.owner, s.role, data) == 0
        if not any(s.owner == 0 and s.role == _abi.ROLE_WEIGHT and s.flags & _abi.SLOT_NATIVE
                   for s in self.slots):
            plain = Matrix.of(self.weight)
            self._call(self.adam, WRITE_PARAMETER, ParameterCall(
                parameter=0, role=_abi.ROLE_WEIGHT, plain=plain, workspace=self._space([0]),
                slots=self._list(_abi.VERB_OPTIMIZER_STEP, _abi.OWNER_PARAMETER, 0)))
        self.is_stale = True

    def _list(self, verb, owner_kind, owner):
        return self.library.octavo_store_slots(self.store, verb, owner_kind, owner)

    def _function(self, table, place, *arguments):
        address = c.cast(table + 8 + 8 * place, c.POINTER(P)).contents.value
        return c.CFUNCTYPE(c.c_uint32, *arguments)(address)

    def _call(self, table, place, call):
        status = self._function(table, place, P, P)(self.session, c.addressof(call))
        assert status == 0, self.run._take()

    def _bytes(self, count):
        self.space = torch.empty(int(count) + 256, dtype=torch.uint8, device="cpu")
        return self.space.data_ptr() + -self.space.data_ptr() % 256

    def _space(self, ids):
        count, array = U64(), (U32 * len(ids))(*ids)
        arguments = (P, P, U64, P)
        assert self._function(self.adam, WORKSPACE_BYTES, *arguments)(
            self.session, c.addressof(array), len(ids), c.addressof(count)) == 0
        return self._bytes(count.value)

    def quantize(self):
        """Before the first forward of a step, as octavo.torch does."""
        self.is_stale = False
        self._call(self.table, QUANTIZE_WEIGHT, WeightCall(
            parameter=self.ids[0], workspace=self._bytes(self.plan.weight_workspace),
            slots=self._list(_abi.VERB_QUANTIZE_WEIGHT, _abi.OWNER_PARAMETER, 0)))

    def forward(self, x):
        if self.is_stale:
            self.quantize()
        self.x, rows = x, x.shape[0]
        y = torch.empty(rows, self.weight.shape[0], dtype=x.dtype, device="cpu")
        self.saved = torch.empty(self.plan.saved.bytes(rows), dtype=torch.uint8, device="cpu")
        bias = self.bias.to(x.dtype)
        self._call(self.table, LINEAR_FORWARD, ForwardCall(
            linear=self.linear, x=Matrix.of(x), y=Matrix.of(y), bias=Matrix.of(bias),
            slots=self._list(_abi.VERB_FORWARD, _abi.OWNER_LINEAR, 0),
            saved=self.saved.data_ptr(),
            workspace=self._bytes(self.plan.forward_workspace.bytes(rows))))
        return y

    def backward(self, dy):
        """(dx, dw or None where it lies in a slot, db)."""
        owned = self.plan.gradient == _abi.GRADIENT_SLOT
        dx, dw = torch.empty_like(self.x), None if owned else torch.empty_like(self.weight)
        self._call(self.table, LINEAR_BACKWARD, BackwardCall(
            linear=self.linear, flags=_abi.BACKWARD_OVERWRITE, dy=Matrix.of(dy),
            x=Matrix.of(self.x), dx=Matrix.of(dx), dw=None if owned else Matrix.of(dw),
            db=Matrix.of(self.bias_gradient), saved=self.saved.data_ptr(),
            slots=self._list(_abi.VERB_BACKWARD, _abi.OWNER_LINEAR, 0),
            workspace=self._bytes(self.plan.backward_workspace.bytes(dy.shape[0]))))
        return dx, dw, self.bias_gradient.clone()

    def optimizer_step(self, hyper):
        """The backend's Adam; hyper: float32 [8]."""
        items = (Item * 2)(*(Item(i, 0, self._list(_abi.VERB_OPTIMIZER_STEP, _abi.OWNER_PARAMETER,
                                                   i), hyper.data_ptr()) for i in self.ids))
        self._call(self.adam, OPTIMIZER_STEP, OptimizerCall(
            items=c.addressof(items), count=2, workspace=self._space(self.ids)))

    def end_step(self):
        self._call(self.table, END_STEP, StepCall(
            slots=self._list(_abi.VERB_END_STEP, _abi.OWNER_SESSION, 0)))
        self.is_stale = True

    def bytes_of_slots(self):
        """{(owner kind, owner, name): bytes} of what the store allocated."""
        out = {}
        for s in self.slots:
            if not s.flags & _abi.SLOT_NATIVE:
                data = self.library.octavo_store_address(self.store, s.id)
                out[(s.owner_kind, s.owner, s.name)] = c.string_at(
                    data, s.rows * s.cols * (s.dtype >> 8) // 8)
        return out

    def close(self):
        self.library.octavo_store_close(self.store)
        self.run.close()

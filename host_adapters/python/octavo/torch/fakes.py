"""Shapes and dtypes of what the ops give, for tracing compilers: fake and meta tensors."""
import torch

from .. import _abi
from ..errors import StateError
from . import op_numbers as ops


class Shapes:
    """What a tracing compiler must know about a registered run."""

    def __init__(self, shapes, plans):
        self.linears = [(s.n, s.k, ops.TORCH_DTYPES[s.gradient_dtype]) for s in shapes]
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
    keeps = not flags & (ops.NO_BACKWARD | _abi.FORWARD_EVALUATION)
    size = shapes.saved[linear].bytes(_rows(x)) if keeps else 0
    return x.new_empty((size,), dtype=torch.uint8)


def register():
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
        dw_dtype = weight.dtype if flags & ops.OF_GATHERED and weight is not None else dtype
        own_dw = wanted & ops.WANT_DW and shapes.gradients[linear] == _abi.GRADIENT_TENSOR
        none = (0,)
        dx = (dy.new_empty((*dy.shape[:-1], k)) if wanted & ops.WANT_DX
              else dy.new_empty(none, dtype=torch.uint8))
        dw = (dy.new_empty((n, k), dtype=dw_dtype) if own_dw
              else dy.new_empty(none, dtype=torch.uint8))
        db = (dy.new_empty((n,), dtype=dtype) if wanted & ops.WANT_DB
              else dy.new_empty(none, dtype=torch.uint8))
        return dx, dw, db

    @fake("octavo::fused_forward")
    def _(run, linear, flags, op, eps, version, x, gamma, beta, weight, bias):
        shapes = _known(run)
        n = shapes.linears[linear][0]
        rows = _rows(x)
        mean = rows if op == ops.PROLOGUE_LAYER_NORM else 0
        rstd = rows if op in (ops.PROLOGUE_LAYER_NORM, ops.PROLOGUE_RMS_NORM) else 0
        return (x.new_empty((*x.shape[:-1], n)), _saved(shapes, linear, flags, x),
                x.new_empty((mean,), dtype=torch.float32),
                x.new_empty((rstd,), dtype=torch.float32))

    def nothing(*_):
        return None

    for name in ("hold_slots", "end_step", "optimizer_step", "sum_of_squares", "prepare_step",
                 "read_parameter", "write_parameter", "run_stage", "shard_measure", "shard_cast",
                 "shard_gathered"):
        fake(f"octavo::{name}")(nothing)

"""The gradients of a linear, and where they go: to torch, or to a slot."""
import torch

from .. import _abi
from ..errors import StateError
from . import ddp, gradient, ops
from .slots import MARKED

is_compiling = torch.compiler.is_compiling


def gradients(site, dy, saved, weight, x, need_x, need_w, need_b):
    """The gradients of x, weight and bias; None where they are not needed."""
    wanted = (ops.WANT_DX if need_x else 0) | (ops.WANT_DW if need_w else 0) | (
        ops.WANT_DB if need_b else 0)
    in_slot = need_w and site.gradient == _abi.GRADIENT_SLOT
    flags = _abi.BACKWARD_OVERWRITE
    if in_slot:
        flags = gradient.begin(site.session, site.weight)
    elif need_w and site.gradient == _abi.GRADIENT_NONE:
        raise StateError(f"{site.weight.name}: expected requires_grad=False, as it was at "
                         "octavo.prepare, found True; call octavo.prepare again, which takes the "
                         "model as it is now")
    elif site.weight.is_sharded:
        flags |= ops.OF_PACKED if site.weight.is_packed and weight is None else ops.OF_GATHERED
    flag = None
    if (dy.dtype == torch.float16 or site.session.is_silent) and (
            not site.session.needs_own_optimizer):
        flag = site.session.nonfinite
    if flag is not None:
        earlier = flag.clone()
        flag.zero_()
    dx, dw, db = ops.linear_backward(site.run, site.id, flags, wanted, dy, x, saved, weight,
                                     site.token if in_slot and is_compiling() else None)
    if in_slot and not is_compiling():
        ddp.produced(site.session, site.weight)
    if in_slot or not need_w:
        dw = None
    if flag is not None:
        # A saturating cast hides Inf from GradScaler, which inspects gradients, and from other ranks,
        # which get their mean: put a NaN in one.
        marked = dx if dw is None else dw
        marked.view(-1)[:1].masked_fill_(flag.view(-1) > 0, float("nan"))
        flag.copy_(torch.maximum(earlier, flag * MARKED))
    if dw is not None and site.weight.transposed:
        dw = dw.t()
    return dx if need_x else None, dw, db if need_b else None

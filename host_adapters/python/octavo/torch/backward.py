"""The gradients of a linear, and where they go: to torch, or to a slot."""
import torch

from .. import _abi
from ..errors import StateError
from . import ddp, gradient, ops
from .prepared import open_sessions
from .slots import MARKED

is_compiling = torch.compiler.is_compiling
_library = torch.library.Library("octavo", "FRAGMENT")
_library.define("mark_met(int run, Tensor(a!)? dx, Tensor(b!)? dw, Tensor(c!)? db) -> ()")


@torch.library.impl(_library, "mark_met", "CompositeExplicitAutograd")
def _mark_met_of(run, *gradients):
    for session in open_sessions():
        if session.number == run:
            _mark_met(session.nonfinite, gradients)


@torch.library.register_fake("octavo::mark_met", lib=_library)
def _(run, *gradients):
    return None


def _mark_met(flag, gradients):
    """A saturating cast hides Inf from GradScaler, which inspects gradients, and from other ranks, which
    get their mean. What casts met since the last call, in forward passes, too, is a NaN in these
    gradients; by dx it comes to those of every layer before."""
    met = flag.view(-1) > MARKED
    for g in gradients:
        if g is not None:
            g.view(-1)[:1].masked_fill_(met, float("nan"))
    flag.clamp_(max=MARKED)


def gradients(site, dy, saved, weight, x, need_x, need_w, need_b):
    """The gradients of x, weight and bias; None where they are not needed."""
    if need_w and site.gradient == _abi.GRADIENT_SLOT and not is_compiling():
        need_w = site.is_reached()
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
    dx, dw, db = ops.linear_backward(site.run, site.id, flags, wanted, dy, x, saved, weight,
                                     site.token if in_slot and is_compiling() else None)
    if in_slot and not is_compiling():
        gradient.began(site.weight)
        ddp.produced(site.session, site.weight)
    if in_slot or not need_w:
        dw = None
    session = site.session
    # On the CPU the op does so in every dtype.
    if session.device.type != "cpu" and (dy.dtype == torch.float16 or session.is_silent) and (
            session.nonfinite is not None and not session.needs_own_optimizer):
        found = (dx if need_x else None, dw, db if need_b else None)
        if is_compiling():  # which would compute with the flag as it was before
            torch.ops.octavo.mark_met(site.run, *found)
        else:
            _mark_met(session.nonfinite, found)
    if dw is not None and site.weight.transposed:
        dw = dw.t()
    return dx if need_x else None, dw, db if need_b else None

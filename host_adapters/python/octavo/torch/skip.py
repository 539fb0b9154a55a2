"""Leaving out a step in which a cast met Inf or NaN, which a saturating cast hides from torch.

The backend notes it in a slot on the device. On the CPU the host looks there before a step. On
other devices it would wait for the device, so an optimizer that takes torch's `found_inf` is given
the answer as a tensor: torch's fused optimizers, and the backend's own. Others cost one read a step.
"""
import torch
import torch.distributed as dist

from .. import _abi
from ..errors import UnsupportedError
from .collective import collective
from .device import is_captured
from .foreign import local
from .groups import group_of, is_distributed
from .slots import BACKWARD, FORWARD, HALF, MARKED


def _takes_found_inf(optimizer):
    return getattr(optimizer, "_step_supports_amp_scaling", False) or hasattr(
        optimizer, "octavo_found_inf")


def _gradients(session, optimizer):
    """This rank's parts of the gradients; a rank may have no part of one."""
    found = [local(p.grad) for group in optimizer.param_groups for p in group["params"]
             if p.grad is not None and session.can_read(p, _abi.ROLE_GRADIENT)]
    return [g for g in found if g.numel()]


def _are_finite(session, optimizer):
    """Of all gradients of the session, too: another optimizer of this step has some."""
    others = [local(w.parameter.grad) for w in session.weights
              if w.parameter is not None and w.is_native and w.parameter.grad is not None]
    finite = all(bool(torch.isfinite(g).all()) for g in [*_gradients(session, optimizer), *others])
    return not _on_any_rank(session, torch.tensor(not finite, device=session.device))


def _has_parts(session):
    """Whether other ranks may have gradients that this one has not."""
    return bool(session.is_sharded or session.steppers or session.owners is not None)


def _on_any_rank(session, flag):
    """Whether a bool tensor is set on any rank that has a part of the gradients."""
    group = group_of(session) if _has_parts(session) else None
    if group is None:
        return flag
    found = flag.float()
    collective(session, "all_reduce of whether gradients are finite", dist.all_reduce, found, dist.ReduceOp.MAX, group=group)
    return found > 0


def earlier(session, optimizer):
    """What was decided for another optimizer since a forward or backward last ran for the host, or
    False. After a capture a step of two optimizers looks like two steps, and the boundary between
    them clears what the backward noted: the second one takes over the answer of the first."""
    since = session.flags.since
    if since[FORWARD] or since[BACKWARD] or optimizer in session.decided_for:
        session.decided_for.clear()
    session.decided_for.add(optimizer)
    return session.is_skipping if len(session.decided_for) > 1 else False


def decide(session, optimizer, earlier=False):
    """Before a step whose records the ranks have combined: leaves it out, or lets it happen.
    earlier: an answer of the same step, a bool or a tensor, that counts, too."""
    if session.nonfinite is None:
        return
    if session.device.type != "cpu" and _takes_found_inf(optimizer):
        return _decide_there(session, optimizer, earlier)
    if is_captured(session.device):
        raise UnsupportedError(
            "a captured step: expected an optimizer that leaves out a step by itself, since the host "
            f"cannot look at the device, found {type(optimizer).__name__}; make it with fused=True")
    found = session.nonfinite.item()
    if bool(earlier):
        session.is_skipping = True
        session.drop_records()
        return drop_gradients(session, optimizer)
    if found == 0:
        return
    if session.is_silent and is_distributed():
        session.drop_records()  # other ranks see the NaN in the mean, and nobody can skip alone
        return
    if found == MARKED and _are_finite(session, optimizer):
        # The program dropped what is marked: a batch, or GradScaler a step. This one is valid, but amax has that Inf.
        session.drop_records()
        return
    session.skipped_steps += 1
    session.is_skipping = True
    session.drop_records()  # an Inf in a history would freeze its scale
    drop_gradients(session, optimizer)


def _decide_there(session, optimizer, earlier):
    """The same on the device, without a read."""
    flag = session.nonfinite.reshape(())
    found = (flag > MARKED).float()
    if session.flags.since[HALF] or session.is_silent:
        norms = [torch.linalg.vector_norm(g, float("inf")).float() for g in _gradients(session, optimizer)]
        if norms or _has_parts(session):
            norms.append(torch.zeros((), device=session.device))
            lost = _on_any_rank(session, ~torch.isfinite(torch.stack(norms)).all())
            found = torch.maximum(found, ((flag > 0) & lost).float())
    if session.is_silent and is_distributed():
        found = torch.zeros_like(found)
    session.drop_records(flag > 0)
    if session.skipped_there is None:
        session.skipped_there = torch.zeros_like(found)
    if isinstance(earlier, torch.Tensor):  # counted already
        session.skipped_there += found * (1 - earlier)
        found = torch.maximum(found, earlier)
    elif earlier:
        found = torch.ones_like(found)
    else:
        session.skipped_there += found
    session.is_skipping = found
    give(session, optimizer)


def give(session, optimizer):
    """Gives the answer of this step to an optimizer, also to a second one."""
    if optimizer not in session.gave:  # else its last step threw
        session.gave[optimizer] = getattr(optimizer, "found_inf", None)  # GradScaler's
    found, given = session.is_skipping, session.gave[optimizer]
    optimizer.found_inf = found if given is None else torch.maximum(found, given.reshape(()))


def take_back(session, optimizer):
    """After a step: what GradScaler gave, or nothing."""
    if optimizer in session.gave:
        given = session.gave.pop(optimizer)
        if given is None:
            del optimizer.found_inf
        else:
            optimizer.found_inf = given


def again(session, optimizer):
    """A further optimizer of a step that was decided on already."""
    if isinstance(session.is_skipping, torch.Tensor) and _takes_found_inf(optimizer):
        give(session, optimizer)
    elif session.is_skipping:
        drop_gradients(session, optimizer)


def drop_gradients(session, optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None

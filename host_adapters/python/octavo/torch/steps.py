"""Where a step ends: after any optimizer of torch that steps parameters of a session.

The hooks here are torch's own for every optimizer, so it does not matter which one steps, when it
was made, or how many there are. Around a step they combine what the ranks recorded, leave out a
step whose backward met Inf or NaN, and derive the next scales. Nothing happens when no forward
recorded anything since the last boundary.

An optimizer of other parameters may hold copies of the model's, which its owner writes back through
`.data` (DeepSpeed's ZeRO). After it, a session with gradients takes every weight for changed, and
its next forward is the boundary. A training loop without optimizers has its boundary in the forward
that finds a weight changed (host_adapters/torch/core/coupling.h), or in octavo.step.
"""
import torch
from torch.optim import optimizer as torch_optimizer

from . import ddp
from .groups import is_distributed
from .session import disable, open_sessions
from .slots import BACKWARD, MARKED, TO_END


def _sessions(optimizer):
    """[(session, whether the optimizer has parameters of it)] of all that are open."""
    sessions = open_sessions()
    if not sessions:
        return []
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [(s, s.has_any(parameters)) for s in sessions]


def _are_finite(optimizer):
    return all(bool(torch.isfinite(p.grad).all()) for group in optimizer.param_groups
               for p in group["params"] if p.grad is not None)


@disable
def _before(optimizer, args, kwargs):
    for session, has_any in _sessions(optimizer):
        if has_any:
            before(session, optimizer)


@disable
def _after(optimizer, args, kwargs):
    for session, has_any in _sessions(optimizer):
        if has_any:
            end(session)
        elif session.flags.since[BACKWARD]:
            session.flags.since[TO_END] = 1
            session.codes_are_stale()


def before(session, optimizer):
    """Combines the ranks and drops the gradients of a step that must not happen. Does nothing
    unless a forward recorded something since the last boundary."""
    absorbed = session.absorb_gradients()
    if not session.has_run():
        if session.is_skipping:  # a second optimizer of the step that was left out
            _drop_gradients(session, optimizer)
        return
    session.is_skipping = False
    if session.check is not None:
        session.check.compare(session)
    ddp.before_step(session, absorbed)
    session.is_combined = True
    if session.nonfinite is None or not bool(session.nonfinite):
        return
    if session.nonfinite.item() == MARKED and _are_finite(optimizer):
        # GradScaler skipped an earlier step. This one is valid, but amax still has that Inf.
        session.drop_records()
        return
    if session.is_silent and is_distributed():
        session.drop_records()  # other ranks see the NaN in the mean, and nobody can skip alone
        return
    session.skipped_steps += 1
    session.is_skipping = True
    session.drop_records()  # an Inf in a history would freeze its scale
    _drop_gradients(session, optimizer)


def _drop_gradients(session, optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
    session.clear_graph_gradients()


def end(session):
    """A boundary, unless nothing was recorded since the last one."""
    if not session.has_run():
        return
    if not session.is_combined:
        ddp.before_step(session)
    session.is_combined = False
    session.end_step()
    if session.check is not None:
        session.check.begin_step(session)


torch_optimizer.register_optimizer_step_pre_hook(_before)
torch_optimizer.register_optimizer_step_post_hook(_after)

"""Where a step ends: after any optimizer of torch that steps parameters of a session.

The hooks here are torch's own for every optimizer, so it does not matter which one steps, when it
was made, or how many there are. Around a step they combine what the ranks recorded, leave out a
step whose backward met Inf or NaN, and derive the next scales. Nothing happens when no forward
recorded anything since the last boundary.

An optimizer of other parameters may hold copies of the model's, which its owner writes back through
`.data` (DeepSpeed's ZeRO). Where `follow` names it, its steps are the boundaries. After another one, a
session with gradients takes every weight for changed, and
its next forward is the boundary. A training loop without optimizers has its boundary in the forward
that finds a weight changed (host_adapters/torch/core/coupling.h), or in octavo.step.
"""
from torch.optim import optimizer as torch_optimizer

from . import ddp, ran, skip
from .prepared import open_sessions
from .session import disable
from .slots import BACKWARD, FORWARD, TO_END


def _sessions(optimizer):
    """[(session, whether the optimizer has parameters of it)] of all that are open."""
    sessions = open_sessions()
    if not sessions or getattr(optimizer, "octavo_is_part", False):
        return []
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [(s, optimizer in s.steppers or s.has_any(parameters)) for s in sessions]


def follow(session, model, optimizer):
    """From now on the steps of this optimizer are the boundaries of a session, whatever its parameters are, and
    nothing else is: its owner may gather weights anew in each pass, which are no other weights."""
    session.steppers.add(optimizer)
    for module in model.modules():
        if "octavo_session_ref" in module.__dict__:
            module.register_forward_pre_hook(_moved_is_no_step)


def forget(session):
    """A step that its owner left out: the next one begins without its records."""
    session.drop_records()
    session.flags.since[FORWARD] = session.flags.since[BACKWARD] = 0


def _moved_is_no_step(module, args):
    session = module.__dict__.get("octavo_session_ref")
    if session is not None and session.steppers:
        session.flags.since[BACKWARD] = 0


@disable
def _before(optimizer, args, kwargs):
    for session, has_any in _sessions(optimizer):
        if has_any:
            before(session, optimizer)


@disable
def _after(optimizer, args, kwargs):
    for session, has_any in reversed(_sessions(optimizer)):
        if has_any:
            skip.take_back(session, optimizer)
            ran.after_step(session, optimizer)
            end(session)
        elif session.flags.since[BACKWARD]:
            session.flags.since[TO_END] = 1
            session.codes_are_stale()


def before(session, optimizer):
    """Combines the ranks and leaves out a step that must not happen. Does nothing
    unless a forward recorded something since the last boundary."""
    absorbed = session.absorb_gradients()
    if not session.has_run():
        skip.again(session, optimizer)
        return
    earlier = skip.earlier(session, optimizer)
    session.is_skipping = False
    if session.gather is not None:
        session.gather.check_readers()
    ddp.before_step(session, absorbed)
    session.is_combined = True
    skip.decide(session, optimizer, earlier)


def end(session):
    """A boundary, unless nothing was recorded since the last one."""
    if session.gather is not None:
        session.gather.is_stale = True
    if not session.has_run():
        return
    if not session.is_combined:
        ddp.before_step(session)
    session.is_combined = False
    if session.telemetry is not None:
        session.telemetry.end_step(session)
    session.watch.end_step(session)
    session.end_step()
    if session.telemetry is not None:
        session.telemetry.begin_step(session)


torch_optimizer.register_optimizer_step_pre_hook(_before)
torch_optimizer.register_optimizer_step_post_hook(_after)

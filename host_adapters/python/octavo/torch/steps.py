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
import warnings

import torch
import torch.distributed as dist
from torch.optim import optimizer as torch_optimizer

from .. import _abi
from ..errors import UnsupportedError
from . import ops
from .device import is_captured
from .models import holder_of, local, open_sessions
from .ranks import ddp
from .ranks.groups import collective, group_of, is_distributed
from .session import disable
from .slots import BACKWARD, CAPTURED, FORWARD, HALF, MARKED, TO_END


# Whether the layers that were placed in FP8 run in FP8: what they called, not what was planned.

IDLE_STEPS = 2  # without any FP8 call, before it is said: one step may allocate an optimizer's state alone


def layers_without_calls(session):
    """The names of linears whose forward never called the backend. Of experts, which run when a token chooses
    them, only those are named none of which ran."""
    calls = {name: ops.forwards(session.number, site.id) for name, site in session.sites.items()}
    alive = {id(site.weight.parameter) for name, site in session.sites.items()
             if calls[name] and isinstance(site.weight.piece, int)}
    return [name for name, site in session.sites.items()
            if not calls[name] and id(site.weight.parameter) not in alive]


def warn_of_idle_layers(session, optimizer):
    """After a step of an optimizer, the first time that layers ran in it: warns of those that did not. Layers that another
    optimizer steps wait for its own step."""
    if optimizer in session.looked_after or session.flags.since[CAPTURED]:
        return
    if not session.has_called():
        # torch.distributed.checkpoint allocates an optimizer's state by steps with a learning rate of 0.
        session.idle_steps += any(group.get("lr", 1) != 0 for group in optimizer.param_groups)
        if session.idle_steps < IDLE_STEPS:
            return
    session.looked_after.add(optimizer)
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    names = [name for name in layers_without_calls(session)
             if id((p := session.sites[name].weight.parameter)) in stepped or not p.requires_grad]
    if names:
        shown = "; ".join(f"{name}: {_why(session, name)}" for name in names[:4])
        warnings.warn(f"octavo: {len(names)} of {len(session.sites)} layers that were placed in FP8 made no FP8 call "
                      f"in this step: {shown}{'; ...' if len(names) > 4 else ''}", stacklevel=2)


def _why(session, name):
    site = session.sites[name]
    model = holder_of(session)
    for module in () if model is None else model.modules():
        sites = module.__dict__.get("octavo_sites") or module.__dict__.get("octavo_products") or {"": module.__dict__.get("octavo_site")}
        if not any(site is s or isinstance(s, list) and any(site is one for one in s) for s in sites.values()):
            continue
        if "forward" in module.__dict__:
            return "its forward was replaced after octavo.prepare"
        if site.evaluates_in_host and not module.training:
            return ("it is in eval mode, which runs in the host's precision; call train(), or set "
                    "fp8.te.use_autocast_during_eval = true")
    return "nothing called it; code may compute with its weight by itself"


# Leaving out a step in which a cast met Inf or NaN, which a saturating cast hides from torch.
#
# The backend notes it in a slot on the device. On the CPU the host looks there before a step. On
# other devices it would wait for the device, so an optimizer that takes torch's `found_inf` is given
# the answer as a tensor: torch's fused optimizers, and the backend's own. Others cost one read a step.


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


def found_earlier(session, optimizer):
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


def follow_decision(session, optimizer):
    """A further optimizer of a step that was decided on already."""
    if isinstance(session.is_skipping, torch.Tensor) and _takes_found_inf(optimizer):
        give(session, optimizer)
    elif session.is_skipping:
        drop_gradients(session, optimizer)


def drop_gradients(session, optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


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
            take_back(session, optimizer)
            warn_of_idle_layers(session, optimizer)
            end(session)
        elif session.flags.since[BACKWARD]:
            session.flags.since[TO_END] = 1
            session.codes_are_stale()


def before(session, optimizer):
    """Combines the ranks and leaves out a step that must not happen. Does nothing
    unless a forward recorded something since the last boundary."""
    absorbed = session.absorb_gradients()
    if not session.has_run():
        follow_decision(session, optimizer)
        return
    earlier = found_earlier(session, optimizer)
    session.is_skipping = False
    if session.gather is not None:
        session.gather.check_readers()
    ddp.before_step(session, absorbed)
    session.is_combined = True
    decide(session, optimizer, earlier)


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

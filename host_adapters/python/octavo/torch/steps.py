"""Where a step ends: after any torch optimizer that steps parameters of a session.

The hooks here are torch's own for every optimizer, so it does not matter which one steps, when it
was made, or how many there are. Around a step they combine what the ranks recorded, leave out a
step whose backward met Inf or NaN, and derive the next scales. They do nothing when no forward recorded anything since the
last boundary.

An optimizer of other parameters may hold copies of the model's, which its owner writes back through
`.data` (DeepSpeed's ZeRO). Where `follow` names it, its steps are the boundaries. After another one, a
session with gradients takes every weight for changed, and
its next forward is the boundary. A training loop without optimizers has its boundary in the forward
that finds a weight changed (host_adapters/torch/core/coupling.h), or in octavo.step.
"""
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.optim import optimizer as torch_optimizer

from .. import _abi
from ..errors import UnsupportedError
from . import ops
from .device import is_captured
from .layers.converted import sites_of
from .models import holder_of, local, open_sessions
from .ranks import ddp
from .ranks.groups import collective, group_of, is_distributed
from .slots import BACKWARD, CAPTURED, FORWARD, HALF, MARKED, TO_END

disable = torch.compiler.disable  # of what runs between graphs, where tracing would see the past


class StepState:
    """A session's memory from one step to the next. Only the methods here write it; other code reads the attributes
    without an underscore. A copy of a session takes over the number of skipped steps only.

    is_combined: whether the ranks' records of this step are combined already.
    is_skipping: whether the last step was left out: a bool, or a float tensor on the device that is then above 0.
    following: the optimizers of other parameters whose steps are this session's boundaries; see follow.
    """

    def __init__(self, skipped=0):
        self.is_combined = False
        self.is_skipping = False
        self.following = weakref.WeakSet()
        self._skipped, self._skipped_there = skipped, None  # by the host; by the device, a tensor
        self._boundaries = None                # how many there were when the last step started
        self._decided_for = weakref.WeakSet()  # the optimizers that the last decision was for
        self._found_inf = {}                   # optimizer -> its own found_inf during a step
        self._looked_after = weakref.WeakSet()  # the optimizers whose idle layers were named
        self._idle = 0                         # steps without an FP8 call

    @property
    def skipped(self):
        """How many steps were left out. Waits for the device, if it counted."""
        return self._skipped + (0 if self._skipped_there is None else int(self._skipped_there))

    def count_skipped(self, steps):
        self._skipped += steps

    def follow(self, optimizer):
        self.following.add(optimizer)

    def begin(self, boundaries):
        """A step that may happen, after so many boundaries."""
        self.is_skipping, self._boundaries = False, boundaries

    def ended_within(self, boundaries):
        """Whether the boundary of the last step that started is among these: of a forward that found the weights changed,
        in a hook of the optimizer."""
        return self._boundaries is not None and boundaries > self._boundaries

    def combined(self):
        self.is_combined = True

    def end(self):
        """A boundary: what the ranks record next belongs to another step."""
        self.is_combined = False

    def decided_before(self, optimizer, has_run):
        """The decision for another optimizer since a forward or backward last ran for the host, or False. has_run:
        whether one has run since the last boundary. After a capture a step of two optimizers looks like two steps, and
        the boundary between them clears what the backward noted: the second one takes over the answer of the first."""
        if has_run or optimizer in self._decided_for:
            self._decided_for.clear()
        self._decided_for.add(optimizer)
        return self.is_skipping if len(self._decided_for) > 1 else False

    def skip(self):
        self.is_skipping = True

    def skip_there(self, found, earlier):
        """Decides on the device: found: a float tensor, above 0 to leave the step out; earlier: of decided_before."""
        if self._skipped_there is None:
            self._skipped_there = torch.zeros_like(found)
        if isinstance(earlier, torch.Tensor):  # counted already
            self._skipped_there += found * (1 - earlier)
            found = torch.maximum(found, earlier)
        elif earlier:
            found = torch.ones_like(found)
        else:
            self._skipped_there += found
        self.is_skipping = found

    def give(self, optimizer):
        """Gives the answer of this step to an optimizer, also to a second one."""
        if optimizer not in self._found_inf:  # else its last step threw
            self._found_inf[optimizer] = getattr(optimizer, "found_inf", None)  # GradScaler's
        found, given = self.is_skipping, self._found_inf[optimizer]
        optimizer.found_inf = found if given is None else torch.maximum(found, given.reshape(()))

    def take_back(self, optimizer):
        """After a step: the optimizer has what GradScaler gave, or nothing."""
        if optimizer in self._found_inf:
            given = self._found_inf.pop(optimizer)
            if given is None:
                del optimizer.found_inf
            else:
                optimizer.found_inf = given

    def is_looked_after(self, optimizer):
        return optimizer in self._looked_after

    def look_after(self, optimizer, has_called):
        """After a step: whether idle layers are to be named now, which happens once an optimizer. has_called: whether any
        forward has called the backend."""
        if not has_called:
            # torch.distributed.checkpoint allocates an optimizer's state by steps with a learning rate of 0.
            self._idle += any(group.get("lr", 1) != 0 for group in optimizer.param_groups)
            if self._idle < IDLE_STEPS:
                return False
        self._looked_after.add(optimizer)
        return True


# Whether the layers that were placed in FP8 run in FP8: what they called, not what was planned.

IDLE_STEPS = 2  # without any FP8 call, before it is said: one step may allocate an optimizer's state alone


def layers_without_calls(session):
    """The names of linears whose forward never called the backend. Experts run when a token chooses them; they are named only
    if none of them ran."""
    calls = {name: ops.forwards(session.number, site.id) for name, site in session.sites.items()}
    alive = {id(site.weight.parameter) for name, site in session.sites.items()
             if calls[name] and isinstance(site.weight.piece, int)}
    return [name for name, site in session.sites.items()
            if not calls[name] and id(site.weight.parameter) not in alive]


def warn_of_idle_layers(session, optimizer):
    """After a step of an optimizer, the first time that layers ran in it: warns of those that did not. Layers that another
    optimizer steps wait for its own step."""
    state = session.step_state
    if state.is_looked_after(optimizer) or session.flags.since[CAPTURED] or not state.look_after(
            optimizer, session.has_called()):
        return
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
        if not any(site is s for s in sites_of(module)):
            continue
        if "forward" in module.__dict__:
            return "its forward was replaced after octavo.prepare"
        if site.evaluates_in_host and not module.training:
            return ("it is in eval mode, which uses the host's precision; call train(), or set "
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
    """Counts all gradients of the session: another optimizer of this step has some."""
    others = [local(w.parameter.grad) for w in session.weights
              if w.parameter is not None and w.is_native and w.parameter.grad is not None]
    finite = all(bool(torch.isfinite(g).all()) for g in [*_gradients(session, optimizer), *others])
    return not _on_any_rank(session, torch.tensor(not finite, device=session.device))


def _has_parts(session):
    """Whether other ranks may have gradients that this one has not."""
    return bool(session.is_sharded or session.step_state.following or session.owners is not None)


def _on_any_rank(session, flag):
    """Whether a bool tensor is set on any rank that has a part of the gradients."""
    group = group_of(session) if _has_parts(session) else None
    if group is None:
        return flag
    found = flag.float()
    collective(session, "all_reduce of whether gradients are finite", dist.all_reduce, found, dist.ReduceOp.MAX, group=group)
    return found > 0


def decide(session, optimizer, earlier=False):
    """Before a step whose records the ranks have combined: leaves it out, or lets it happen.
    earlier: an answer of the same step, a bool or a tensor, that also counts."""
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
        session.step_state.skip()
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
    session.step_state.count_skipped(1)
    session.step_state.skip()
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
    session.step_state.skip_there(found, earlier)
    session.step_state.give(optimizer)


def follow_decision(session, optimizer):
    """A further optimizer of a step that was decided on already."""
    state = session.step_state
    if isinstance(state.is_skipping, torch.Tensor) and _takes_found_inf(optimizer):
        state.give(optimizer)
    elif state.is_skipping:
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
    return [(s, optimizer in s.step_state.following or s.has_any(parameters)) for s in sessions]


def follow(session, model, optimizer):
    """From now on the steps of this optimizer are the boundaries of a session, whatever its parameters are, and
    nothing else is: its owner may gather weights anew in each pass, which are no other weights."""
    session.step_state.follow(optimizer)
    for module in model.modules():
        if "octavo_session_ref" in module.__dict__:
            module.register_forward_pre_hook(_moved_is_no_step)


def forget(session):
    """A step that its owner left out: the next one starts without its records."""
    session.drop_records()
    session.flags.since[FORWARD] = session.flags.since[BACKWARD] = 0


def _moved_is_no_step(module, args):
    session = module.__dict__.get("octavo_session_ref")
    if session is not None and session.step_state.following:
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
            session.step_state.take_back(optimizer)
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
    state, since = session.step_state, session.flags.since
    earlier = state.decided_before(optimizer, since[FORWARD] or since[BACKWARD])
    state.begin(ops.calls(session.number, _abi.VERB_END_STEP))
    if session.gather is not None:
        session.gather.check_readers()
    ddp.before_step(session, absorbed)
    state.combined()
    decide(session, optimizer, earlier)


def end(session):
    """A boundary, unless nothing was recorded since the last one, or only by a forward within the step, after it."""
    if session.gather is not None:
        session.gather.is_stale = True
    state, since = session.step_state, session.flags.since
    has_trained = since[BACKWARD] or since[CAPTURED]
    if not session.has_run() or (
            not has_trained and state.ended_within(ops.calls(session.number, _abi.VERB_END_STEP))):
        state.end()
        return
    if not state.is_combined:
        ddp.before_step(session)
    state.end()
    if session.telemetry is not None:
        session.telemetry.end_step(session)
    session.watch.end_step(session)
    session.end_step()
    if session.telemetry is not None:
        session.telemetry.begin_step(session)


torch_optimizer.register_optimizer_step_pre_hook(_before)
torch_optimizer.register_optimizer_step_post_hook(_after)

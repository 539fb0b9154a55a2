"""Whether the layers that were placed in FP8 run in FP8: what they called, not what was planned."""
import warnings

from . import ops
from .prepared import holder_of
from .slots import CAPTURED

STEPS = 2  # without any FP8 call, before it is said: one step may allocate an optimizer's state alone


def layers_without_calls(session):
    """The names of linears whose forward never called the backend. Of experts, which run when a token chooses
    them, only those are named none of which ran."""
    calls = {name: ops.forwards(session.number, site.id) for name, site in session.sites.items()}
    alive = {id(site.weight.parameter) for name, site in session.sites.items()
             if calls[name] and isinstance(site.weight.piece, int)}
    return [name for name, site in session.sites.items()
            if not calls[name] and id(site.weight.parameter) not in alive]


def after_step(session, optimizer):
    """After a step of an optimizer, the first time that layers ran in it: warns of those that did not. Layers that another
    optimizer steps wait for its own step."""
    if optimizer in session.looked_after or session.flags.since[CAPTURED]:
        return
    if not session.has_called():
        # torch.distributed.checkpoint allocates an optimizer's state by steps with a learning rate of 0.
        session.idle_steps += any(group.get("lr", 1) != 0 for group in optimizer.param_groups)
        if session.idle_steps < STEPS:
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

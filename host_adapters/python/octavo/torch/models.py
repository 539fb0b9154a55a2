"""A prepared model, and the objects that other libraries replace it or a weight by."""
import gc
import weakref
from typing import Any

import torch

from ..errors import StateError, UnsupportedError


# What other libraries put in the place of a model or of a weight, and what octavo says to it.

_REMEDY = "call octavo.prepare(model, optimizer) again, which takes the model as it is now"


def is_a(thing, name):
    """Whether a class of its type has this name, of a library that need not be imported."""
    return any(c.__name__ == name for c in type(thing).__mro__)


def is_dtensor(tensor):
    """Whether it is a DTensor of torch.distributed."""
    return is_a(tensor, "DTensor")


def is_fsdp_shard(dtensor):
    """Whether it is placed as fully_shard places a plain parameter: replicated over all dimensions of
    the mesh but the last, and there sharded or replicated."""
    names = [type(placement).__name__ for placement in dtensor.placements]
    return len(names) <= 2 and names[-1] in ("Shard", "Replicate") and set(names[:-1]) <= {"Replicate"}


def local(tensor):
    """This rank's part of a tensor, which may be sharded."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def is_fsdp(model):
    """Whether fully_shard has wrapped the model or a part of it."""
    return any(is_a(m, "FSDPModule") for m in model.modules())


def check_weight(site, given):
    """For a tensor that replaced the parameter that octavo.prepare saw. A plain tensor is a weight to multiply by. A plain
    parameter takes the place. Raises StateError or UnsupportedError for a tensor that octavo cannot follow."""
    name, session, kind = site.weight.name, site.session, type(given)
    if kind is torch.Tensor and site.is_native:
        if given._is_view() and given._base.dim() == 1:
            raise UnsupportedError(
                f"{name}: expected a whole tensor, found a view of a flat one, as "
                "FullyShardedDataParallel (FSDP1) and DeepSpeed make it; use fully_shard (FSDP2) or "
                "DistributedDataParallel")
        return
    if kind is not torch.nn.Parameter:
        if is_dtensor(given) and site.weight.is_sharded:
            raise StateError(
                f"{name}: expected the whole weight, which fully_shard gathers before a forward, found "
                "this rank's shard; call the module that fully_shard wrapped, and name methods other "
                "than forward to torch.distributed.fsdp.register_fsdp_forward_method")
        if is_dtensor(given):
            raise UnsupportedError(
                f"{name}: expected a torch.nn.Parameter, found a sharded one ({kind.__name__}, "
                "tensor parallelism); call parallelize_module before octavo.prepare, or leave the layer out "
                "with module_filter of octavo.prepare")
        if kind is torch.Tensor:
            raise UnsupportedError(
                f"{name}: expected the parameter, whose values backend {session.run.backend} has in "
                "slots, found another tensor (functional_call, a parametrization); use te, or exclude "
                "the layer with module_filter of octavo.prepare")
        raise UnsupportedError(
            f"{name}: expected the parameter that octavo.prepare saw, found a {kind.__name__} of another "
            "library; call octavo.restore(model) before a quantizer or tracer, or exclude the layer "
            "with module_filter of octavo.prepare")
    own = site.weight.parameter
    if given.is_meta:
        raise StateError(f"{name}: expected values, found a parameter without memory (meta); call "
                         "model.to_empty(device=...) and initialize it before the first forward")
    if given.shape != own.shape or given.dtype != own.dtype or given.device != own.device:
        raise StateError(f"{name}: expected {tuple(own.shape)} of {own.dtype} on {own.device}, as at "
                         f"octavo.prepare, found another parameter, {tuple(given.shape)} of "
                         f"{given.dtype} on {given.device}; {_REMEDY}")
    if not site.is_native or given.requires_grad != own.requires_grad:
        raise StateError(f"{name}: expected the parameter that octavo.prepare saw, found another one in "
                         f"its place; change values in place (weight.copy_), or {_REMEDY}")
    session.replace(site.weight, given)


# Finds the session of a prepared model, the model of a session, and all sessions of this process.

_open_sessions = weakref.WeakSet()


def note_open(session):
    _open_sessions.add(session)


def note_closed(session):
    _open_sessions.discard(session)


def open_sessions():
    """Every session of this process that is open."""
    return list(_open_sessions)


def is_prepared(model):
    """Whether octavo.prepare has converted this model or a part of it."""
    return _session_in(model) is not None


def has_converted(model):
    """Whether it has modules that octavo.prepare converted, maybe as a part of another model."""
    return any("octavo_session_ref" in module.__dict__ for module in model.modules())


def _session_in(model):
    for module in model.modules():
        if "octavo_session" in module.__dict__:
            return module.__dict__["octavo_session"]
    return _take_over(model)


def _take_over(model):
    """The session of a wrapper that this model was taken out of with every converted module, as PEFT's merge_and_unload
    does; the session then is the model's. None without one."""
    modules = set(model.modules())
    found = {m.__dict__["octavo_session_ref"] for m in modules if "octavo_session_ref" in m.__dict__}
    session = found.pop() if len(found) == 1 else None
    if session is None or session.is_closed:
        return None
    holder = session.holder() if session.holder is not None else None
    if holder is not None:
        if any("octavo_session_ref" in m.__dict__ and m not in modules for m in holder.modules()):
            return None  # the model is a part of what was prepared
        holder.__dict__.pop("octavo_session", None)
    model.__dict__["octavo_session"] = session
    session.holder = weakref.ref(model)
    session.refresh()  # the wrapper may have changed weights
    return session


def session_of(model: torch.nn.Module) -> Any:
    """The session of a prepared model, also through DDP, Accelerate or torch.compile.

    Raises StateError for a model that was not prepared.
    """
    session = _session_in(model)
    if session is not None:
        return session
    raise StateError(f"{type(model).__name__}: expected a model that octavo.prepare returned, found "
                     "one that was not prepared")


def modules_alive():
    """Every torch.nn.Module of this process: a search that takes some milliseconds."""
    return [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]


def holder_of(session):
    """The model that octavo.prepare converted, or None if it is gone. Searches for a copy's model."""
    model = session.holder() if session.holder is not None else None
    if model is None or model.__dict__.get("octavo_session") is not session:
        model = next((m for m in modules_alive() if m.__dict__.get("octavo_session") is session),
                     None)
        session.holder = None if model is None else weakref.ref(model)
    return model

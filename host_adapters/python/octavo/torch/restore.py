"""octavo.restore: from a prepared model to the plain one."""
import torch

from ..errors import StateError, UnsupportedError
from . import parameter
from .converted import detach
from .groups import note_active_wrapper
from .prepared import is_prepared


def put_back(undo):
    """Gives modules their classes and attributes back: [(module, class, attributes)]."""
    for module, cls, attributes in reversed(undo):
        module.__class__ = cls
        module.__dict__.clear()
        module.__dict__.update(attributes)


def make_plain(model, session):
    """Makes the model plain. Returns a function that undoes it; the session stays open."""
    session.settle_all()
    undo = [(m, m.__class__, dict(m.__dict__)) for m in model.modules()]
    hooks = model._forward_pre_hooks
    own = [id for id, hook in hooks.items() if hook is note_active_wrapper]
    for id in own:
        del hooks[id]
    gradients = [(p, p.grad) for p in session.owned_parameters()]
    for module in model.modules():
        for name, value in module.__dict__.pop("octavo_plain_attributes", {}).items():
            setattr(module, name, value)
        detach(module)
    for p, gradient in gradients:
        p.grad = None
        parameter.give_back(p, session.read(p))
        p.grad = gradient.plain() if hasattr(gradient, "plain") else gradient

    def again():
        hooks.update(dict.fromkeys(own, note_active_wrapper))
        for p, gradient in gradients:
            p.grad = None
            parameter.adopt(session, p)
            p.grad = gradient
        put_back(undo)
        session.slots_changed()

    return again


def check_whole(session):
    """Raises UnsupportedError for a session of a sharded model: FSDP's own classes are made on top of
    the converted ones. Raises StateError where other ranks hold a part of its state."""
    if session is not None and not session.holds_all():
        raise StateError(
            "model: expected its whole state on this rank, found optimizer state that is sharded; do this inside of "
            "octavo.full_state(model), on every rank")
    if session is not None and session.is_sharded:
        raise UnsupportedError(
            "model: expected one that is not sharded, found fully_shard (FSDP2) around its converted "
            "layers; load its state dict into a new model, or call octavo.join for another optimizer")


def restore(model):
    """Makes a prepared model plain again, in place: torch's own modules and parameters with the
    current values. The FP8 state is gone; save it before with octavo.state_dict. The backend's Adam
    cannot step the model afterwards; make an optimizer of torch. Returns the model. Raises
    StateError for a model that was not prepared, and UnsupportedError for a sharded one."""
    session = model.__dict__.get("octavo_session") if isinstance(model, torch.nn.Module) and is_prepared(model) else None
    if session is None:
        raise StateError("model: expected the model that octavo.prepare returned, found another one or a "
                         "wrapper; pass the model itself")
    check_whole(session)
    make_plain(model, session)
    session.close()
    return model

"""Finds the session of a prepared model, the model of a session, and all sessions of this process."""
import gc
import weakref

import torch

from ..errors import StateError

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
    does; the session then is the model's. None: there is none."""
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


def session_of(model):
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
    """The model that octavo.prepare converted, or None if it is gone. Searches for that of a copy."""
    model = session.holder() if session.holder is not None else None
    if model is None or model.__dict__.get("octavo_session") is not session:
        model = next((m for m in modules_alive() if m.__dict__.get("octavo_session") is session),
                     None)
        session.holder = None if model is None else weakref.ref(model)
    return model

"""Finds the session of a prepared model, and the model of a session."""
import gc
import weakref

import torch

from ..errors import StateError


def is_prepared(model):
    """Whether octavo.prepare has converted this model or a part of it."""
    return any("octavo_session" in module.__dict__ for module in model.modules())


def session_of(model):
    """The session of a prepared model, also through DDP, Accelerate or torch.compile.

    Raises StateError for a model that was not prepared.
    """
    for module in model.modules():
        session = module.__dict__.get("octavo_session")
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

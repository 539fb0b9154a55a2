"""Finds the session of a prepared model."""
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

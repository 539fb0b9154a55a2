"""The whole state of a model whose optimizer state is sharded, and the part of it that a rank holds."""
import contextlib

import torch

from ..errors import InvalidError, UnsupportedError
from .parameter import SlotParameter
from .prepared import is_prepared, session_of


@contextlib.contextmanager
def full_state(model, to=None):
    """Inside, every rank holds the whole optimizer state, or with to=<rank of the group> that rank alone: what
    a model without shard_optimizer_state can do works, such as model.state_dict(), octavo.state_dict, copy.deepcopy,
    torch.save(model) and octavo.restore. Steps do not. Changes of weights have to be the same on every rank, so with
    to= there may be none.

        with octavo.full_state(model):
            torch.save(model.state_dict(), path)

    A collective: enter it on every rank, between steps. Values that were read inside are copies afterwards. Does
    nothing for a model whose optimizer state is not sharded. Raises DeviceError when a rank does not answer within
    the timeout of the group.
    """
    session = session_of(model)
    owners = session.owners
    if owners is None or owners.is_gathering:
        yield model
        return
    if to is not None and to not in range(owners.world):
        raise InvalidError(f"to: expected a rank of the group, 0 to {owners.world - 1}, or None, found {to!r}")
    session.settle_all()
    owners.is_gathering = True
    try:
        owners.fill(session, to)
        yield model
    finally:
        owners.is_gathering = False
        if not session.is_closed:
            session.settle_all()
            owners.release(session)
            for p in session.owned_parameters():  # also on their owners, for copies that are alike on every rank
                if p.octavo_copy.is_real(p) and session.shares_master(p):
                    p.octavo_copy.drop(p)


def expect_whole(model, where, why):
    """Raises UnsupportedError for a prepared model whose optimizer state is sharded. where, why: of the error."""
    if is_prepared(model) and session_of(model).owners is not None:
        raise UnsupportedError(
            f"{where}: expected optimizer state that is whole on every rank, since {why}, found a model of "
            "octavo.prepare(shard_optimizer_state=True); leave it out, or train with octavo.accelerate.Accelerator or a "
            "loop of your own")


def sharded_state_dict(model):
    """The entries of model.state_dict() whose values this rank holds, each by its name: all of them, but for
    weights whose master another rank holds. No collective. With torch.distributed.checkpoint, which looks for an
    entry on every rank, it saves each weight once:

        dcp.save({"model": octavo.sharded_state_dict(model), "octavo": octavo.Stateful(model)}, checkpoint_id=path)

    dcp.load fills it. model.load_state_dict(..., strict=False) takes it, and Stateful the rest.
    """
    session = session_of(model)
    session.settle_all()
    return {name: value.detach() if isinstance(value, torch.Tensor) else value
            for name, value in model.state_dict(keep_vars=True).items()
            if not isinstance(value, SlotParameter) or session.can_read(value)}

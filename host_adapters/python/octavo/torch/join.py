"""octavo.join: an optimizer that was made after octavo.prepare."""
import torch

from ..errors import InvalidError
from . import fsdp
from . import optimizer as optimizers
from .prepared import session_of


def join(model, optimizer):
    """Joins an optimizer that was made after octavo.prepare, as fully_shard and to_empty need it,
    which replace parameters.

    model: a prepared model; optimizer: a torch optimizer of its parameters as they are now. Returns
    the optimizer to use: the same one if the backend leaves the weights in the model, otherwise the
    backend's Adam. Raises StateError for an optimizer with parameters of before fully_shard, and what
    octavo.prepare raises for an optimizer.
    """
    session = session_of(model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidError(f"optimizer: expected a torch.optim.Optimizer, found {type(optimizer).__name__}")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if session.is_sharded:
        fsdp.follow(session)
        fsdp.check_optimizer(session, parameters)
    own = {id(p) for p in model.parameters()}
    foreign = sum(id(p) not in own for p in parameters)
    if foreign:
        raise InvalidError(f"optimizer: expected parameters of this model as it is now, found {foreign} "
                           "others; create the optimizer from model.parameters() after fully_shard and "
                           "to_empty")
    return optimizers.join(session, optimizer)

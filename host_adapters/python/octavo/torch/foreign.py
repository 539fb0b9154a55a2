"""What other libraries put in the place of a model or of a weight, and what octavo says to it."""
import torch

from ..errors import StateError, UnsupportedError
from .prepared import holder_of

_REMEDY = "call octavo.prepare(model, optimizer) again, which takes the model as it is now"


def _sharded(parameter):
    """Whether it is a DTensor of torch.distributed."""
    return any(c.__name__ == "DTensor" for c in type(parameter).__mro__)


def sharded_by(model):
    """What shards the parameters of a model: "fully_shard", "parallelize_module", or None."""
    if any(c.__name__ == "FSDPModule" for m in model.modules() for c in type(m).__mro__):
        return "fully_shard (FSDP2)"
    if any(_sharded(p) for p in model.parameters()):
        return "DTensor parameters (parallelize_module, distribute_tensor)"
    return None


def check_weight(site, given):
    """For a tensor in the place of the parameter that octavo.prepare saw. A plain tensor is a
    weight to multiply by. A plain parameter takes the place. Raises StateError or UnsupportedError
    for what octavo cannot follow."""
    name, session, kind = site.weight.name, site.session, type(given)
    if kind is torch.Tensor and site.is_native:
        if given._is_view() and given._base.dim() == 1:
            raise UnsupportedError(
                f"{name}: expected a whole tensor, found a view of a flat one, as "
                "FullyShardedDataParallel (FSDP1) and DeepSpeed make it; use "
                "DistributedDataParallel")
        return
    if kind is not torch.nn.Parameter:
        if _sharded(given):
            raise UnsupportedError(f"{name}: expected a torch.nn.Parameter, found a sharded one "
                                   f"({kind.__name__}); use DistributedDataParallel")
        if kind is torch.Tensor:
            raise UnsupportedError(
                f"{name}: expected the parameter, whose values backend {session.run.backend} has in "
                "slots, found another tensor (functional_call, a parametrization); use te, or exclude "
                "the layer with the filter of octavo.prepare")
        raise UnsupportedError(
            f"{name}: expected the parameter that octavo.prepare saw, found a {kind.__name__} of another "
            "library; call octavo.restore(model) before a quantizer or tracer, or exclude the layer "
            "with the filter of octavo.prepare")
    root = holder_of(session)
    sharded = sharded_by(root) if root is not None else None
    if sharded:
        raise UnsupportedError(f"{name}: expected a model that is not sharded, found {sharded}; use "
                               "DistributedDataParallel")
    own = site.weight.parameter
    if given.shape != own.shape or given.dtype != own.dtype or given.device != own.device:
        raise StateError(f"{name}: expected {tuple(own.shape)} of {own.dtype} on {own.device}, as at "
                         f"octavo.prepare, found another parameter, {tuple(given.shape)} of "
                         f"{given.dtype} on {given.device}; {_REMEDY}")
    if not site.is_native or given.requires_grad != own.requires_grad:
        raise StateError(f"{name}: expected the parameter that octavo.prepare saw, found another one in "
                         f"its place; change values in place (weight.copy_), or {_REMEDY}")
    session.replace(site.weight, given)

"""Whether the ranks of a group train the same thing: compared once, before they communicate."""
import hashlib
import zlib

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import StateError
from ..library import version
from . import gpus
from .caches import is_released
from .collective import collective

# What each number of a digest stands for, with the remedy.
_PARTS = (("the version of octavo", "install the same version everywhere"),
          ("the backend or its plugin file", "install the same plugin everywhere"),
          ("the options of the backend", "use one octavo.toml"),
          ("shard_optimizer_state of octavo.prepare", "give it on every rank, or on none"),
          ("the layers (names)", "build the same model on every rank"),
          ("the layers (shapes and dtypes)", "build the same model on every rank"),
          ("the weights in slots", "use the same seed on every rank before creating the model, or "
           "call octavo.torch.ddp.join(model) after wrapping it"))


def _number(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def _values(session):
    """A checksum of the slots that must be equal on every rank before the first step. Of a sharded optimizer
    state, each rank has slots of its own."""
    own = set() if session.owners is None else session.owners.whole
    value = 0
    for slot, tensor in zip(session.slots, session.tensors):
        is_here = tensor is not None and tensor.numel() and not is_released(tensor)
        if is_here and slot.flags & _abi.SLOT_CHECKPOINT and slot.id not in own:
            value = zlib.crc32(tensor.cpu().contiguous().view(torch.uint8).numpy(), value)
    return value


def _in_fp8(session):
    return [(name, w) for name, w in session.linears if session.verdicts[name].accepted]


def of(session, with_values):
    """One int64 for each of _PARTS."""
    options = [sorted((k, repr(v)) for k, v in session.run.options().items()), sorted(session.run.layer_options().items())]
    shapes = sorted((name, *w.shape, str(w.parameter.dtype)) for name, w in _in_fp8(session))
    names = [name for name, *_ in shapes]
    return [_number(version()), _number(session.run.identity()), _number(repr(options)),
            int(session.owners is not None), _number(repr(names)), _number(repr(shapes)), _values(session) if with_values else 0]


def compare(session, group, with_values=True):
    """Raises StateError on every rank of the group unless all digests are equal, and before that what
    gpus.check raises: this is the first collective of a session."""
    gpus.check(session, group)
    mine = torch.tensor([len(_in_fp8(session)), *of(session, with_values)], device=session.device)
    world = dist.get_world_size(group)
    every = [torch.empty_like(mine) for _ in range(world)]
    collective(session, "all_gather of what the ranks train", dist.all_gather, every, mine, group=group)
    for rank, other in enumerate(every):
        for i, (what, remedy) in enumerate(_PARTS):
            if other[1 + i] != every[0][1 + i]:
                raise StateError(
                    f"the ranks: expected {what} of rank 0 on every rank, found others on rank {rank} "
                    f"({int(every[0][0])} and {int(other[0])} FP8 layers); {remedy}")

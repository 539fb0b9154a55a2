"""What a backend's seal says, as constants of JAX programs: the lists of every verb."""
import dataclasses

import numpy as np

from .. import _abi
from .ffi import DTYPES


@dataclasses.dataclass(frozen=True)
class Place:
    """An entry of a slot list for one verb."""
    slot: int
    access: int
    shape: tuple      # of the columns that the entry has, or of the whole slot
    dtype: object
    first: int        # of the columns
    combine: int
    is_native: bool
    is_pooled: bool

    @property
    def size(self):
        return int(np.prod(self.shape))


def places(run, slots, verb, owner_kind, owner):
    """The list of one object for a verb."""
    out = []
    for id, first, count in run.uses(owner_kind, owner):
        slot = slots[id]
        is_pooled = bool(slot.labels) and count > 0
        out.append(Place(id, slot.access[verb], (count,) if is_pooled else (slot.rows, slot.cols),
                         DTYPES.get(slot.dtype, np.uint8), first, slot.combine,
                         bool(slot.flags & _abi.SLOT_NATIVE), is_pooled))
    return tuple(out)


def accumulators(list):
    """The places that a verb records in, in the order of its record."""
    return tuple(p for p in list if p.access == _abi.ACCESS_ACCUMULATE)


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """A linear as programs know it, or `count` of one shape that are stacked. Compared by identity: a
    session makes one for each name."""
    number: int       # of the run
    name: str
    linear: int       # of the first; the others follow
    parameter: int
    count: int
    n: int
    k: int
    dtype: object     # of the weight
    plan: object
    weight_workspace: int
    quantize: tuple   # Places
    forward: tuple
    backward: tuple

    @property
    def recorded(self):
        """The places of one use's record, in order: of quantize, forward and backward."""
        return sum((accumulators(l) for l in (self.quantize, self.forward, self.backward)), ())

    @property
    def gradient_slots(self):
        """The places of the gradient, of a backend that owns it; else ()."""
        if self.plan.gradient != _abi.GRADIENT_SLOT:
            return ()
        return tuple(p for p in self.backward if p.access == _abi.ACCESS_UPDATE)

    @property
    def owns_weight(self):
        """Whether the backend keeps the weight in slots."""
        return not any(p.is_native for p in self.quantize + self.forward + self.backward)

    def indices(self, combine):
        """Where accumulators that combine this way are in a record."""
        out, at = [], 0
        for p in self.recorded:
            if p.combine == combine:
                out += range(at, at + p.size)
            at += p.size
        return np.array(out, np.int32)

    @property
    def read(self):
        """The places of slots of the state that its verbs read, without those that quantize makes."""
        made = {p.slot for p in self.quantize if p.access == _abi.ACCESS_WRITE}
        return {p.slot: p for p in self.quantize + self.forward + self.backward
                if p.access == _abi.ACCESS_READ and not p.is_native and p.slot not in made}

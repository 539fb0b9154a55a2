"""A backend's seal as constants in JAX programs: the lists of every verb."""
import dataclasses
import functools

import jax
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
    is_session: bool  # one slot, whatever the object

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
                         bool(slot.flags & _abi.SLOT_NATIVE), is_pooled,
                         slot.owner_kind == _abi.OWNER_SESSION and not is_pooled))
    return tuple(out)


def accumulators(list):
    """The places that a verb records in, in the order of its record."""
    return tuple(p for p in list if p.access == _abi.ACCESS_ACCUMULATE)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """A linear's place in the states of one run, for octavo.jax.linear: constants, and of stacked linears the index as
    its only leaf, [L] for lax.scan and vmap to slice."""
    spec: object
    index: object = None

    def tree_flatten(self):
        return (self.index,), self.spec

    @classmethod
    def tree_unflatten(cls, spec, children):
        return cls(spec, *children)

    def __hash__(self):
        return hash(self.spec)

    def __eq__(self, other):
        return isinstance(other, Site) and self.spec is other.spec and self.index is other.index


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """A linear as programs know it, or `count` of one shape that are stacked. Compared by identity: a
    session makes one for each name, and copies of a model have the same."""
    session: object
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
    evaluates_plain: bool  # evaluation is JAX's own product
    is_frozen: bool        # backward makes no gradient of the weight

    @functools.cached_property
    def site(self):
        """For octavo.jax.linear."""
        return Site(self, np.arange(self.count, dtype=np.int32) if self.count > 1 else None)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _spec_of, (self.session, self.name)

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

    @property
    def read(self):
        """The places of slots of the state that its verbs read, without those that quantize makes."""
        made = {p.slot for p in self.quantize if p.access == _abi.ACCESS_WRITE}
        return {p.slot: p for p in self.quantize + self.forward + self.backward
                if p.access == _abi.ACCESS_READ and not p.is_native and p.slot not in made}


def _spec_of(session, name):
    return session.specs[name]

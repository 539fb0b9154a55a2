"""How linears and weights find the tensors of their session: built by Session, passed to ops."""
import dataclasses
import typing

import torch

from .. import _abi
from ..errors import InvalidError


@dataclasses.dataclass(eq=False)
class Weight:
    """A matrix [rows, cols] that the session knows: a torch parameter or a part of one.

    `piece` is None for the whole parameter, an int for one matrix of a 3-D parameter, or a pair for
    rows [first, last). A transposed weight is [K, N] in torch and [N, K] in Octavo; its memory has
    the layout of the latter.
    """
    name: str
    parameter: torch.nn.Parameter
    piece: object = None
    transposed: bool = False
    is_linear: bool = True
    id: int = _abi.NONE
    is_native: bool = True       # the value is in the torch parameter, not in slots
    is_frozen: bool = False
    shape: tuple = ()
    version: int = -1            # of the parameter when it was last quantized
    graph_gradients: object = None  # of the session, by id

    @property
    def compiled(self):
        """Whether a compiled graph has added to the gradient slot since it was cleared. The op
        records this, because a traced graph must not write to objects that outlive it."""
        return bool(self.graph_gradients[self.id])

    def __getstate__(self):
        return {**self.__dict__, "graph_gradients": None}

    def of(self, tensor):
        """The part of a tensor with the shape of the parameter, as [rows, cols]."""
        if isinstance(self.piece, int):
            tensor = tensor[self.piece]
        elif self.piece is not None:
            tensor = tensor[self.piece[0]:self.piece[1]]
        if self.transposed:
            tensor = tensor.t()
        return tensor if tensor.dim() == 2 else tensor.reshape(1, -1)

    def is_whole(self):
        """Whether the parameter itself is the matrix."""
        return (self.piece is None and not self.transposed and self.parameter.dim() == 2
                and self.parameter.is_contiguous())

    def first_address(self):
        return self.of(self.parameter.detach()).data_ptr()

    def matrix(self):
        """The values as [rows, cols] without autograd: a view if the layout allows it, else a
        copy."""
        matrix = self.of(self.parameter.detach())
        return matrix if matrix.is_contiguous() else matrix.contiguous()


MARKED = 0.5  # in the nonfinite slot instead of 1: a gradient was set to NaN when the cast met it


class _Traced(typing.NamedTuple):
    """The result of Lists.fill in a traced graph."""
    read: list
    accumulate: list
    update: list


class Lists:
    """The slot tensors of one object and verb, grouped by access as the ops take them."""

    def __init__(self, session, verb, owner_kind, owner):
        self._natives = []
        self.read, self.accumulate, self.update = [], [], []
        by_access = {_abi.ACCESS_READ: "read", _abi.ACCESS_ACCUMULATE: "accumulate",
                     _abi.ACCESS_WRITE: "update", _abi.ACCESS_UPDATE: "update"}
        for slot_id, first, count in session.uses(owner_kind, owner):
            slot = session.slots[slot_id]
            access = slot.access[verb]
            if access == _abi.ACCESS_NONE:
                continue
            name = by_access[access]
            target = getattr(self, name)
            tensor = session.tensors[slot_id]
            if tensor is None:
                self._natives.append((name, len(target), session.weights[slot.owner], slot.role))
            elif slot.labels and count:
                tensor = tensor[:, first:first + count]
            target.append(tensor)
        self.is_empty = not (self.read or self.accumulate or self.update)
        # Verbs inside an autograd.Function may take whole parameters directly. These lists need no
        # update, because a parameter remains the same object when its memory moves.
        self._is_ready = not self._natives or (
            verb in (_abi.VERB_FORWARD, _abi.VERB_BACKWARD) and all(
                w.is_whole() and role == _abi.ROLE_WEIGHT for _, _, w, role in self._natives))
        if self._is_ready:
            for name, index, weight, _ in self._natives:
                getattr(self, name)[index] = weight.parameter

    def fill(self):
        """Returns the lists with the current native tensors, whose memory may have moved. Returns
        self, or copies in a traced graph that computes parts, because a traced graph must not write
        to objects that outlive it. Raises InvalidError for a weight that is not row-major."""
        if self._is_ready:
            return self
        if torch.compiler.is_compiling():
            traced = _Traced(list(self.read), list(self.accumulate), list(self.update))
            for name, index, weight, role in self._natives:
                getattr(traced, name)[index] = self._native(weight, role)
            return traced
        for name, index, weight, role in self._natives:
            matrix = self._native(weight, role)
            if name == "update" and matrix.data_ptr() != weight.first_address():
                raise InvalidError(f"{weight.name}: expected row-major memory, found strides "
                                   f"{weight.parameter.stride()}; call contiguous() on it before "
                                   "octavo.prepare")
            getattr(self, name)[index] = matrix
        return self

    @staticmethod
    def _native(weight, role):
        if role == _abi.ROLE_GRADIENT:
            return weight.of(weight.parameter.grad).contiguous()
        return weight.matrix()


class Site:
    """A use of a weight: everything that the forward of the module needs, without look-ups."""

    def __init__(self, session, id, name, weight):
        self.session = session
        self.id = id
        self.name = name
        self.weight = weight
        self.n, self.k = weight.shape
        plan = session.run.plan(id)
        self.needs_x = bool(plan.flags & _abi.LINEAR_NEEDS_X)
        self.gradient = plan.gradient
        self.run = session.number
        self.forward = Lists(session, _abi.VERB_FORWARD, _abi.OWNER_LINEAR, id)
        self.backward = Lists(session, _abi.VERB_BACKWARD, _abi.OWNER_LINEAR, id)

    def __reduce__(self):
        """A copy is the site of the copied session, which has its own run."""
        return _site_of, (self.session, self.name)


def _site_of(session, name):
    return session.sites[name]

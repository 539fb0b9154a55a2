"""Records of a session about torch's tensors: weights, and the uses of weights by linears."""
import ctypes
import dataclasses

import torch

from .. import _abi
from .models import is_dtensor, local

MARKED = 0.5  # in the nonfinite slot instead of 1: what casts met is a NaN in gradients


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
    is_frozen: object = None     # a bool, as the backend knows it
    shape: tuple = ()
    verdict: object = None
    is_sharded: bool = False     # by fully_shard: `parameter` is this rank's shard
    is_packed: bool = False      # of what is sharded: its codes are gathered, see ranks/fsdp.py
    value: object = None         # what forwards multiply by: the parameter, or what FSDP gathered of it
    version: object = None       # of the shard that was gathered last
    parallel: object = None      # ranks.tensor_parallel.Style: `parameter` is this rank's part of a weight

    @property
    def is_elsewhere(self):
        """Whether its values come later: the parameter is without memory (meta), or a shard that FSDP
        gathers."""
        return self.parameter.is_meta or is_dtensor(self.parameter) and self.parallel is None

    @property
    def held(self):
        """The shape of the matrix that this rank multiplies by."""
        return self.parameter.shape if self.parallel is None else local(self.parameter).shape

    def of(self, tensor):
        """The part of a tensor with the shape of the parameter, as [rows, cols]."""
        if isinstance(self.piece, int):
            tensor = tensor[self.piece]
        elif self.piece is not None:
            tensor = tensor[self.piece[0]:self.piece[1]]
        if self.transposed:
            tensor = tensor.t()
        return tensor if tensor.dim() == 2 else tensor.reshape(1, -1)


CODES, HOST, MOVED = 1, 2, 4         # octavo::core::Stale
REPLAYS = 2                          # octavo::core::Added
FORWARD, BACKWARD, TO_END, CAPTURED, HALF, QUIETLY, TRACED = range(7)  # octavo::core::Since


class Flags:
    """Bytes that the op library and this package share: octavo::core::SharedFlags."""

    def __init__(self, parameters, gradients=b""):
        self.gradients = (ctypes.c_uint8 * max(parameters, 1))(*gradients)
        self.weights = (ctypes.c_uint8 * max(parameters, 1))()
        self.since = (ctypes.c_uint8 * 7)()
        self.since[QUIETLY] = True  # unless telemetry.Telemetry asks

    def set(self, id, bits):
        self.weights[id] |= bits

    def clear(self, id, bits):
        self.weights[id] &= ~bits


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
        self.evaluates_in_host = bool(plan.flags & _abi.LINEAR_EVALUATES_IN_HOST)
        self.gradient = plan.gradient
        self.run = session.number
        self.is_native = weight.is_native
        self.flags = session.flags
        # Stands for a weight in slots where autograd asks which products to differentiate.
        self.anchor = torch.zeros((), device=session.device, requires_grad=not weight.is_frozen)
        self._leaf = None  # what adds to the .grad of the anchor
        # A traced backward writes to it in place of the gradient slot, which the op has anyway: the
        # compiler then keeps the call, and copies nothing.
        self.token = torch.zeros(1, dtype=torch.uint8, device=session.device)

    def is_reached(self):
        """Whether the backward that runs also is one for the weight: not with inputs=[x], nor of torch.autograd.grad, which do
        not change the .grad of other leaves."""
        if self._leaf is None:
            with torch.enable_grad():
                self._leaf = self.anchor.view_as(self.anchor).grad_fn.next_functions[0][0]
        return torch._C._will_engine_execute_node(self._leaf)

    def __reduce__(self):
        """A copy is the site of the copied session, which has its own run."""
        return site_of, (self.session, self.name)


def site_of(session, name):
    return session.unplaced.pop(name, None) or session.sites[name]


# Memory of slots, above all of weight caches, that comes and goes. A weight that FSDP shards has codes only while it is
# gathered: between its passes they take no bytes, as the whole weight takes none.


def is_cache(slot):
    """Whether quantizing a weight writes the slot from scratch, so that it can be made again."""
    return (slot.owner_kind == _abi.OWNER_PARAMETER
            and slot.access[_abi.VERB_QUANTIZE_WEIGHT] == _abi.ACCESS_WRITE
            and not slot.flags & (_abi.SLOT_NATIVE | _abi.SLOT_CHECKPOINT))


def waits_for_gather(session, slot):
    """Whether it is for codes of a weight that is sharded, or without memory (meta)."""
    return is_cache(slot) and session.weights[slot.owner].is_elsewhere


def caches_by_weight(slots):
    """The caches of each Weight: {its id: [slot]}."""
    found = {}
    for s in slots:
        if is_cache(s):
            found.setdefault(s.owner, []).append(s)
    return found


def release_codes(session, weights):
    """Frees the codes of these Weights. No forward may need them before hold."""
    for w in weights:
        session.flags.set(w.id, CODES)
    release_slots(session, [s for w in weights for s in session.caches.get(w.id, ())])


def release_slots(session, slots):
    """Frees the memory of these slots. No verb may need them before hold_slots."""
    for s in slots:
        session.tensors[s.id].untyped_storage().resize_(0)


def hold_codes(session, weights):
    """Gives the codes of these Weights memory, which the next forward or backward fills."""
    for s in hold_slots(session, [s for w in weights for s in session.caches.get(w.id, ())]):
        session.flags.set(s.owner, CODES)


def hold_slots(session, slots):
    """Gives these slots memory, without values. Returns those that had none."""
    made = []
    for s in slots:
        tensor = session.tensors[s.id]
        storage, size = tensor.untyped_storage(), tensor.numel() * tensor.element_size()
        if storage.nbytes() != size:
            storage.resize_(size)
            made.append(s)
    return made


def have_released(session, weights):
    """Whether codes of these Weights have no memory."""
    return any(is_released(session.tensors[s.id]) for w in weights
               for s in session.caches.get(w.id, ()))


def is_released(tensor):
    """Whether the memory of a slot is gone for now."""
    return tensor.untyped_storage().nbytes() == 0 and tensor.numel() > 0

"""The optional check of octavo.prepare(check_every=N): whether a weight changed without a trace.

Writes through `weight.data` and through memory shared with other libraries move no version, so no
forward can see them. In every Nth step the first forward of each weight takes a checksum, and the
step compares it, before an optimizer changes the weight.
"""
import torch

from ..errors import StateError
from .foreign import local
from .slots import HOST


def _checksum(p):
    """The exclusive or and the sum of the bits of all elements."""
    bits = local(p.detach()).view(torch.int32 if p.element_size() == 4 else torch.int16)
    return torch.hash_tensor(bits).item(), bits.sum(dtype=torch.int64).item()


class Check:
    """The state of one session's check."""

    def __init__(self, every):
        self.every = every
        self._steps = 0
        self._taken = {}  # id of a parameter -> (version, address, checksum)

    def begin_step(self, session):
        """After a boundary: asks the forwards of the step, if its turn has come."""
        self._taken.clear()
        self._steps += 1
        if self._steps % self.every == 0:
            for w in session.weights:
                if w.is_native and w.is_linear:
                    session.flags.set(w.id, HOST)

    def take(self, session, p):
        """A forward is about to quantize this weight."""
        for w in session.weights_of(p):
            session.flags.clear(w.id, HOST)
        self._taken[id(p)] = (p._version, local(p).data_ptr(), _checksum(p))

    def compare(self, session):
        """Raises StateError for a weight that is not what its forward multiplied by."""
        for w in session.weights:
            p = w.parameter
            if p is None:
                continue
            version, address, checksum = self._taken.get(id(p), (None, None, None))
            if (p._version, local(p).data_ptr()) == (version, address) and _checksum(p) != checksum:
                raise StateError(
                    f"{w.name}: expected the values that the forward of this step used, found others: "
                    "code wrote through weight.data or through shared memory; change it in place "
                    "(weight.copy_), or call octavo.refresh(model) after such a write")

"""What is in slots goes to another process by value: torch's own way would move the slots to shared memory, where
two processes would write to them, and with them the copies that code makes for a moment, whose memory must stay until
the other process has begun. Registered for the picklers of multiprocessing alone: Process, Queue, Pool and DataLoader."""
import copyreg
from multiprocessing.reduction import ForkingPickler

import torch

from .gradient import GradientView, SlotGradient
from .parameter import SlotParameter
from .session import Session


class _Value:
    """A tensor that its pickle has the bytes of."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __reduce__(self):
        t = self._tensor.detach()
        return _received, (t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), t.dtype, tuple(t.shape),
                           str(t.device))


def _received(data, dtype, shape, device):
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    if data:
        tensor.reshape(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return tensor.to(device)


def _parameter(data, requires_grad):
    return torch.nn.Parameter(data, requires_grad)


def _session(session):
    state = session.__getstate__()
    state["tensors"] = [None if t is None else _Value(t) for t in state["tensors"]]
    return copyreg.__newobj__, (Session,), state


ForkingPickler.register(Session, _session)
ForkingPickler.register(SlotParameter, lambda p: (_parameter, (_Value(p), p.requires_grad)))
ForkingPickler.register(SlotGradient, lambda g: _Value(g.plain()).__reduce__())
ForkingPickler.register(GradientView, lambda v: _Value(v.plain()).__reduce__())

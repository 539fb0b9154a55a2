"""One bucket of gradients in slots: its plan, and the collectives between its stages."""
import ctypes

import torch
import torch.distributed as dist

from .. import _abi
from .. import stages
from ..stages import ALL_GATHER, ALL_REDUCE_MAX, ALL_REDUCE_SUM, ALL_TO_ALL, NONE
from . import ops
from .collective import collective
from .owned_gradients import OwnedGradients


def plan(number, ids, world):
    """Plans the reduction of some parameters of a registered run.

    number: the run; ids: the parameters; world: the number of ranks. Returns ([Stage], bytes of
    send and of recv, bytes of state). Raises the error of the backend's status.
    """
    function = ops.library().octavo_torch_plan
    function.restype = ctypes.c_uint32
    function.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint64,
                         ctypes.c_uint32, *stages.OUTPUTS]
    return stages.collect(ops.take_diagnostics, function, number,
                          (ctypes.c_uint32 * len(ids))(*ids), len(ids), world)


def _bytes(count, device):
    """Uninitialized memory, uint8 [count], aligned to 256 bytes."""
    memory = torch.empty(count + 256, dtype=torch.uint8, device=device)
    first = -memory.data_ptr() % 256
    return memory[first:first + count]


def _elements(buffer, dtype, count):
    width = dtype >> 11  # bytes of an element
    view = buffer[:count * width]
    return view.view(torch.float32) if dtype == _abi.F32 else view


class Bucket:
    """Parameters that are reduced together. root: the rank of the group that alone needs their mean, or None."""

    def __init__(self, session, weights, world, root=None):
        self.weights = weights
        self.ids = [w.id for w in weights]
        self.stages, self.buffer_bytes, self.state_bytes = plan(session.number, self.ids, world)
        self.root = root if root is not None and OwnedGradients.ends_at_root(self.stages) else None


class Flight:
    """The reduction of one bucket. Between two calls of `advance`, a collective is in flight."""

    def __init__(self, bucket, session, group):
        self.bucket, self.session, self.number, self.group = bucket, session, session.number, group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.send, self.recv, self.state = (_bytes(count, session.device) for count in (
            bucket.buffer_bytes, bucket.buffer_bytes, bucket.state_bytes))
        self.next = 0
        self.work = None
        self.wire_bytes = 0  # bytes that this rank sends if the collectives are rings

    def advance(self):
        """Waits for the collective in flight, runs the next stage and starts its collective.
        Returns False if no stage is left."""
        if self.work is not None:
            collective(self.session, "exchange of gradients", self.work.wait)
            self.work = None
        b = self.bucket
        if self.next == len(b.stages):
            return False
        if b.root is None or self.next + 1 < len(b.stages):
            self._run()
        elif b.root == self.rank:
            self.session.owners.gradients.run_last(self.session, self.world, self._run)
        self.work = collective(self.session, "exchange of gradients", self._begin, b.stages[self.next])
        self.next += 1
        return True

    def _run(self):
        ops.run("run_stage", self.number, self.bucket.ids, self.next, self.world, self.recv, self.send, self.state)

    def _begin(self, stage):
        kind, world = stage.collective, self.world
        if kind == NONE:
            return None
        send = _elements(self.send, stage.dtype, stage.send_count)
        recv = _elements(self.recv, stage.dtype, stage.recv_count)
        one = send.nbytes * (world - 1)
        if kind in (ALL_REDUCE_MAX, ALL_REDUCE_SUM):
            recv.copy_(send)
            self.wire_bytes += 2 * one // world
            op = dist.ReduceOp.MAX if kind == ALL_REDUCE_MAX else dist.ReduceOp.SUM
            return dist.all_reduce(recv, op, group=self.group, async_op=True)
        if self.bucket.root is not None and self.next + 2 == len(self.bucket.stages):
            return self._gather(send, recv)
        if kind == ALL_GATHER:
            self.wire_bytes += one
            return dist.all_gather_into_tensor(recv, send, group=self.group, async_op=True)
        self.wire_bytes += one // world
        if kind == ALL_TO_ALL:
            return dist.all_to_all_single(recv, send, group=self.group, async_op=True)
        return dist.reduce_scatter_tensor(recv, send, group=self.group, async_op=True)

    def _gather(self, send, recv):
        """What ALL_GATHER would give every rank, for the root alone."""
        root, received = dist.get_global_rank(self.group, self.bucket.root), None
        if self.bucket.root == self.rank:
            received = list(recv.chunk(self.world))
        else:
            self.wire_bytes += send.nbytes
        return dist.gather(send, received, dst=root, group=self.group, async_op=True)

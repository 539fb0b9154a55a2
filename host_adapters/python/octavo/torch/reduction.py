"""Gradients that live in slots, averaged over the ranks of torch.distributed by the backend's own
stages: octavo.gradients/1.

Every rank runs the same collectives in the same order, whatever order its gradients arrive in:
buckets begin strictly one after the other, and a bucket's next collective begins when a later
bucket does, or at the end of the backward pass.
"""
import weakref

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import StateError
from .bucket import Bucket, Flight
from .gradient import SlotGradient, begin

BUCKET_BYTES = 25 << 20  # of gradients as float32, as torch's own default


class Reducer:
    """All slot gradients of one session. One thread, and torch's backward threads in between.

    The first backward pass reduces at its end, counts how often each gradient is added to, and cuts
    the buckets anew in rank 0's order of gradients; from the second on, a bucket begins as soon as
    its last gradient was added, while backward goes on.
    """

    def __init__(self, session, group=None, bucket_bytes=BUCKET_BYTES, overlap=True):
        self._session, self.group, self.overlap = weakref.ref(session), group, overlap
        self.wrapper = None       # weak reference to the DistributedDataParallel, if it was named
        self.wire_bytes = 0
        self.early = 0            # buckets that began during a backward pass
        self.pending = False      # gradients were added that are not reduced yet
        self.compiled = False     # those of compiled graphs are reduced
        self.filled = set()       # weights whose gradient only other ranks have
        self._flights, self._begun = [], 0
        self._seen, self._expected = {}, None
        self._queued = False
        self._bucket_bytes = bucket_bytes
        self._cut(reversed(slot_gradients(session)))

    @property
    def session(self):
        return self._session()

    def has_work(self):
        """Whether this rank has gradients that are not reduced, of compiled graphs included."""
        return self.pending or (not self.compiled and
                                any(w.compiled for w in slot_gradients(self.session)))

    def _cut(self, weights):
        """Makes the buckets, in this order of gradients; the same on every rank."""
        parts, size = [], 0
        for w in weights:
            add = 4 * w.shape[0] * w.shape[1]
            if not parts or size + add > self._bucket_bytes:
                parts, size = parts + [[]], 0
            parts[-1].append(w)
            size += add
        world = dist.get_world_size(self.group)
        self.buckets = [Bucket(self.session, part, world) for part in parts]
        self._bucket_of = {w.id: i for i, b in enumerate(self.buckets) for w in b.weights}

    def _is_synchronizing(self):
        wrapper = self.wrapper() if self.wrapper is not None else None
        return wrapper is None or wrapper.require_backward_grad_sync

    def produced(self, weight):
        """linear's backward has added to this weight's gradient."""
        self.pending = True
        self.filled.discard(weight.id)
        if not self._is_synchronizing():
            return
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        self._seen[weight.id] = self._seen.pop(weight.id, 0) + 1  # in order of the last addition
        if self._bucket_of[weight.id] < self._begun:
            raise StateError(
                f"{weight.name}: expected {self._expected.get(weight.id, 0)} contributions to its "
                "gradient in a backward pass, as in the first one, found more; this model's use of "
                "its layers changes from step to step: call octavo.torch.ddp.join(model, "
                "overlap=False)")
        if self.overlap and self._expected is not None:
            while self._begun < len(self.buckets) and self._is_ready(self.buckets[self._begun]):
                self.early += 1
                self._begin_next()

    def _is_ready(self, bucket):
        return all(0 < self._expected.get(i, 0) <= self._seen.get(i, 0) for i in bucket.ids)

    def _begin_next(self):
        self._flights = [f for f in self._flights if self._step(f)]
        bucket = self.buckets[self._begun]
        self._begun += 1
        self._fill(bucket)
        flight = Flight(bucket, self.session, self.group)
        flight.advance()
        self._flights.append(flight)

    def _step(self, flight):
        if flight.advance():
            return True
        self.wire_bytes += flight.wire_bytes
        return False

    def _fill(self, bucket):
        """Zeros where this rank has no gradient."""
        for w in bucket.weights:
            p = w.parameter
            if not w.compiled and (not isinstance(p.grad, SlotGradient)
                                   or w.id not in p.grad.begun):
                self.filled.add(w.id)
                begin(self.session, w)
                self.session.clear_gradient(w)

    def _end_of_backward(self):
        seen = self._seen
        self.finish()
        if self._expected is None:
            self._expected = seen
            self._cut_as_seen(list(seen))

    def _cut_as_seen(self, order):
        """Cuts by rank 0's order; what it did not use comes last."""
        order += [w.id for b in self.buckets for w in b.weights if w.id not in self._expected]
        ids = torch.tensor(order)
        root = dist.get_global_rank(self.group, 0) if self.group is not None else 0
        dist.broadcast(ids, root, group=self.group)
        self._cut([self.session.weights[i] for i in ids.tolist()])

    def finish(self):
        """Reduces what is left, and waits. Every rank calls it, or none."""
        try:
            while self._begun < len(self.buckets):
                self._begin_next()
            while self._flights:
                self._flights = [f for f in self._flights if self._step(f)]
        finally:
            self._flights, self._begun, self._seen = [], 0, {}
            self._queued = self.pending = False
            self.compiled = True

    def drop_unused(self, used):
        """used: {weight id: some rank has a gradient}. Others get None again."""
        for w in slot_gradients(self.session):
            if w.id in self.filled and not any(used[x.id]
                                               for x in self.session.weights_of(w.parameter)):
                w.parameter.grad = None
        self.filled.clear()


def slot_gradients(session):
    """The weights whose gradient lies in slots, by id."""
    owners = {s.owner for s in session.slots
              if s.role == _abi.ROLE_GRADIENT and s.owner_kind == _abi.OWNER_PARAMETER
              and not s.flags & _abi.SLOT_NATIVE}
    return [w for w in session.weights if w.id in owners]

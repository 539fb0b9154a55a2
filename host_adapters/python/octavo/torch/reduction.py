"""Averages gradients in slots over the ranks, in the stages of octavo.gradients/1.

Every rank runs the same collectives in the same order, regardless of the order in which its
gradients arrive. Buckets start strictly one after the other. The next collective of a bucket starts
when a later bucket does, or at the end of the backward pass.
"""
import weakref

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import StateError
from .bucket import Bucket, Flight
from .collective import collective
from .gradient import absorb, began, begin
from .groups import wrapper_of

BUCKET_BYTES = 25 << 20  # size as float32 gradients; torch's default


class Reducer:
    """Reduces the gradients in slots of one session. Used from one thread and from torch's backward
    threads in between.

    The first backward pass reduces at its end, counts how often each gradient is added to, and
    forms the buckets again in the order of rank 0's gradients. From the second pass on, a bucket
    starts as soon as its last gradient was added, while backward continues.
    """

    def __init__(self, session, group, start, bucket_bytes=BUCKET_BYTES, overlap=True):
        self._start = start  # called before the first collective: what the ranks must agree on
        self._session, self.group, self.overlap = weakref.ref(session), group, overlap
        self.wire_bytes = 0
        self.early = 0            # buckets that started during a backward pass
        self.pending = False      # gradients were added and are not reduced yet
        self.compiled = False     # gradients of compiled graphs are reduced
        self.filled = set()       # weights for which only other ranks have a gradient
        self._flights, self._begun = [], 0
        self._seen, self._expected = {}, None
        self._queued = False
        self._bucket_bytes = bucket_bytes
        self._cut(reversed(slot_gradients(session)))

    @property
    def session(self):
        return self._session()

    def has_work(self):
        """Whether this rank has gradients that are not reduced, including gradients of compiled
        graphs."""
        return self.pending or (not self.compiled and
                                any(self.session.has_graph_gradient(w)
                                    for w in slot_gradients(self.session)))

    def _cut(self, weights):
        """Forms the buckets in this order of gradients, which is the same on every rank."""
        world, owned = dist.get_world_size(self.group), self._owned()
        parts, last, sizes, ends = [], {}, {}, []  # last, sizes: of the bucket of each owner that takes more
        limit = self._bucket_bytes // (1 if owned is None else world)  # as many bytes in flight
        for at, w in enumerate(weights):
            root, add = None if owned is None else owned.root(w), 4 * w.shape[0] * w.shape[1]
            if root not in last or sizes[root] + add > limit:
                last[root], sizes[root] = len(parts), 0
                parts.append((root, []))
                ends.append(at)
            parts[last[root]][1].append(w)
            ends[last[root]] = at
            sizes[root] += add
        order = sorted(range(len(parts)), key=ends.__getitem__)  # in which backward completes them
        self.buckets = [Bucket(self.session, parts[i][1], world, parts[i][0]) for i in order]
        self._bucket_of = {w.id: i for i, b in enumerate(self.buckets) for w in b.weights}

    def _owned(self):
        """owned_gradients.OwnedGradients; None where every rank steps every parameter."""
        return None if self.session.owners is None else self.session.owners.gradients

    def _is_synchronizing(self):
        wrapper = wrapper_of(self.session)
        return wrapper is None or wrapper.require_backward_grad_sync

    def produced(self, weight):
        """The backward of linear has added to the gradient of this weight."""
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
                "gradient in a backward pass, as in the first one, found more; the model uses its "
                "layers differently from step to step: call octavo.torch.ddp.join(model, "
                "overlap=False)")
        if self.overlap and self._expected is not None:
            while self._begun < len(self.buckets) and self._is_ready(self.buckets[self._begun]):
                self.early += 1
                self._begin_next()

    def _is_ready(self, bucket):
        return all(0 < self._expected.get(i, 0) <= self._seen.get(i, 0) for i in bucket.ids)

    def _begin_next(self):
        self._flights = [f for f in self._flights if self._step(f)]
        if self._start is not None:
            self._start(self.session, self.group)
            self._start = None
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
        """Sets the gradients that this rank does not have to zero."""
        for w in bucket.weights:
            p = w.parameter
            gradient = absorb(self.session, p)
            if not self.session.has_graph_gradient(w) and (
                    gradient is None or w.id not in gradient.begun):
                self.filled.add(w.id)
                begin(self.session, w)
                self.session.clear_gradient(w)
                began(w)
        owned = self._owned()
        if owned is not None:  # what no backward has reached since the last reduction counts again
            self.session.owners.spread(self.session, bucket.weights)

    def _end_of_backward(self):
        seen = self._seen
        self.finish()
        if self._expected is None:
            self._expected = seen
            self._cut_as_seen(list(seen))

    def _cut_as_seen(self, order):
        """Forms the buckets in rank 0's order; gradients that it did not use come last."""
        order += [w.id for b in self.buckets for w in b.weights if w.id not in self._expected]
        ids = torch.tensor(order, device=self.session.device)
        root = dist.get_global_rank(self.group, 0)
        collective(self.session, "broadcast of the order of gradients", dist.broadcast, ids, root,
                   group=self.group)
        self._cut([self.session.weights[i] for i in ids.tolist()])

    def finish(self):
        """Reduces all remaining gradients and waits. Call it on every rank or on none."""
        try:
            while self._begun < len(self.buckets):
                self._begin_next()
            while self._flights:
                self._flights = [f for f in self._flights if self._step(f)]
            owned = self._owned()
            if owned is not None:
                owned.note(self.session, [w for b in self.buckets if b.root is not None for w in b.weights], self.group)
        finally:
            self._flights, self._begun, self._seen = [], 0, {}
            self._queued = self.pending = False
            self.compiled = True

    def drop_unused(self, used):
        """Resets gradients that no rank has to None. used: {weight id: whether a rank has it}."""
        for w in slot_gradients(self.session):
            if w.id in self.filled and not any(used[x.id]
                                               for x in self.session.weights_of(w.parameter)):
                w.parameter.grad = None
        self.filled.clear()


def slot_gradients(session):
    """The weights whose gradient is in slots, ordered by id."""
    owners = {s.owner for s in session.slots
              if s.role == _abi.ROLE_GRADIENT and s.owner_kind == _abi.OWNER_PARAMETER
              and not s.flags & _abi.SLOT_NATIVE}
    return [w for w in session.weights if w.id in owners]

"""Training on several ranks: DistributedDataParallel and the frameworks that use it.

te needs no special treatment, because its gradients are torch's own. Gradients of msamp are in
slots, where DDP does not see them: a DDP that is made around their parameters ignores these, whatever
modules are in between, and the gradients are averaged in FP8 in each backward pass. In both cases,
maxima and counts of all ranks are combined before each optimizer step, so that every rank derives the
same scales.
"""
import ctypes
import weakref

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_module_registration_hook

from ... import _abi, stages
from ...errors import InvalidError, StateError
from ...stages import ALL_GATHER, ALL_REDUCE_MAX, ALL_REDUCE_SUM, ALL_TO_ALL, NONE
from .. import ops
from ..models import open_sessions, session_of
from ..weights.gradient import absorb, began, begin
from .groups import collective, compare_ranks, group_of, is_distributed, note_wrapper, own_group, wrapper_of
from .owners import OwnedGradients


# One bucket of gradients in slots: its plan, and the collectives between its stages.


def plan_stages(number, ids, world):
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
    """Parameters that are reduced together. root: the only rank of the group that needs their mean, or None."""

    def __init__(self, session, weights, world, root=None):
        self.weights = weights
        self.ids = [w.id for w in weights]
        self.stages, self.buffer_bytes, self.state_bytes = plan_stages(session.number, self.ids, world)
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
        """The result of ALL_GATHER, only for the root."""
        root, received = dist.get_global_rank(self.group, self.bucket.root), None
        if self.bucket.root == self.rank:
            received = list(recv.chunk(self.world))
        else:
            self.wire_bytes += send.nbytes
        return dist.gather(send, received, dst=root, group=self.group, async_op=True)


# Averages gradients in slots over the ranks, in the stages of octavo.gradients/1.
#
# Every rank runs the same collectives in the same order, regardless of the order in which its
# gradients arrive. Buckets start strictly one after the other. The next collective of a bucket starts
# when a later bucket does, or at the end of the backward pass.

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


_reducers = weakref.WeakKeyDictionary()  # session -> Reducer
_checked = weakref.WeakSet()             # sessions whose ranks were compared


def ignored_names(model, session):
    """Names of the parameters that DDP must ignore, because value or gradient is in slots."""
    mine = {id(w.parameter) for w in slot_gradients(session)}
    mine.update(id(w.parameter) for w in session.weights if not w.is_native)
    return [n for n, p in model.named_parameters(remove_duplicate=False) if id(p) in mine]


def join(model, group=None, bucket_bytes=BUCKET_BYTES, overlap=True):
    """Broadcasts the slots of rank 0, as DDP does with parameters, and lets ddp.no_sync() postpone
    the reduction of slots as well. Optional; call it on every rank, once, after
    DistributedDataParallel(model). With shard_optimizer_state the slots must be equal already: else StateError.

    group: the process group. bucket_bytes: the size of the float32 gradients that are reduced
    together. overlap=False: reduce only at the end of backward, for models whose use of layers
    changes from step to step. Returns model. Raises StateError for a model that was not prepared,
    and InvalidError for bucket_bytes below 1.
    """
    session = session_of(model)
    if not is_distributed(group):
        return model
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        note_wrapper(session, model)
    session.group = group if group is not None else group_of(session) or dist.group.WORLD
    group = session.group
    if bucket_bytes < 1:
        raise InvalidError(f"bucket_bytes: expected 1 or more, found {bucket_bytes}")
    if session.owners is not None:
        session.owners.check_group(group)
        session.owners.check_wrapper(wrapper_of(session))
    compare_ranks(session, group, with_values=session.owners is not None)
    if session.owners is None:  # else rank 0 has not all of them, and the ranks began with the same
        root = dist.get_global_rank(group, 0)
        for slot, tensor in zip(session.slots, session.tensors):
            if tensor is not None and slot.flags & _abi.SLOT_CHECKPOINT and tensor.numel():
                collective(session, f"broadcast of slot {slot.name}", dist.broadcast, tensor.view(torch.uint8), root,
                           group=group)
        session.slots_changed()
    _checked.add(session)
    if slot_gradients(session):
        _reducers[session] = Reducer(session, _of_reducer(session), _start, bucket_bytes, overlap)
    return model


def _of_reducer(session):
    """The group of a Reducer: a separate one, unless the user named other ranks since."""
    own, ranks = session.reduction_group, dist.get_process_group_ranks
    return own if own is not None and ranks(own) == ranks(session.group) else session.group


def reducer_of(session):
    """The Reducer of a session, created on first use. None with one rank, and without gradients in
    slots."""
    if session not in _reducers:
        if group_of(session) is None or not slot_gradients(session):
            return None
        _reducers[session] = Reducer(session, _of_reducer(session), _start)
    return _reducers[session]


def produced(session, weight):
    """The backward of linear calls this after it added to a gradient in a slot. Eager code only."""
    reducer = reducer_of(session)
    if reducer is not None:
        reducer.produced(weight)


def reduce_gradients(session):
    """Averages all gradients in slots over the ranks and waits for the result. Call it on every
    rank or on none."""
    reducer = reducer_of(session)
    if reducer is not None:
        reducer.finish()


def before_clip(session):
    """Reduces gradients of compiled graphs, which no end of a backward pass reduces. Call it on
    every rank before computing a norm."""
    reducer = reducer_of(session)
    if reducer is not None and reducer.has_work():
        reducer.finish()


def _combine(session, tensors, op, group):
    """Combines these float32 tensors in place with a single all-reduce."""
    if not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    what = "maxima" if op == dist.ReduceOp.MAX else "counts"
    collective(session, f"all_reduce of {what}", dist.all_reduce, flat, op, group=group)
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
        tensor.copy_(part.view_as(tensor))


def _slots(session, combine):
    return [t for s, t in session.reduced if s.combine == combine]


def reduce_slots(session):
    """Combines every slot with OCTAVO_SLOT_REDUCE over the ranks: one all-reduce for the maxima and
    one for the sums. Does nothing without a group, and with options that reduce nothing."""
    if not session.reduced:
        return
    group = group_of(session)
    if group is not None:
        _start(session, group)
        _combine(session, _slots(session, _abi.COMBINE_MAX), dist.ReduceOp.MAX, group)
        _combine(session, _slots(session, _abi.COMBINE_SUM), dist.ReduceOp.SUM, group)


def _start(session, group):
    """Before the first collective: the ranks must agree. Raises StateError on every rank if not."""
    wrapper = wrapper_of(session)
    if wrapper is not None and wrapper._join_config.enable:
        raise StateError(
            "DistributedDataParallel.join: expected ranks that make the same steps, because their "
            "scales are combined in each one, found join(); set fp8.te.reduce_amax = false, or give "
            "every rank the same number of batches")
    if session not in _checked:
        if session.owners is not None:
            session.owners.check_wrapper(wrapper)
        compare_ranks(session, group)
        _checked.add(session)


def before_step(session, absorbed=()):
    """Reduces gradients that no backward pass has reduced, then the slots. Call it on every rank
    before optimizer.step reads gradients or `nonfinite`. absorbed: Weights whose gradient came to
    its slot after the backward pass. Raises StateError if the ranks started with different
    weights."""
    reducer = reducer_of(session)
    if reducer is None:
        return reduce_slots(session)
    group = reducer.group
    _start(session, group)
    for w in absorbed:
        reducer.pending = True
        reducer.filled.discard(w.id)
    weights = slot_gradients(session)
    flags = torch.tensor([float(reducer.has_work()),
                          *(float(w.id not in reducer.filled) for w in weights)],
                         device=session.device)
    _combine(session, [*_slots(session, _abi.COMBINE_MAX), flags], dist.ReduceOp.MAX, group)
    flags = flags.tolist()
    if flags[0] > 0:
        reducer.finish()
    reducer.compiled = False
    reducer.drop_unused({w.id: flags[1 + i] > 0 for i, w in enumerate(weights)})
    _combine(session, _slots(session, _abi.COMBINE_SUM), dist.ReduceOp.SUM, group)


# A DistributedDataParallel that is made around a prepared model, or around anything that contains its parameters: what it
# leaves to octavo, and which one a session is in.


def _made_around(wrapper, name, module):
    """Of every module that becomes a part of another: if it is DDP's, these are the parameters that DDP will take."""
    if name != "module" or not isinstance(wrapper, torch.nn.parallel.DistributedDataParallel):
        return
    own = {id(p) for p in module.parameters()}
    for session in sorted(open_sessions(), key=lambda s: s.number):  # alike on every rank
        if not any(id(w.parameter) in own for w in session.weights):
            continue
        note_wrapper(session, wrapper)
        names = ignored_names(module, session)
        if names and not any(p.requires_grad and n not in names for n, p in module.named_parameters()):
            raise StateError("DistributedDataParallel: expected a parameter that backend "
                             f"{session.run.backend} leaves in the model, found none; leave it out, and name the ranks "
                             "in octavo.prepare(group=)")
        # DDP names a parameter of the module itself with a dot in front.
        wrapper.parameters_to_ignore.update(names, ("." + n for n in names if "." not in n))
        group = session.group or wrapper.process_group
        if names and dist.get_world_size(group) > 1:
            session.reduction_group = own_group(group, session.device)


register_module_module_registration_hook(_made_around)

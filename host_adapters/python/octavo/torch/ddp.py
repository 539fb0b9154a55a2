"""Training on several ranks: DistributedDataParallel and the frameworks that use it.

te needs no special treatment, because its gradients are torch's own. Gradients of msamp are in
slots, where DDP does not see them: a DDP that is made around their parameters ignores these, whatever
modules are in between, and the gradients are averaged in FP8 in each backward pass. In both cases,
maxima and counts of all ranks are combined before each optimizer step, so that every rank derives the
same scales.
"""
import weakref

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import InvalidError, StateError
from . import digest
from .collective import collective
from .groups import group_of, is_distributed, note_wrapper, wrapper_of
from .prepared import session_of
from .reduction import BUCKET_BYTES, Reducer, slot_gradients

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
    digest.compare(session, group, with_values=session.owners is not None)
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
    """The group of a Reducer: one of its own, unless the user named other ranks since."""
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
        digest.compare(session, group)
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

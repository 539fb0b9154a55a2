"""Training on several ranks: DistributedDataParallel and the frameworks that use it.

te needs no special treatment, because its gradients are torch's own. Gradients of msamp are in
slots, where DDP does not see them: octavo.prepare puts their parameters on DDP's ignore list, and
the gradients are averaged in FP8 at the end of each backward pass. In both cases, maxima and counts
of all ranks are combined before each optimizer step, so that every rank derives the same scales.
"""
import ctypes
import weakref
import zlib

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import InvalidError, StateError
from .prepared import session_of
from .reduction import BUCKET_BYTES, Reducer, slot_gradients

_reducers = weakref.WeakKeyDictionary()  # session -> Reducer
_checked = weakref.WeakSet()             # sessions whose ranks were compared


def is_distributed(group=None):
    """Whether torch.distributed runs with more than one rank."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def ignored_names(model, session):
    """Names of the parameters that DDP must ignore, because value or gradient is in slots."""
    mine = {id(w.parameter) for w in slot_gradients(session)}
    mine.update(id(w.parameter) for w in session.weights if not w.is_native)
    return [n for n, p in model.named_parameters(remove_duplicate=False) if id(p) in mine]


def ignore_slots(model, session):
    """Adds these parameters to the model's ignore list, which DDP reads when it wraps the model.
    Returns their names."""
    names = ignored_names(model, session)
    if names:
        kept = [n for n in getattr(model, "_ddp_params_and_buffers_to_ignore", ())
                if n not in names]
        wrapper = torch.nn.parallel.DistributedDataParallel
        wrapper._set_params_and_buffers_to_ignore_for_model(model, kept + names)
    return names


def join(model, group=None, bucket_bytes=BUCKET_BYTES, overlap=True):
    """Broadcasts the slots of rank 0, as DDP does with parameters, and lets ddp.no_sync() postpone
    the reduction of slots as well. Optional; call it on every rank, once, after
    DistributedDataParallel(model).

    group: the process group. bucket_bytes: the size of the float32 gradients that are reduced
    together. overlap=False: reduce only at the end of backward, for models whose use of layers
    changes from step to step. Returns model. Raises StateError for a model that was not prepared,
    and InvalidError for bucket_bytes below 1.
    """
    session = session_of(model)
    if not is_distributed(group):
        return model
    if bucket_bytes < 1:
        raise InvalidError(f"bucket_bytes: expected 1 or more, found {bucket_bytes}")
    root = dist.get_global_rank(group, 0) if group is not None else 0
    for slot, tensor in zip(session.slots, session.tensors):
        if tensor is not None and slot.flags & _abi.SLOT_CHECKPOINT and tensor.numel():
            dist.broadcast(tensor.view(torch.uint8), root, group=group)
    session.quantize_all()
    if slot_gradients(session):
        reducer = _reducers[session] = Reducer(session, group, bucket_bytes, overlap)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            reducer.wrapper = weakref.ref(model)
    return model


def reducer_of(session):
    """The Reducer of a session, created on first use. None with one rank, and without gradients in
    slots."""
    if session not in _reducers:
        if not is_distributed() or not slot_gradients(session):
            return None
        _reducers[session] = Reducer(session)
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


def _fingerprint(session):
    """A 24-bit checksum of the slots that must be equal on every rank before the first step."""
    value = 0
    for slot, tensor in zip(session.slots, session.tensors):
        if tensor is not None and slot.flags & _abi.SLOT_CHECKPOINT and tensor.numel():
            memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
            value = zlib.crc32(memory, value)
    return float(value & 0xFFFFFF)


def _combine(tensors, op, group):
    """Combines these float32 tensors in place with a single all-reduce."""
    if not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat, op, group=group)
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
        tensor.copy_(part.view_as(tensor))


def _slots(session, combine):
    return [t for s, t in session.reduced if s.combine == combine]


def reduce_slots(session, group=None):
    """Combines every slot with OCTAVO_SLOT_REDUCE over the ranks: one all-reduce for the maxima and
    one for the sums. Does nothing with one rank."""
    if is_distributed(group):
        _combine(_slots(session, _abi.COMBINE_MAX), dist.ReduceOp.MAX, group)
        _combine(_slots(session, _abi.COMBINE_SUM), dist.ReduceOp.SUM, group)


def before_step(session):
    """Reduces gradients that no backward pass has reduced, then the slots. Call it on every rank
    before optimizer.step reads gradients or `nonfinite`. Raises StateError if the ranks started
    with different weights."""
    if not is_distributed():
        return
    reducer = reducer_of(session)
    group = reducer.group if reducer is not None else None
    weights = slot_gradients(session)
    print_of = [] if session in _checked else [_fingerprint(session)]
    filled = reducer.filled if reducer is not None else ()
    pending = reducer is not None and reducer.has_work()
    flags = torch.tensor([float(pending), *(float(w.id not in filled) for w in weights),
                          *print_of, *(-p for p in print_of)])
    _combine([*_slots(session, _abi.COMBINE_MAX), flags], dist.ReduceOp.MAX, group)
    if print_of and flags[-2] != -flags[-1]:
        raise StateError(
            "the ranks: expected equal weights in slots on every rank before the first step, found "
            "different ones; use the same seed on every rank before creating the model, or call "
            "octavo.torch.ddp.join(model) after wrapping it")
    _checked.add(session)
    if reducer is not None:
        if flags[0] > 0:
            reducer.finish()
        reducer.compiled = False
        reducer.drop_unused({w.id: bool(flags[1 + i] > 0) for i, w in enumerate(weights)})
    _combine(_slots(session, _abi.COMBINE_SUM), dist.ReduceOp.SUM, group)

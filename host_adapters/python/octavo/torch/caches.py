"""Memory of slots, above all of weight caches, that comes and goes. A weight that FSDP shards has codes only while it is
gathered: between its passes they take no bytes, as the whole weight takes none."""
from .. import _abi
from .slots import CODES


def is_cache(slot):
    """Whether quantizing a weight writes the slot from scratch, so that it can be made again."""
    return (slot.owner_kind == _abi.OWNER_PARAMETER
            and slot.access[_abi.VERB_QUANTIZE_WEIGHT] == _abi.ACCESS_WRITE
            and not slot.flags & (_abi.SLOT_NATIVE | _abi.SLOT_CHECKPOINT))


def waits(session, slot):
    """Whether it is for codes of a weight that is sharded, or without memory (meta)."""
    return is_cache(slot) and session.weights[slot.owner].is_elsewhere


def by_weight(slots):
    """The caches of each Weight: {its id: [slot]}."""
    found = {}
    for s in slots:
        if is_cache(s):
            found.setdefault(s.owner, []).append(s)
    return found


def release(session, weights):
    """Frees the codes of these Weights. No forward may need them before hold."""
    for w in weights:
        session.flags.set(w.id, CODES)
    release_slots(session, [s for w in weights for s in session.caches.get(w.id, ())])


def release_slots(session, slots):
    """Frees the memory of these slots. No verb may need them before hold_slots."""
    for s in slots:
        session.tensors[s.id].untyped_storage().resize_(0)


def hold(session, weights):
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


def are_released(session, weights):
    """Whether codes of these Weights have no memory."""
    return any(is_released(session.tensors[s.id]) for w in weights
               for s in session.caches.get(w.id, ()))


def is_released(tensor):
    """Whether the memory of a slot is gone for now."""
    return tensor.untyped_storage().nbytes() == 0 and tensor.numel() > 0

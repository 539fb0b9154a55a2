"""FP8 state as plain tensors."""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

import torch

from ... import _abi
from ...errors import InvalidError, UnsupportedError, VersionError
from .. import ops
from ..models import session_of
from ..ranks.groups import is_initialized
from ..slots import is_released


# Hashes of a state dict: a flipped bit is refused by the name of its tensor.

METADATA = "octavo.metadata"
HASH = "octavo.blake2b"  # of the metadata; in a state of schema 2, with a key behind it, also of a tensor
SINGLE = "octavo.xxh3_128/"
SINGLES = (SINGLE, HASH + "/")  # of schemas 3 and 2


def _bytes(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def hash_of(tensor):
    """XXH3 with 128 bits of the bytes of a tensor, as the library's own checkpoints have it: as fast as memory."""
    return ops.xxh3(_bytes(tensor))


def blake2b(tensor):
    """The same by BLAKE2b with 256 bits: of metadata, and of tensors in states of schema 2."""
    return hashlib.blake2b(_bytes(tensor).numpy(), digest_size=32).hexdigest()


# Schema of a state -> the field with the hashes of its tensors, and the hash.
BY_SCHEMA = {2: ("blake2b", blake2b), 3: ("xxh3_128", hash_of)}


def hashes_of(tensors, function=hash_of):
    """{key: hash} of {key: tensor}. On this thread: Python starts no other one in a program that ends, and none from a
    signal handler that waits for itself."""
    return {key: function(tensor) for key, tensor in tensors.items()}


def single_key(key):
    """The entry that holds the hash of one tensor, where the metadata does not."""
    return SINGLE + key


def single_of(state):
    """{key: hash} of the tensors of a state whose hashes are separate entries."""
    return {key.partition("/")[2]: bytes(_bytes(value).numpy()).hex() for key, value in state.items()
            if key.startswith(SINGLES)}


def seal(text):
    """The entries of a state that hold its metadata and the hash of it."""
    metadata = torch.frombuffer(bytearray(text), dtype=torch.uint8).clone()
    return {METADATA: metadata,
            HASH: torch.frombuffer(bytearray(bytes.fromhex(blake2b(metadata))), dtype=torch.uint8).clone()}


def expect_tensors(state):
    """Raises InvalidError, by its key, for an entry that is not a tensor with memory."""
    if not isinstance(state, Mapping):
        raise InvalidError(f"the state: expected a dict of tensors, found {type(state).__name__}; load the result of "
                           "octavo.state_dict")
    for key, value in state.items():
        if not isinstance(key, str):
            raise InvalidError(f"the state: expected texts as keys, found {key!r}; load the result of octavo.state_dict")
        if not isinstance(value, torch.Tensor):
            raise InvalidError(f"{key}: expected a tensor, found {type(value).__name__}; load the result of "
                               "octavo.state_dict")
        if value.is_meta or value.layout != torch.strided:
            raise InvalidError(f"{key}: expected a dense tensor with its memory, found one of {value.layout} on "
                               f"{value.device}; load the result of octavo.state_dict")


def read_metadata(state):
    """The fields of the metadata, of their types. Raises InvalidError for one without, and for damage, and
    VersionError for another schema."""
    text = metadata_bytes(state)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidError(f"{METADATA}: expected the JSON of octavo.state_dict, found another text ({e}); load another "
                           "checkpoint") from e
    if not isinstance(found, dict):
        raise InvalidError(f"{METADATA}: expected an object, found {type(found).__name__}; load another checkpoint")
    schema = found.get("schema")
    if type(schema) is not int or schema not in BY_SCHEMA:
        raise VersionError(f"the state: expected schema {' or '.join(map(str, BY_SCHEMA))}, found {schema!r}; load it with "
                           "the version of octavo that wrote it")
    found.setdefault("layer_options", {})  # of a state from before there were any
    for field in ("options", "layer_options", "labels", BY_SCHEMA[schema][0]):
        if not isinstance(found.get(field), dict):
            raise InvalidError(f"{METADATA}: expected {field!r} as an object, found {found.get(field)!r}; load another "
                               "checkpoint")
    for key, labels in found["labels"].items():
        if not isinstance(labels, list):
            raise InvalidError(f"{METADATA}: expected the labels of {key!r} as a list, found {labels!r}; load another "
                               "checkpoint")
    return found


def metadata_bytes(state):
    """The bytes of the metadata of a state. Raises InvalidError for one without, and for damage."""
    if METADATA not in state:
        raise InvalidError(f"the state: expected the entry {METADATA!r}, found none; load "
                           "the result of octavo.state_dict")
    if HASH not in state:
        raise VersionError(f"the state: expected the entry {HASH!r}, found none: nothing could tell whether "
                           "it is whole; load it with the version of octavo that wrote it")
    _compare(METADATA, bytes(_bytes(state[HASH]).numpy()).hex(), blake2b(state[METADATA]), "BLAKE2b")
    return bytes(_bytes(state[METADATA]).numpy())


def check_hashes(saved, tensors, function):
    """Raises InvalidError unless {key: hash} fits {key: tensor}, and names the first key that differs."""
    found = hashes_of(tensors, function)
    for key in sorted(tensors):
        _compare(key, saved.get(key), found[key], "BLAKE2b" if function is blake2b else "XXH3")


def _compare(key, saved, found, name):
    if saved != found:
        raise InvalidError(f"{key}: expected the bytes with {name} {str(saved)[:16]}, as saved, found "
                           f"{found[:16]}: the state is damaged or mixed from two; load another checkpoint")


SCHEMA = 3  # BY_SCHEMA has those that load
_FP8 = {_abi.E4M3FN: torch.float8_e4m3fn, _abi.E5M2: torch.float8_e5m2,
        _abi.E8M0FNU: torch.float8_e8m0fnu}


def _keys(session):
    """The slots of a checkpoint (docs/checkpoints.md): {key: slot}, also those that another rank holds."""
    return {slot.key: slot for slot in session.slots
            if slot.flags & _abi.SLOT_CHECKPOINT and session.tensors[slot.id] is not None}


def _held(session):
    """The slots in a state that this rank holds, by key."""
    return {key: slot for key, slot in _keys(session).items() if not is_released(session.tensors[slot.id])}


def _copies(session, keys):
    """{key: a copy}, with FP8 codes in torch's FP8 dtypes."""
    out = {}
    for key, slot in keys.items():
        copy = session.tensors[slot.id].clone()
        out[key] = copy.view(_FP8[slot.dtype]) if slot.dtype in _FP8 else copy
    return out


def _ranks():
    return torch.distributed.get_world_size() if is_initialized() else 1


def _metadata(session, keys):
    return {"schema": SCHEMA, "backend": session.run.backend, "options": session.run.options(),
            "layer_options": session.run.layer_options(), "ranks": _ranks(),
            "labels": {key: list(slot.labels) for key, slot in keys.items() if slot.labels}}


def state_dict(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The FP8 state of a model, to be saved in addition to its own state dict. Call it between steps.

    Args:
        model: A prepared model.

    Returns:
        {key: tensor}: copies of every checkpoint slot, with FP8 codes in torch's FP8 dtypes, a uint8 tensor of JSON with the
        backend, its options, the objects of pooled columns and the hash of each tensor, and a uint8 tensor with the hash of that
        JSON. torch.load(weights_only=True) and safetensors take it. Of a sharded optimizer state it has what this rank holds,
        and inside of octavo.full_state all.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> torch.save({"model": model.state_dict(), "octavo": octavo.state_dict(model)}, path)
    """
    session = session_of(model)
    session.settle_all()
    keys = _held(session)
    out = _copies(session, keys)
    metadata = {**_metadata(session, keys), "xxh3_128": hashes_of(out)}
    if not session.holds_all():
        metadata["rank"] = session.owners.label()
    return {**out, **_sealed(metadata)}


def _sealed(metadata):
    return seal(json.dumps(metadata, sort_keys=True).encode())


def _columns(key, slot, labels):
    """The index of each column of this model in the saved pool; None if the slot is not pooled."""
    if not slot.labels:
        return None
    saved = labels.get(key, [])
    missing = [name for name in slot.labels if name not in saved]
    if missing or len(saved) != len(slot.labels):
        absent = f" without {', '.join(missing[:4])}" if missing else ""
        raise InvalidError(f"{key}: expected columns for {len(slot.labels)} layers of this model, found "
                           f"{len(saved)}{absent}; load a checkpoint of this model")
    return [saved.index(name) for name in slot.labels]


def load_state_dict(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Restores the result of state_dict: the next step is bit-identical to the next step of the model that was saved.

    Load the model's own state dict first. On another number of ranks the first casts take their own amax, since a rank's part of
    the batch has another size.

    Args:
        model: The same model, prepared with the same backend and options; pooled columns are matched by layer name.
        state: The result of state_dict. With a sharded optimizer state: this rank's, or a whole one; this rank uses its part.

    Raises:
        InvalidError: Another state, or a damaged one, by the name of the tensor; no slot changes then.
        VersionError: A state of another schema; no slot changes then.
        StateError: The model was not prepared.

    Example:
        >>> octavo.load_state_dict(model, torch.load(path)["octavo"])
    """
    session = session_of(model)
    every, keys = _keys(session), _held(session)
    expect_tensors(state)
    found, here = read_metadata(state), _metadata(session, keys)
    for what in ("backend", "options", "layer_options"):
        if found.get(what) != here[what]:
            difference = _difference(found.get(what), here[what])
            raise InvalidError(f"the state: expected {what} as in this session, {difference[1]}, found "
                               f"{difference[0]}; load it with the configuration of the save, or start the FP8 state "
                               'anew by fp8_state="anew" of the framework\'s part, by leaving this call out otherwise')
    missing = sorted(set(keys) - set(state))
    single = single_of(state)
    unknown = sorted(set(state) - set(every) - {METADATA, HASH} -
                     {key for key in state if key.startswith(SINGLES)})
    if missing and "rank" in found:
        raise InvalidError(f"the state: expected this rank's part of a sharded optimizer state, or a whole one, found "
                           f"the part of {found['rank']} without {missing[0]}; load the file of this rank, or save inside of "
                           "octavo.full_state")
    if missing or unknown:
        raise InvalidError(f"the state: expected the slots of this model; {len(missing)} are missing "
                           f"({', '.join(missing[:3])}), {len(unknown)} unknown "
                           f"({', '.join(unknown[:3])}); load a checkpoint of this model")
    values = {}
    for key, slot in keys.items():
        target, value = session.tensors[slot.id], state[key]
        if slot.dtype in _FP8 and value.dtype == _FP8[slot.dtype]:
            value = value.view(torch.uint8)
        if value.shape != target.shape or value.dtype != target.dtype:
            raise InvalidError(f"{key}: expected {tuple(target.shape)} of {target.dtype}, found "
                               f"{tuple(value.shape)} of {value.dtype}; load a checkpoint of this model")
        columns = _columns(key, slot, found["labels"])
        values[key] = value if columns is None else value[:, columns]
    field, function = BY_SCHEMA[found["schema"]]
    check_hashes({**found[field], **single}, {key: state[key] for key in keys}, function)
    _clear_others(session)
    for key, slot in keys.items():
        session.tensors[slot.id].copy_(values[key])
    if found.get("ranks", here["ranks"]) != here["ranks"]:
        _forget_histories(session)
    session.slots_changed()


def _clear_others(session):
    """Slots that a checkpoint leaves out get their initial values."""
    for slot in session.slots:
        tensor = session.tensors[slot.id]
        if tensor is not None and not slot.flags & _abi.SLOT_CHECKPOINT and not is_released(tensor):
            tensor.fill_(slot.initial)


def save_checkpoint(model: torch.nn.Module, directory: str | os.PathLike[str], step: int = 0) -> None:
    """Writes the FP8 state of a model as the files of every host (docs/checkpoints.md): programs in C, on LibTorch and
    on JAX load it with the same model, backend and options. The program saves what is not in slots.

    Args:
        model: a prepared model, between steps; with ranks, on one of them.
        directory: a separate directory, which is created.
        step: the program's own count.

    Raises:
        StateError: for a model that was not prepared.
        UnsupportedError: where this rank holds only a part of the state.

    Example:
        >>> octavo.save_checkpoint(model, "checkpoint/octavo", step=1000)
    """
    session, addresses = _addresses(model)
    session.run.save(directory, addresses, step)


def load_checkpoint(model: torch.nn.Module, directory: str | os.PathLike[str]) -> int:
    """Restores what save_checkpoint, or another host, wrote: bit-identical, and all or nothing.

    Args:
        model: a prepared model, whose own state dict is loaded first; with ranks, on each.
        directory: the directory that was written.

    Returns:
        The step that was given to save_checkpoint.

    Raises:
        InvalidError: for a damaged checkpoint, and for one of another model, backend or option.
        StateError, UnsupportedError: as save_checkpoint.

    Example:
        >>> step = octavo.load_checkpoint(model, "checkpoint/octavo")
    """
    session, addresses = _addresses(model)
    step = session.run.load(directory, addresses)
    _clear_others(session)
    session.slots_changed()
    return step


def _addresses(model):
    """(the session, the addresses of its slots by id, after the device has finished its work on them)."""
    session = session_of(model)
    session.settle_all()
    if not session.holds_all():
        raise UnsupportedError("the checkpoint: expected a rank that holds the whole FP8 state, found one with a part of a "
                               "sharded optimizer state; use octavo.state_dict, or prepare without shard_optimizer_state")
    torch.zeros(1, device=session.device).cpu()
    saved = {slot.id for slot in _keys(session).values()}
    return session, [t.data_ptr() if id in saved else None for id, t in enumerate(session.tensors)]


def _forget_histories(session):
    """The next casts take their own amax: on another number of ranks each has other rows of the batch, and a mean
    loss other gradients than the histories know."""
    for slot in session.slots:
        if slot.role == _abi.ROLE_COUNTER and slot.labels:
            session.tensors[slot.id].fill_(slot.initial)


class Stateful:
    """The FP8 state of a model as an object, for torch.distributed.checkpoint and Accelerate's
    register_for_checkpointing, next to the state of the model:

        dcp.save({"model": model_state, "octavo": octavo.Stateful(model), "optimizer": optimizer_state})

    The state is the result of state_dict, with the metadata as bytes, so that a checkpoint of other options is refused by
    load_state_dict. Each slot is written once: it is equal on all ranks, or with octavo.prepare(shard_optimizer_state=True) on
    one of them. So it loads on any number of ranks and any mesh, sharded or not; copies are made when it is asked for, as
    async_save needs. dcp.load restores in the order of the keys: the model's must come before this one.
    register_for_checkpointing saves the state of one rank, so a sharded one needs octavo.accelerate.Accelerator or
    octavo.full_state. Raises StateError for a model that was not prepared.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        session_of(model)
        self._model = model

    def state_dict(self):
        session = session_of(self._model)
        session.settle_all()
        keys = _held(session)
        out = _copies(session, keys)
        found = hashes_of(out)
        # The metadata is equal on all ranks. So the hash of a slot that may be on one rank comes with it.
        single = [key for key, slot in keys.items() if slot.shard == _abi.SHARD_WHOLE]
        seal = _sealed({**_metadata(session, keys), "xxh3_128": {k: found[k] for k in keys if k not in single}})
        return {**out, **{key: bytes(value.numpy()) for key, value in seal.items()},
                **{single_key(key): bytes.fromhex(found[key]) for key in single}}

    def load_state_dict(self, state):
        """Also takes the result of octavo.state_dict. Raises what octavo.load_state_dict raises."""
        load_state_dict(self._model, {
            key: torch.frombuffer(bytearray(value), dtype=torch.uint8) if isinstance(value, bytes) else value
            for key, value in state.items()})


def snapshot(session):
    """The slots that the next session of the same model may keep: (backend, {key: (slot, tensor)}, {name:
    torch parameter})."""
    session.settle_all()
    return (session.run.backend, {k: (s, session.tensors[s.id]) for k, s in _keys(session).items()},
            {w.name: w.parameter for w in session.weights})


def carry(session, kept):
    """Copies the slots of a snapshot that this session also has: same key, dtype and rows, and of the same torch parameter."""
    backend, old, parameters = kept
    if backend != session.run.backend:
        return
    for key, slot in _keys(session).items():
        if key not in old:
            continue
        if slot.owner_kind == _abi.OWNER_PARAMETER:
            w = session.weights[slot.owner]
            if parameters.get(w.name) is not w.parameter:
                continue  # another layer took the place
        before, values = old[key]
        target = session.tensors[slot.id]
        if (before.dtype, before.rows) != (slot.dtype, slot.rows) or is_released(target):
            continue
        if slot.labels and before.labels:
            for column, name in enumerate(slot.labels):
                if name in before.labels:
                    target[:, column] = values[:, before.labels.index(name)]
        elif before.cols == slot.cols:
            target.copy_(values)
    session.slots_changed()


def _difference(found, here):
    if isinstance(found, dict) and isinstance(here, dict):
        names = [n for n in sorted({*found, *here}) if found.get(n) != here.get(n)]
        return tuple(", ".join(f"{n} = {d.get(n)!r}" for n in names) for d in (found, here))
    return repr(found), repr(here)

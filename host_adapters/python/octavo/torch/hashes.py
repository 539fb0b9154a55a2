"""Hashes of a state dict: a flipped bit is refused by the name of its tensor."""
import hashlib
import json
from collections.abc import Mapping

import torch

from ..errors import InvalidError, VersionError
from . import ops

METADATA = "octavo.metadata"
HASH = "octavo.blake2b"  # of the metadata; in a state of schema 2, with a key behind it, also of a tensor
SINGLE = "octavo.xxh3_128/"
SINGLES = (SINGLE, HASH + "/")  # of schemas 3 and 2


def _bytes(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def of(tensor):
    """XXH3 with 128 bits of the bytes of a tensor, as the library's own checkpoints have it: as fast as memory."""
    return ops.xxh3(_bytes(tensor))


def blake2b(tensor):
    """The same by BLAKE2b with 256 bits: of metadata, and of tensors in states of schema 2."""
    return hashlib.blake2b(_bytes(tensor).numpy(), digest_size=32).hexdigest()


# Schema of a state -> the field with the hashes of its tensors, and the hash.
BY_SCHEMA = {2: ("blake2b", blake2b), 3: ("xxh3_128", of)}


def of_all(tensors, function=of):
    """{key: hash} of {key: tensor}. On this thread: Python starts no other one in a program that ends, and none from a
    signal handler that waits for itself."""
    return {key: function(tensor) for key, tensor in tensors.items()}


def single_key(key):
    """The entry that holds the hash of one tensor, where the metadata does not."""
    return SINGLE + key


def single_of(state):
    """{key: hash} of the tensors of a state whose hashes are entries of their own."""
    return {key.partition("/")[2]: bytes(_bytes(value).numpy()).hex() for key, value in state.items()
            if key.startswith(SINGLES)}


def seal(text):
    """The entries of a state that hold its metadata and the hash of it."""
    metadata = torch.frombuffer(bytearray(text), dtype=torch.uint8).clone()
    return {METADATA: metadata,
            HASH: torch.frombuffer(bytearray(bytes.fromhex(blake2b(metadata))), dtype=torch.uint8).clone()}


def expect_tensors(state):
    """Raises InvalidError, by its key, for an entry that is no tensor with memory."""
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


def metadata(state):
    """The fields of the metadata, of their types. Raises InvalidError for one without, and for damage, and
    VersionError for another schema."""
    try:
        found = json.loads(opened(state))
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


def opened(state):
    """The bytes of the metadata of a state. Raises InvalidError for one without, and for damage."""
    if METADATA not in state:
        raise InvalidError(f"the state: expected the entry {METADATA!r}, found none; load "
                           "the result of octavo.state_dict")
    if HASH not in state:
        raise VersionError(f"the state: expected the entry {HASH!r}, found none: nothing could tell whether "
                           "it is whole; load it with the version of octavo that wrote it")
    _compare(METADATA, bytes(_bytes(state[HASH]).numpy()).hex(), blake2b(state[METADATA]), "BLAKE2b")
    return bytes(_bytes(state[METADATA]).numpy())


def check(saved, tensors, function):
    """Raises InvalidError unless {key: hash} is that of {key: tensor}, by the first key that differs."""
    found = of_all(tensors, function)
    for key in sorted(tensors):
        _compare(key, saved.get(key), found[key], "BLAKE2b" if function is blake2b else "XXH3")


def _compare(key, saved, found, name):
    if saved != found:
        raise InvalidError(f"{key}: expected the bytes with {name} {str(saved)[:16]}, as saved, found "
                           f"{found[:16]}: the state is damaged or mixed from two; load another checkpoint")

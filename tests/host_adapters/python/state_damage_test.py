"""Damaged states, at random: octavo.load_state_dict refuses them by an error of octavo's and changes
nothing, or takes them. Hashes are made anew where the metadata or a tensor is damaged, so that the
damage gets as far as it can. OCTAVO_STATES: how many of each configuration, 150 by default."""
import json
import os
import random

import pytest
import torch

import octavo
from octavo.torch.checkpoint.state import HASH, METADATA, hash_of, metadata_bytes, seal
from linear_test import train
from state_test import CONFIGURATIONS, prepared

VALUES = [None, True, -1, 0, 2 ** 70, 1.5, float("nan"), "", "x" * 5000, "\x00", [], {}, [[]], {"": None}]
WORDS = [b"null", b"-1", b"1e999", b"[", b"}", b'"', b"\xff", b"", b"NaN", b'{"a":1}']
NO_TENSORS = [None, 1, "x", [1.0], b"x", torch.float32]


def resealed(state, text):
    return {**state, **seal(text)}


def damaged_tensor(draw, state):
    slots = sorted(k for k in state if k not in (METADATA, HASH))
    if not slots:  # block scaling keeps none
        return damaged_value(draw, state)
    key = draw.choice(slots)
    tensor, kind = state[key], draw.randrange(7)
    if kind == 0:
        other = tensor.clone().view(torch.uint8)
        other.view(-1)[:] = torch.tensor(bytearray(draw.randbytes(other.numel())), dtype=torch.uint8)
        changed = other.view(tensor.dtype)
    elif kind == 1:
        changed = tensor.reshape(-1)[:draw.randrange(tensor.numel())].clone()
    elif kind == 2:
        changed = torch.zeros(0)
    elif kind == 3:
        changed = tensor.float().unsqueeze(0)
    elif kind == 4:
        changed = tensor.float().double() if tensor.dtype != torch.float64 else tensor.int()
    elif kind == 5:
        changed = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    else:
        return {**state, key: draw.choice(NO_TENSORS)}
    meta = json.loads(metadata_bytes(state))
    if changed.device.type != "meta":
        meta["xxh3_128"][key] = hash_of(changed)
    return resealed({**state, key: changed}, json.dumps(meta).encode())


def damaged_keys(draw, state):
    key = draw.choice(sorted(state))
    less = {k: v for k, v in state.items() if k != key}
    return draw.choice([less, {**less, key + "x": state[key]}, {**state, "octavo." + key: state[key]},
                        {**state, "": state[key]}, {**less, 7: state[key]}])


def damaged_value(draw, state):
    """Any value of the metadata is another one."""
    meta = json.loads(metadata_bytes(state))
    at = meta
    while True:
        inner = list(at) if isinstance(at, dict) else range(len(at))
        key = draw.choice(list(inner))
        if isinstance(at[key], (dict, list)) and at[key] and draw.random() < 0.8:
            at = at[key]
            continue
        if draw.random() < 0.2:
            del at[key]
        else:
            at[key] = draw.choice(VALUES)
        return resealed(state, json.dumps(meta).encode())


def damaged_text(draw, state):
    text = bytearray(metadata_bytes(state))
    for _ in range(draw.randrange(1, 4)):
        first = draw.randrange(len(text))
        text[first:first + draw.randrange(20)] = draw.choice(WORDS)
    return resealed(state, bytes(text) or b" ")


def damaged_seal(draw, state):
    return {**state, draw.choice([METADATA, HASH]): draw.choice(
        [*NO_TENSORS, torch.zeros(0), torch.zeros(3, 3), torch.zeros(32, dtype=torch.int64)])}


DAMAGES = (damaged_tensor, damaged_keys, damaged_value, damaged_text, damaged_seal)


def bits(state):
    return {k: v.reshape(-1).view(torch.uint8) for k, v in state.items()}


@pytest.mark.parametrize("given", NO_TENSORS + [[]], ids=repr)
def test_what_is_no_dict_is_refused(given):
    model, _ = prepared(CONFIGURATIONS["te-delayed"])
    with pytest.raises(octavo.InvalidError, match="expected a dict of tensors"):
        octavo.load_state_dict(model, given)


def test_a_tensor_that_torch_negates_when_it_is_read_has_the_hash_of_its_values():
    model, optimizer = prepared(CONFIGURATIONS["te-delayed"])
    train(model, optimizer, steps=2)
    state = octavo.state_dict(model)
    key = next(k for k, v in state.items() if k.endswith("amax_history") and v.any())
    octavo.load_state_dict(model, {**state, key: torch._neg_view(-state[key])})
    assert torch.equal(octavo.state_dict(model)[key], state[key])
    with pytest.raises(octavo.InvalidError, match=f"{key}: expected the bytes"):
        octavo.load_state_dict(model, {**state, key: torch._neg_view(state[key])})
    for seal in (METADATA, HASH):
        for odd in (torch.zeros(8, dtype=torch.complex64).conj(), torch._neg_view(torch.zeros(8))):
            with pytest.raises(octavo.OctavoError):
                octavo.load_state_dict(model, {**state, seal: odd})


@pytest.mark.parametrize("name", ("te-delayed", "te-block", "msamp-O2"))
def test_damage_is_refused_and_changes_nothing_or_loads(name):
    model, optimizer = prepared(CONFIGURATIONS[name])
    train(model, optimizer, steps=2)
    good = octavo.state_dict(model)
    expected = bits(good)
    seed = int(os.environ.get("OCTAVO_SEED", "0"))
    refused = taken = 0
    for i in range(int(os.environ.get("OCTAVO_STATES", "150"))):
        draw = random.Random(f"{seed} {name} {i}")
        damage = draw.choice(DAMAGES)
        state, where = damage(draw, good), f"seed {seed}, {name}, {i}: {damage.__name__}"
        try:
            octavo.load_state_dict(model, state)
        except octavo.OctavoError as e:
            refused += 1
            assert str(e), where
            assert not isinstance(e, octavo.InternalError), f"{where}: {e}"
            found = bits(octavo.state_dict(model))
            assert found.keys() == expected.keys() and all(torch.equal(found[k], expected[k]) for k in found), where
        except Exception as e:
            raise AssertionError(f"{where}: {type(e).__name__}: {e}") from e
        else:
            taken += 1
            octavo.load_state_dict(model, good)
    assert refused > 10 * taken

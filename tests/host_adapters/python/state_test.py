"""Checkpoints of prepared models: octavo.state_dict beside torch's own."""
import copy
import ctypes
import hashlib
import io
import json
import random
import re
import struct
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import octavo
from octavo.torch.checkpoint.state import HASH, METADATA, blake2b, hash_of, metadata_bytes, seal
from conftest import kind, msamp, session, te
from linear_test import model_of, train

CONFIGURATIONS = {"te-delayed": te("delayed", amax_history_len=16), "te-current": te("current"),
                  "te-block": te("block"), "te-mx": te("mx"), "te-nvfp4": te("nvfp4"), "msamp-O1": msamp("O1"),
                  "msamp-O2": msamp("O2"), "msamp-O3": msamp("O3")}
each = pytest.mark.parametrize("overrides", CONFIGURATIONS.values(), ids=CONFIGURATIONS)


def prepared(overrides):
    torch.manual_seed(7)
    model = model_of(32, 48, 10)
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0),
                          overrides=overrides)


@each
def test_resumed_training_equals_training_that_went_on(overrides, tmp_path):
    model, optimizer = prepared(overrides)
    train(model, optimizer, steps=4)
    # [save]
    save_file(octavo.state_dict(model), tmp_path / "octavo.safetensors")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    # [/save]
    expected = train(model, optimizer, steps=3)

    model, optimizer = prepared(overrides)
    # [load]
    model.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    octavo.load_state_dict(model, load_file(tmp_path / "octavo.safetensors"))
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    # [/load]
    assert train(model, optimizer, steps=3) == expected


@each
def test_keys_are_stable_and_files_are_safe_to_load(overrides):
    model, optimizer = prepared(overrides)
    first = octavo.state_dict(model)
    train(model, optimizer, steps=2)
    second = octavo.state_dict(model)
    assert list(first) == list(second)
    file = io.BytesIO()
    torch.save(second, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(torch.equal(loaded[k].view(torch.uint8), second[k].view(torch.uint8))
               for k in second)


@each
def test_plain_model_and_prepared_model_exchange_state_dicts(overrides):
    model, optimizer = prepared(overrides)
    train(model, optimizer, steps=2)
    plain = model_of(32, 48, 10)
    plain.load_state_dict(model.state_dict(), strict=True)
    other, _ = prepared(overrides)
    other.load_state_dict(plain.state_dict(), strict=True)
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values()):
        assert torch.equal(a, b), name
    bf16 = {k: v.to(torch.bfloat16) for k, v in plain.state_dict().items()}
    other.load_state_dict(bf16, strict=True)


@each
def test_whole_model_pickles_and_copies(overrides):
    model, optimizer = prepared(overrides)
    train(model, optimizer, steps=2)
    x = torch.randn(5, 32)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.no_grad():
        expected = model(x)
        assert torch.equal(torch.load(file, weights_only=False)(x), expected)
        assert torch.equal(copy.deepcopy(model)(x), expected)


FRESH = """
import sys, torch, octavo
from safetensors.torch import load_file
sys.path.insert(0, sys.argv[1])
if sys.argv[3] == "cuda":
    import on_cuda
    on_cuda.use()
from state_test import CONFIGURATIONS, prepared
from linear_test import train
model, optimizer = prepared(CONFIGURATIONS["msamp-O2"])
model.load_state_dict(load_file(sys.argv[2] + "/model.safetensors"))
octavo.load_state_dict(model, load_file(sys.argv[2] + "/octavo.safetensors"))
print(train(model, optimizer, steps=2))
"""


def test_fresh_process_resumes_bit_for_bit(tmp_path):
    model, optimizer = prepared(CONFIGURATIONS["msamp-O2"])
    train(model, optimizer, steps=3)
    save_file(octavo.state_dict(model), tmp_path / "octavo.safetensors")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    done = subprocess.run([sys.executable, "-B", "-c", FRESH, __file__.rpartition("/")[0], tmp_path, kind()],
                          check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(train(model, optimizer, steps=2))


def test_columns_are_found_by_layer_name():
    overrides = te("delayed", amax_history_len=4)
    model, optimizer = prepared(overrides)
    train(model, optimizer, steps=3)
    state = octavo.state_dict(model)
    key = "session/x/amax_history"
    swapped = {**state, key: state[key].flip(1)}
    meta = json.loads(metadata_bytes(state))
    meta["labels"][key].reverse()
    meta["xxh3_128"][key] = hash_of(swapped[key])
    swapped.update(seal(json.dumps(meta).encode()))
    other, _ = prepared(overrides)
    octavo.load_state_dict(other, swapped)
    assert torch.equal(octavo.state_dict(other)[key], state[key])


def bad_states(state):
    key = next(k for k in state if k != METADATA)
    yield "the entry 'octavo.metadata'", {k: v for k, v in state.items() if "metadata" not in k}
    yield "1 are missing", {k: v for k, v in state.items() if k != key}
    yield "1 unknown", {**state, "stranger": torch.zeros(1)}
    yield "expected .* of torch", {**state, key: torch.zeros(3, 3, dtype=torch.float64)}


def test_wrong_states_are_refused_and_change_nothing():
    model, optimizer = prepared(CONFIGURATIONS["te-delayed"])
    train(model, optimizer, steps=2)
    state = octavo.state_dict(model)
    for expected, bad in bad_states(state):
        with pytest.raises(octavo.InvalidError, match=expected):
            octavo.load_state_dict(model, bad)
    other, _ = prepared(CONFIGURATIONS["te-current"])
    with pytest.raises(octavo.InvalidError, match="recipe = 'delayed'"):
        octavo.load_state_dict(other, state)
    assert all(torch.equal(state[k], v) for k, v in octavo.state_dict(model).items())
    assert session(model).skipped_steps == 0


def test_states_of_other_schemas_are_refused():
    model, _ = prepared(CONFIGURATIONS["te-delayed"])
    state = octavo.state_dict(model)
    with pytest.raises(octavo.VersionError, match="'octavo.blake2b', found none"):
        octavo.load_state_dict(model, {k: v for k, v in state.items() if k != HASH})
    newer = {**json.loads(metadata_bytes(state)), "schema": 4}
    with pytest.raises(octavo.VersionError, match="schema 2 or 3, found 4"):
        octavo.load_state_dict(model, {**state, **seal(json.dumps(newer).encode())})


@each
def test_each_flipped_bit_is_refused_by_the_name_of_its_tensor(overrides):
    model, optimizer = prepared(overrides)
    train(model, optimizer, steps=2)
    state = octavo.state_dict(model)
    draw = random.Random(5)
    for key, tensor in state.items():
        for _ in range(4):
            damaged = tensor.clone()
            flat = damaged.view(torch.uint8).view(-1)
            flat[draw.randrange(flat.numel())] ^= 1 << draw.randrange(8)
            named = METADATA if key == HASH else key
            with pytest.raises(octavo.InvalidError, match=f"^{re.escape(named)}: .*damaged"):
                octavo.load_state_dict(model, {**state, key: damaged})
    for k, v in octavo.state_dict(model).items():
        assert torch.equal(state[k].view(torch.uint8), v.view(torch.uint8)), k


@pytest.mark.parametrize("name", ("te-delayed", "msamp-O2"))  # the other recipes of te keep no state
def test_a_tensor_of_another_step_is_refused_and_changes_nothing(name):
    model, optimizer = prepared(CONFIGURATIONS[name])
    train(model, optimizer, steps=2)
    state = octavo.state_dict(model)
    train(model, optimizer, steps=1)
    later = octavo.state_dict(model)
    key = next(k for k in state if not torch.equal(later[k].view(torch.uint8), state[k].view(torch.uint8)))
    with pytest.raises(octavo.InvalidError, match=f"^{re.escape(key)}: .*mixed from two"):
        octavo.load_state_dict(model, {**state, key: later[key]})
    for k, v in octavo.state_dict(model).items():
        assert torch.equal(later[k].view(torch.uint8), v.view(torch.uint8)), k


def as_schema_2(state):
    """A state as it was when tensors had BLAKE2b."""
    meta = json.loads(metadata_bytes(state))
    hashed = meta.pop("xxh3_128")
    meta |= {"schema": 2, "blake2b": {key: blake2b(state[key]) for key in hashed}}
    return {**state, **seal(json.dumps(meta).encode())}


def test_states_with_blake2b_load_and_are_refused_when_damaged():
    model, optimizer = prepared(CONFIGURATIONS["msamp-O2"])
    train(model, optimizer, steps=2)
    state = octavo.state_dict(model)
    old = as_schema_2(state)
    train(model, optimizer, steps=1)
    octavo.load_state_dict(model, old)
    assert all(torch.equal(state[k].view(torch.uint8), v.view(torch.uint8)) for k, v in octavo.state_dict(model).items())
    key = next(key for key in old if key.endswith("exp_avg"))
    damaged = old[key].clone()
    damaged.view(torch.uint8).view(-1)[0] ^= 1
    with pytest.raises(octavo.InvalidError, match=f"^{re.escape(key)}: expected the bytes with BLAKE2b"):
        octavo.load_state_dict(model, {**old, key: damaged})


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3(data):
    """By the library of Debian."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], Hash128
    return bytes(function(data, len(data)))[::-1].hex()


@pytest.mark.parametrize(("ours", "peers"), ((hash_of, xxh3), (
    blake2b, lambda data: hashlib.blake2b(data, digest_size=32).hexdigest())), ids=("xxh3", "blake2b"))
def test_hashes_are_those_of_peers_and_do_not_follow_shapes(ours, peers):
    values = torch.randn(3, 5)
    assert ours(values) == peers(values.cpu().numpy().tobytes()) == ours(values.t().contiguous().t())
    assert ours(torch.tensor(2.5)) == peers(struct.pack("f", 2.5))
    assert ours(torch.empty(0, 4)) == peers(b"")
    large = torch.randn(1000)
    assert ours(large) == peers(large.cpu().numpy().tobytes())


def test_unprepared_model_has_no_state():
    with pytest.raises(octavo.StateError, match="not prepared"):
        octavo.state_dict(nn.Linear(2, 2))

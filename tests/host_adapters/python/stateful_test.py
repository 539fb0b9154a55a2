"""octavo.Stateful with torch.distributed.checkpoint, in one process; over ranks: fsdp_mesh_test.py."""
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import octavo
from conftest import msamp, te

FEW = 3
KINDS = [te("delayed"), te("current"), te("block"), te("mx"), msamp("O1"), msamp("O2"), msamp("O3")]


def prepared(overrides, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), overrides=overrides)


def train(model, optimizer, first=0):
    losses = []
    for step in range(first, first + FEW):
        x = torch.randn(32, 64, generator=torch.Generator("cpu").manual_seed(step))
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parts(model, optimizer):
    # [stateful]
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "octavo": octavo.Stateful(model), "optimizer": moments}
    # [/stateful]
    return state


def save(model, optimizer, folder):
    dcp.save(parts(model, optimizer), checkpoint_id=folder, no_dist=True)


def load(model, optimizer, folder):
    state = parts(model, optimizer)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


@pytest.mark.parametrize("overrides", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_a_run_that_resumes_has_the_bits_of_one_that_did_not_stop(overrides, tmp_path):
    model, optimizer = prepared(overrides)
    train(model, optimizer)
    save(model, optimizer, tmp_path)
    expected = train(model, optimizer, FEW)
    resumed, its_optimizer = prepared(overrides, seed=7)
    load(resumed, its_optimizer, tmp_path)
    assert train(resumed, its_optimizer, FEW) == expected


def test_what_is_saved_does_not_change_with_the_next_step():
    """async_save writes while the training goes on."""
    model, optimizer = prepared(te("delayed"))
    train(model, optimizer)
    state = octavo.Stateful(model).state_dict()
    before = {key: value if isinstance(value, bytes) else value.clone() for key, value in state.items()}
    train(model, optimizer, FEW)
    assert state.keys() == before.keys()
    for key, value in state.items():
        assert value == before[key] if isinstance(value, bytes) else torch.equal(value, before[key]), key
    assert any(not isinstance(value, bytes) and not torch.equal(value, now)
               for (key, value), now in zip(state.items(), octavo.Stateful(model).state_dict().values()))


def test_a_checkpoint_of_other_options_is_refused_by_name(tmp_path):
    model, optimizer = prepared(te("delayed", margin=1))
    save(model, optimizer, tmp_path)
    other, its_optimizer = prepared(te("delayed", margin=2))
    with pytest.raises(octavo.InvalidError, match="expected options as in this session.*margin"):
        load(other, its_optimizer, tmp_path)


@pytest.mark.parametrize("damage, message", [
    ("bit", "session/.*: expected the bytes with XXH3"),
    ("metadata", "octavo.metadata: expected the bytes with BLAKE2b"),
    ("no metadata", "expected the entry 'octavo.metadata', found none")])
def test_damage_is_refused_by_the_name_of_the_tensor(damage, message):
    model, optimizer = prepared(te("delayed"))
    train(model, optimizer)
    stateful = octavo.Stateful(model)
    state = stateful.state_dict()
    kept = stateful.state_dict()
    if damage == "bit":
        key = next(key for key in state if key.startswith("session/"))
        state[key].view(torch.uint8).reshape(-1)[0] ^= 1
    elif damage == "metadata":
        state["octavo.metadata"] = state["octavo.metadata"].replace(b"delayed", b"current")
    else:
        del state["octavo.metadata"]
    with pytest.raises(octavo.InvalidError, match=message):
        stateful.load_state_dict(state)
    for key, value in stateful.state_dict().items():
        assert value == kept[key] if isinstance(value, bytes) else torch.equal(value, kept[key]), key


def test_a_model_that_was_not_prepared():
    with pytest.raises(octavo.StateError):
        octavo.Stateful(torch.nn.Linear(16, 16))

"""Moments between the slots of msamp and the states of torch's AdamW and Adam."""
import copy

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, te

LEVELS = ["O1", "O2", "O3"]


def model_of():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))


def learn(model, optimizer, steps):
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(64, 32, generator=generator), torch.randint(0, 10, (64,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(steps=5, of=torch.optim.AdamW):
    model = model_of()
    optimizer = of(model.parameters(), lr=1e-3, weight_decay=0.0)
    learn(model, optimizer, steps)
    return model, optimizer


def prepared(level, model=None):
    model = model_of() if model is None else copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    return octavo.prepare(model, optimizer, overrides=msamp(level))


def bound(name, level, value):
    """What a code may differ by. E4M3: half a unit of 4 bits, and of subnormals below 2^-6 of the scale; the scale
    maps the largest value to 224 at least. f16 in the same way, and a positive value never becomes 0."""
    if level == "O1":
        return torch.zeros_like(value)
    largest = value.abs().max()
    if name == "exp_avg":
        return value.abs() * 2**-4 + largest / 224 * 2**-10
    return value.abs() * 2**-11 + largest / 32768 * 2**-24


@pytest.mark.parametrize("level", LEVELS)
def test_a_state_of_adamw_goes_on(level):
    source, sourced = plain()
    model, optimizer = prepared(level, source)
    state = sourced.state_dict()
    optimizer.load_state_dict(state)  # of torch.optim.AdamW
    found, expected = optimizer.state_dict()["state"], sourced.state_dict()["state"]
    assert found.keys() == expected.keys()
    for at, own in expected.items():
        assert float(found[at]["step"]) == float(own["step"]) == 5
        for name in ("exp_avg", "exp_avg_sq"):
            error = (found[at][name] - own[name]).abs()
            assert (error <= bound(name, level, own[name])).all(), (at, name)
    with_moments = learn(model, optimizer, 5)
    anew, other = prepared(level, source)
    without = learn(anew, other, 5)
    went_on = learn(source, sourced, 5)
    # Adam's first steps have the size of the rate whatever the gradient: without moments a run leaves its course.
    assert abs(with_moments[-1] - went_on[-1]) < 0.5 * abs(without[-1] - went_on[-1])


@pytest.mark.parametrize("level", LEVELS)
def test_the_state_goes_back_to_torch(level):
    model, optimizer = prepared(level)
    learn(model, optimizer, 4)
    state = optimizer.state_dict()
    octavo.restore(model)
    plain_optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    plain_optimizer.load_state_dict(state)
    assert all(float(s["step"]) == 4 for s in plain_optimizer.state.values()) and len(plain_optimizer.state) == 6
    losses = learn(model, plain_optimizer, 4)
    assert losses[-1] < losses[0]


def test_what_went_there_and_back_is_the_same():
    model, optimizer = prepared("O2")
    learn(model, optimizer, 3)
    state = copy.deepcopy(optimizer.state_dict())
    slots = {k: v.clone() for k, v in octavo.state_dict(model).items() if isinstance(v, torch.Tensor)}
    optimizer.load_state_dict(state)
    for at, own in optimizer.state_dict()["state"].items():
        assert all(torch.equal(own[k], state["state"][at][k]) for k in own)
    after = octavo.state_dict(model)
    assert all(torch.equal(after[k], v) for k, v in slots.items() if "/step" in k or "exp_avg" in k)


def test_parameters_without_a_state_start_anew():
    _, sourced = plain()
    model, optimizer = prepared("O2")
    learn(model, optimizer, 3)
    state = sourced.state_dict()
    del state["state"][0]
    optimizer.load_state_dict(state)
    found = optimizer.state_dict()["state"]
    assert [float(found[at]["step"]) for at in range(6)] == [0, 5, 5, 5, 5, 5]
    assert not found[0]["exp_avg"].any() and not found[0]["exp_avg_sq"].any()


def test_the_state_of_a_fresh_optimizer_starts_anew():
    """As in torch, also where torch's has no moments yet."""
    _, fresh = plain(0)
    model, optimizer = prepared("O2")
    first = copy.deepcopy(optimizer.state_dict())
    for state in (fresh.state_dict(), first):
        learn(model, optimizer, 3)
        optimizer.load_state_dict(state)
        assert not any(float(own["step"]) or own["exp_avg"].any() for own in optimizer.state_dict()["state"].values())


def moved(model, optimizer):
    """What one step adds to the first weight."""
    before = model[0].weight.detach().clone()
    learn(model, optimizer, 1)
    return model[0].weight.detach() - before


def test_a_file_with_the_plain_two_parts_goes_on(tmp_path):
    """What a script saves that knows nothing of slots, in a fresh msamp and in torch's AdamW, as te uses it."""
    model, optimizer = prepared("O2")
    learn(model, optimizer, 60)
    torch.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, tmp_path / "both.pt")
    saved = torch.load(tmp_path / "both.pt", weights_only=True)
    expected = moved(model, optimizer)
    found = []
    for overrides, takes in ((msamp("O2"), True), (te("current"), True), (msamp("O2"), False)):
        fresh = model_of()
        other = torch.optim.AdamW(fresh.parameters(), lr=1e-3, weight_decay=0.0)
        fresh, other = octavo.prepare(fresh, other, overrides=overrides)
        fresh.load_state_dict(saved["model"])
        if takes:
            other.load_state_dict(saved["opt"])
            assert {float(own["step"]) for own in other.state_dict()["state"].values()} == {60}
        found.append(((moved(fresh, other) - expected).norm() / expected.norm()).item())
    # Without moments each weight moves by the whole rate; with them, the casts of one gradient of 61 differ.
    assert found[0] < 0.1 and found[1] < 0.25 and found[2] > 1


def test_prepare_takes_the_moments_of_a_run():
    """As after a framework that loads a checkpoint into torch's optimizer first."""
    model, optimizer = plain(60)
    twin = copy.deepcopy(model)
    its = torch.optim.AdamW(twin.parameters(), lr=1e-3, weight_decay=0.0)
    its.load_state_dict(optimizer.state_dict())
    prepared_model, joined = octavo.prepare(model, optimizer, overrides=msamp("O2"))
    assert {float(own["step"]) for own in joined.state_dict()["state"].values()} == {60}
    expected = moved(twin, its)
    assert (moved(prepared_model, joined) - expected).norm() < 0.25 * expected.norm()


@pytest.mark.parametrize("order", ["optimizer last", "optimizer first"])
def test_with_the_state_of_octavo_no_bit_changes(order):
    model, optimizer = prepared("O2")
    learn(model, optimizer, 7)
    weights, slots, state = (copy.deepcopy(s) for s in (model.state_dict(), octavo.state_dict(model), optimizer.state_dict()))
    expected = learn(model, optimizer, 3)
    fresh, other = prepared("O2")
    fresh.load_state_dict(weights)
    loads = [lambda: octavo.load_state_dict(fresh, slots), lambda: other.load_state_dict(state)]
    for load in loads if order == "optimizer last" else reversed(loads):
        load()
    assert learn(fresh, other, 3) == expected


def test_an_own_state_changes_no_bit():
    model, optimizer = prepared("O2")
    learn(model, optimizer, 3)
    before = {k: v.clone() for k, v in octavo.state_dict(model).items()}
    optimizer.load_state_dict(optimizer.state_dict())
    after = octavo.state_dict(model)
    assert all(torch.equal(after[k].view(torch.uint8), v.view(torch.uint8)) for k, v in before.items())


def spoil_shape(state):
    state[2]["exp_avg"] = state[2]["exp_avg"][:-1]


def spoil_finite(state):
    state[0]["exp_avg_sq"][0, 0] = float("inf")


def spoil_sign(state):
    state[0]["exp_avg_sq"][0, 0] = -1.0


def spoil_step(state):
    state[1]["step"] = torch.tensor(2.5)


def spoil_keys(state):
    state[3]["max_exp_avg_sq"] = state[3]["exp_avg_sq"]


def spoil_type(state):
    state[4]["exp_avg"] = [0.0]


@pytest.mark.parametrize("spoil, says", [
    (spoil_shape, r"parameter 2: expected exp_avg of shape \(64,\), found \(63,\)"),
    (spoil_finite, "parameter 0: expected finite moments"),
    (spoil_sign, "parameter 0: expected finite moments and no second one below 0"),
    (spoil_step, "parameter 1: expected a whole number of steps below 2\\^31, found 2.5"),
    (spoil_keys, "parameter 3: expected step, exp_avg and exp_avg_sq, found .*max_exp_avg_sq"),
    (spoil_type, r"parameter 4: expected exp_avg of shape \(10, 64\), found list"),
])
def test_a_state_that_cannot_be_taken_changes_nothing(spoil, says):
    _, sourced = plain()
    model, optimizer = prepared("O2")
    learn(model, optimizer, 3)
    before = copy.deepcopy(optimizer.state_dict())
    state = copy.deepcopy(sourced.state_dict())
    state["param_groups"][0]["lr"] = 0.5
    spoil(state["state"])
    with pytest.raises(octavo.StateError, match=says):
        optimizer.load_state_dict(state)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(torch.equal(after["state"][at][k], v) for at, own in before["state"].items() for k, v in own.items())


def test_groups_of_other_sizes_are_torchs_error():
    _, sourced = plain()
    model, optimizer = prepared("O2")
    state = sourced.state_dict()
    state["param_groups"][0]["params"] = state["param_groups"][0]["params"][:-1]
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict(state)


def test_a_state_of_adam_loads_too():
    _, sourced = plain(of=torch.optim.Adam)
    model, optimizer = prepared("O1")
    optimizer.load_state_dict(sourced.state_dict())
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], sourced.state_dict()["state"][0]["exp_avg"])

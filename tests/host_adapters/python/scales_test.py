"""The first scales of delayed scaling: a cast without a history takes its own amax, whenever its layer runs
first; the profiles of Transformer Engine begin with a scale of 1."""
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, mse_loss

import octavo
from conftest import te
from guide_parts import gradients, slot


def mlp():
    torch.manual_seed(5)
    return nn.ModuleDict({"first": nn.Linear(64, 96), "late": nn.Linear(96, 96), "last": nn.Linear(96, 64)})


def run(model, x, late):
    h = torch.tanh(model["first"](x))
    return model["last"](torch.tanh(model["late"](h)) if late else h)


def backward(model, x, target, late):
    model.zero_grad()
    mse_loss(run(model, x, late), target).backward()
    return gradients(model)


def cosines(found, expected):
    return {n: cosine_similarity(found[n].flatten(), g.flatten(), 0).item() for n, g in expected.items()}


def batch(factor=1.0):
    """4,096 rows, of which a mean makes gradients that E5M2 flushes to 0 with a scale of 1."""
    torch.manual_seed(6)
    return factor * torch.randn(4096, 64), torch.randn(4096, 64)


@pytest.mark.parametrize("options", [{}, {"margin": 1}, {"amax_compute_algo": "most_recent"}, {"fp8_format": "E4M3"},
                                     {"gradient_rounding": "stochastic"}], ids=str)
def test_the_gradients_of_a_fresh_model_are_those_of_the_plain_one(options):
    plain = mlp()
    model, _ = octavo.prepare(mlp(), None, None, overrides=te(**options))
    for factor in (1.0, 1.1, 0.9):  # the first step is no worse than those with scales of a history
        data = batch(factor)
        found = cosines(backward(model, *data, late=True), backward(plain, *data, late=True))
        assert min(found.values()) > 0.98, found
        octavo.step(model)


def test_a_layer_that_runs_late_for_the_first_time():
    plain = mlp()
    model, _ = octavo.prepare(mlp(), None, None, overrides=te())
    for late in (False, False, True, True):
        data = batch()
        found = cosines(backward(model, *data, late), backward(plain, *data, late))
        assert min(found.values()) > 0.98, (late, found)
        octavo.step(model)


def test_every_batch_of_the_first_step_has_its_own_scale():
    """Accumulation: the second batch is a thousand times larger, and neither saturates nor flushes."""
    plain = mlp()
    model, _ = octavo.prepare(mlp(), None, None, overrides=te())
    for m in (model, plain):
        for factor in (1e-3, 1.0):
            mse_loss(run(m, *batch(factor)[:1], True), 1e3 * batch()[1]).backward()
    assert min(cosines(gradients(model), gradients(plain)).values()) > 0.98


def test_a_skipped_first_step_records_nothing():
    plain = mlp()
    fp8 = mlp()
    model, own = octavo.prepare(fp8, torch.optim.SGD(fp8.parameters(), lr=0.0), None, overrides=te())
    x, target = batch()
    x[0, 0] = float("inf")
    backward(model, x, target, True)
    own.step()
    assert octavo.torch.session_of(model).skipped_steps == 1
    data = batch()
    found = cosines(backward(model, *data, late=True), backward(plain, *data, late=True))
    assert min(found.values()) > 0.98, found


def test_the_profiles_of_transformer_engine_begin_at_1():
    for profile in ("te2-delayed-fused", "te2-delayed-unfused"):
        model, _ = octavo.prepare(mlp(), None, None, overrides=te(profile=profile))
        found = cosines(backward(model, *batch(), late=True), backward(mlp(), *batch(), late=True))
        assert min(found.values()) < 0.9, found  # many elements are flushed
        assert slot(model, "dy/scale").eq(1).all()
        with pytest.raises(AssertionError, match="0 slots"):
            slot(model, "dy/counter")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_of_another_number_of_ranks_begins_with_its_own_amax(ranks, monkeypatch):
    """Half the rows of a batch on each of two ranks: the mean loss of those has gradients twice as large, which
    saturate with the scales of before."""
    model, _ = octavo.prepare(mlp(), None, None, overrides=te())
    data = batch()
    for _ in range(2):
        backward(model, *data, late=True)
        octavo.step(model)
    saved = octavo.state_dict(model)
    monkeypatch.setattr(octavo.torch.checkpoint.state, "_ranks", lambda: ranks)
    plain, resumed = mlp(), octavo.prepare(mlp(), None, None, overrides=te())[0]
    octavo.load_state_dict(resumed, saved)
    found, expected = ({}, {})
    for m, into in ((resumed, found), (plain, expected)):
        (2**8 * mse_loss(run(m, data[0], True), data[1])).backward()
        into.update(gradients(m))
    errors = {n: ((found[n] - g).norm() / g.norm()).item() for n, g in expected.items()}
    assert (max(errors.values()) < 0.15) == (ranks == 2), errors
    counters = [t for s, t in zip(octavo.torch.session_of(resumed).slots, octavo.torch.session_of(resumed).tensors)
                if s.name.endswith("/counter")]
    assert len(counters) == 3 and all(bool(t.eq(0 if ranks == 2 else 2).all()) for t in counters)


def _steps(model, data, factors):
    """A step with each factor of x and of the loss; the warnings of each."""
    said = []
    for of_x, of_loss in factors:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (of_loss * mse_loss(run(model, of_x * data[0], False), data[1])).backward()
            octavo.step(model)
        said.append([str(w.message) for w in caught if "octavo: " in str(w.message)])
    return said


def test_layers_whose_scale_does_not_fit_are_named_once():
    model, _ = octavo.prepare(mlp(), None, None, overrides=te())
    assert _steps(model, batch(), [(1, 1), (1, 1), (1.5, 2), (0.5, 0.5)]) == [[], [], [], []]
    switched = _steps(model, batch(), [(1, 2**8), (1, 2**8), (1, 2**8)])
    told = sum(switched, [])
    assert all("values of dy saturate" in text for text in told) and switched[2] == []
    assert sorted(text.split(": ")[1] for text in told) == ["first", "last"]  # first's in the step after last's
    outlier = _steps(model, batch(), [(1e30, 1e-30), (1, 2**8), (1, 2**8), (1, 2**8)])
    assert [text for text in outlier[0] if "first: values of x saturate" in text]
    assert [text for text in outlier[1] if "first: values of x all become 0" in text] and outlier[3] == []

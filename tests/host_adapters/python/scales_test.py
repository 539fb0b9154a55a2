"""The first scales of delayed scaling: a cast without a history takes its own amax, whenever its layer runs
first; the profiles of Transformer Engine begin with a scale of 1."""
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

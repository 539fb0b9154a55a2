"""Values at the ends of the range: what they leave in the scales, and what the counters of casts say of them."""
import math

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te

RECIPES = {**{recipe: te(recipe) for recipe in ("delayed", "current", "block", "mx")}, "msamp": msamp("O2")}
SMALLEST = 2.0**-149
LARGEST = torch.finfo(torch.float32).max


def made(overrides, **settings):
    torch.manual_seed(3)
    model = nn.ModuleDict({"used": nn.Linear(32, 32), "unused": nn.Linear(32, 32)})
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), overrides=overrides, **settings)


def slot(model, name):
    return next(t for d, t in zip(session(model).slots, session(model).tensors) if d.name == name)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("value", [0.0, SMALLEST, LARGEST], ids=str)
def test_no_value_spoils_a_scale(recipe, value):
    """Zeros, the smallest and the largest numbers, in a model with a layer that never runs: whatever a step makes of
    them, every scale stays positive and finite, and a plain step afterwards is a good one."""
    model, optimizer = made(RECIPES[recipe])
    for x in (torch.full((16, 32), value), torch.randn(16, 32)):
        optimizer.zero_grad()
        y = model["used"](x)
        (y * 2.0**-100 if value > 1 else y).sum().backward()
        optimizer.step()
        scales = {d.name: t for d, t in zip(session(model).slots, session(model).tensors) if d.name.endswith("/scale")}
        assert bool(scales) == (recipe in ("delayed", "msamp"))  # the others keep none
        for name, scale in scales.items():
            assert torch.isfinite(scale).all() and (scale > 0).all(), name
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert torch.isfinite(model["used"](torch.randn(16, 32))).all()
    assert torch.isfinite(model["unused"](torch.randn(16, 32))).all()


def test_casts_that_saturate_or_vanish_are_counted():
    """This profile begins with the scale 1 and E4M3 ends at 448, so the counts are known."""
    model, optimizer = made(te("delayed", telemetry=True, profile="te2-delayed-fused"), record_every_n_steps=1)
    x = torch.ones(16, 32)
    x[0, :5], x[1, :7] = 500.0, 2.0**-12
    for batch in range(1, 3):
        model["used"](x).sum().backward()
        assert slot(model, "x/saturated").flatten().tolist()[0] == 5 * batch
        assert slot(model, "x/underflow").flatten().tolist()[0] == 7 * batch
        signal = slot(model, "x/signal").flatten().tolist()[0]
        assert signal == pytest.approx(batch * x.double().square().sum().item(), rel=1e-5)
    optimizer.step()
    assert not slot(model, "x/saturated").any() and not slot(model, "x/underflow").any()
    assert session(model).skipped_steps == 0 and not math.isnan(model["used"](x).sum().item())

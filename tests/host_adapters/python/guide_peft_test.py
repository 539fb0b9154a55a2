"""The guide's section "PEFT": LoRA adapters on frozen FP8 weights."""
import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from guide_parts import RECIPES, Attention, assert_same, gradients, slots, weights
from octavo import _abi
from octavo.torch import ops

peft = pytest.importorskip("peft", exc_type=ImportError)

RANK = 8  # no multiple of 16
OVERRIDES = {**{recipe: te(recipe) for recipe in RECIPES}, "msamp": msamp("O2")}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = Attention(64), nn.Linear(64, 32)

    def forward(self, x):
        return self.head(x + self.attention(x))


def lora(overrides):
    """(model, optimizer): adapters of rank 8 on q, k, v and o; everything else is frozen."""
    torch.manual_seed(1)
    base = Model()
    config = peft.LoraConfig(r=RANK, lora_alpha=16, target_modules=["q", "k", "v", "o"])
    model = peft.get_peft_model(base, config)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == 4 * 2 * 64 * RANK
    return octavo.prepare(model, torch.optim.AdamW(trained, lr=2e-2), None, overrides=overrides)


def frozen_slots(model):
    """What the backend keeps of frozen weights: codes and their scales."""
    s = session(model)
    frozen = {w.id for w in s.weights if w.is_frozen}
    return {k: v for k, v in slots(model).items()
            if k[0] == _abi.OWNER_PARAMETER and k[1] in frozen}


@pytest.mark.parametrize("name", OVERRIDES)
def test_lora_on_frozen_fp8_weights(name):
    model, optimizer = lora(OVERRIDES[name])
    s = session(model)
    # Five frozen linears and two adapters for each of four, all in FP8.
    assert len(s.sites) == 5 + 2 * 4
    assert sum(site.weight.is_frozen for site in s.sites.values()) == 5
    x, target = torch.randn(4, 12, 64), torch.randn(4, 12, 32)
    before, codes = weights(model), None
    losses, steps = [], 40
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        assert gradients_of(model) == {n for n, _ in model.named_parameters() if "lora_" in n}
        optimizer.step()
        losses.append(loss.item())
        if step == 1:  # from the second forward on delayed scales have seen the weights
            codes = frozen_slots(model)
            assert any(v.any() for v in codes.values())
    assert losses[-1] < 0.9 * losses[0]
    assert_same(frozen_slots(model), codes, "frozen")
    after = weights(model)
    frozen = {n for n in before if "lora_" not in n}
    assert_same({n: after[n] for n in frozen}, {n: before[n] for n in frozen}, "frozen")
    # Adapters, and the frozen o and head, which pass dx on; x of q, k and v needs no gradient.
    assert ops.calls(s.number, _abi.VERB_BACKWARD) == steps * (2 * 4 + 2)


def gradients_of(model):
    return {n for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("recipe", RECIPES)
def test_only_adapters_have_states(recipe):
    model, optimizer = lora(te(recipe))
    model(torch.randn(2, 4, 64)).square().mean().backward()
    optimizer.step()
    assert len(optimizer.state) == 8
    assert all(torch.isfinite(g).all() and g.any() for n, g in gradients(model).items()
               if "lora_B" in n)


def test_an_adapter_starts_as_the_base_model():
    """lora_B is zero, so adapters change no output; a disabled adapter neither."""
    model, _ = lora(te("current"))
    base, _ = octavo.prepare(Model(), None, None, overrides=te("current"))
    plain = model.get_base_model()
    names = {n: n.replace(".base_layer", "") for n, _ in plain.named_parameters()
             if "lora_" not in n}
    base.load_state_dict({short: plain.get_parameter(n) for n, short in names.items()})
    x = torch.randn(2, 4, 64)
    with torch.no_grad():
        assert torch.equal(model(x), base(x))
        with model.disable_adapter():
            assert torch.equal(model(x), base(x))

"""The guide's sections "Gradient Checkpointing" and "Optimizer choice"."""
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import msamp, session, te
from guide_parts import RECIPES, Block, assert_same, gradients, slot, slots
from octavo import _abi
from octavo.torch import ops

STEPS = 3


class Stack(torch.nn.Module):
    """Two blocks; each is recomputed in backward unless reentrant is None."""

    def __init__(self, reentrant):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(32), Block(32)])
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(
                block, x, use_reentrant=self.reentrant)
        return x


def train(overrides, reentrant):
    """(losses, gradients of each step, slots after each step, calls of linear_forward)."""
    torch.manual_seed(1)
    model = Stack(reentrant)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), None,
                                      overrides=overrides)
    losses, grads, states = [], [], []
    for _ in range(STEPS):
        x = torch.randn(3, 5, 32).requires_grad_()
        loss = model(x).square().mean()
        loss.backward()
        grads.append({**gradients(model), "x": x.grad.clone()})
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        states.append(slots(model))
    number = session(model).number
    assert ops.calls(number, _abi.VERB_END_STEP) == STEPS
    return losses, grads, states, ops.calls(number, _abi.VERB_FORWARD), model


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("overrides", [*(te(r) for r in RECIPES), msamp("O2")],
                         ids=[*RECIPES, "msamp"])
def test_gradient_checkpointing(overrides, reentrant):
    """A recomputed forward equals the first, and a history advances once a step, not twice."""
    losses, grads, states, calls, _ = train(overrides, None)
    again, found_grads, found_states, more_calls, model = train(overrides, reentrant)
    assert (calls, more_calls) == (12 * STEPS, 2 * 12 * STEPS)
    assert again == losses and len(set(losses)) == STEPS
    for step in range(STEPS):
        assert_same(found_grads[step], grads[step], f"step {step}, gradient")
        assert_same(found_states[step], states[step], f"step {step}, slot")
    if any(d.name == "x/amax_history" for d in session(model).slots):
        history = slot(model, "x/amax_history")
        assert history[-STEPS:].all() and not history[:-STEPS].any()


@pytest.mark.parametrize("overrides, expected", [(msamp("O1"), 8), (msamp("O2"), 3)],
                         ids=["O1", "O2"])
def test_optimizer_choice(overrides, expected):
    """Bytes of Adam's states a parameter: 8 with O1 as with AdamW, 3 with O2 (FP8 and fp16)."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 32))
    model, _ = octavo.prepare(model, torch.optim.AdamW(model.parameters()), None,
                              overrides=overrides)
    s = session(model)
    elements = sum(rows * cols for rows, cols in (w.shape for w in s.weights))
    states = s.bytes_by_role()
    assert (states[_abi.ROLE_EXP_AVG] + states[_abi.ROLE_EXP_AVG_SQ]) == expected * elements
    # The guide's example: 3e9 parameters, 24 GB of states with AdamW.
    assert expected * 3e9 / 1e9 == {8: 24, 3: 9}[expected]

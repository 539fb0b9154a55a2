"""Loops with one optimizer and with two over parts of a model in slots: a compiled model has eager's bits, and both
follow plain torch."""
import pytest
import torch
from torch import nn

import octavo
from conftest import msamp

STEPS, LR = 4, 1e-2


def model_of():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))


def optimizers(prepares):
    """A model, and an optimizer for each half of it."""
    model = model_of()
    both = [torch.optim.AdamW(model[at].parameters(), lr=LR, weight_decay=0.0, eps=1e-4) for at in (0, 2)]
    if prepares:
        model, both[0] = octavo.prepare(model, both[0], overrides=msamp("O2"))
        both[1] = octavo.join(model, both[1])
    return model, both


def loss_of(call, step):
    return call(torch.randn(64, 32, generator=torch.Generator().manual_seed(step))).square().mean()


def together(call, both, order=(0, 1)):
    for step in range(STEPS):
        for optimizer in both:
            optimizer.zero_grad()
        loss_of(call, step).backward()
        for at in order:
            both[at].step()


def reversed_order(call, both):
    together(call, both, (1, 0))


def in_turn(call, both):
    """As in a GAN: each clears its own gradients only, and gets some in the other's turn."""
    for step in range(2 * STEPS):
        both[step % 2].zero_grad()
        loss_of(call, step).backward()
        both[step % 2].step()


def accumulated(call, both):
    """The second steps in every second iteration."""
    for step in range(STEPS):
        both[0].zero_grad()
        loss_of(call, step).backward()
        both[0].step()
        if step % 2:
            both[1].step()
            both[1].zero_grad()


def twice_with_one_gradient(call, both):
    for step in range(STEPS):
        loss_of(call, step).backward()
        for optimizer in (*both, *both):
            optimizer.step()
        for optimizer in both:
            optimizer.zero_grad(set_to_none=bool(step % 2))


def never_cleared(call, both):
    for step in range(STEPS):
        loss_of(call, step).backward()
        for optimizer in both:
            optimizer.step()


def skipped(call, both):
    """One iteration of Inf in between, of which nobody takes anything."""
    for step in range(STEPS):
        for optimizer in both:
            optimizer.zero_grad()
        (loss_of(call, step) * (float("inf") if step == 1 else 1.0)).backward()
        if step != 1 or isinstance(both[0], octavo.torch.optimizer.Adam):
            for optimizer in both:
                optimizer.step()


def moved(loop, how):
    model, both = optimizers(prepares=how != "plain")
    before = [p.detach().clone() for p in model.parameters()]
    torch._dynamo.reset()
    loop(torch.compile(model, backend="aot_eager", fullgraph=True) if how == "compiled" else model, both)
    return [p.detach() - b for p, b in zip(model.parameters(), before)]


@pytest.mark.parametrize("loop", [together, reversed_order, in_turn, accumulated, twice_with_one_gradient, never_cleared,
                                  skipped], ids=lambda loop: loop.__name__)
def test_compiled_eager_and_plain(loop):
    plain, eager, compiled = (moved(loop, how) for how in ("plain", "eager", "compiled"))
    for theirs, ours, same in zip(plain, eager, compiled):
        assert theirs.norm() > 0
        # Adam divides by the size of the gradient, so a cast's relative 2^-4 of it shows in full, and more near 0.
        assert (ours - theirs).norm() < 0.25 * theirs.norm()
        assert torch.equal(ours, same)

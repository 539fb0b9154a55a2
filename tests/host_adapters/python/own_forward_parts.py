"""What the tests of forwards that are not torch's share: a count of what ran in FP8, and comparisons with the plain module."""
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import octavo
from conftest import msamp, session, te
from octavo.torch import ops

BACKENDS = [te(), te("current"), te("block"), msamp("O1"), msamp("O3")]
IDS = ["delayed", "current", "block", "O1", "O3"]


class Casts(nn.Linear):
    """As in nanochat."""

    def forward(self, x):
        return functional.linear(x, self.weight.to(x.dtype))


@pytest.fixture
def calls(monkeypatch):
    """The linears that ran in FP8, in order."""
    ops.library()
    found, forward = [], ops.linear_forward

    def counted(run, linear, *rest):
        found.append(linear)
        return forward(run, linear, *rest)

    monkeypatch.setattr(ops, "linear_forward", counted)
    return found


def close(y, expected, bound=0.1):
    assert (y - expected).float().norm() < bound * expected.float().norm()


def passes(model, x):
    """(y, dx) of a training pass."""
    x = x.clone().requires_grad_()
    y = model(x)
    (y.float() * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    return y.detach(), x.grad


def check(plain, calls, overrides, x, count=1):
    """A training pass in FP8 against the plain module. Returns the prepared model."""
    model, _ = octavo.prepare(copy.deepcopy(plain), overrides=overrides)
    assert len(session(model).sites) == 1, session(model).left_out
    del calls[:]
    found = passes(model, x)
    assert len(calls) == count
    for y, expected in zip(found, passes(plain, x)):
        close(y, expected, 0.2)
    grad = model.weight.grad if hasattr(model, "weight") else next(p.grad for p in model.parameters())
    if session(model).needs_own_optimizer:
        grad = grad.plain()
    close(grad, next(p.grad for p in plain.parameters()), 0.2)
    return model

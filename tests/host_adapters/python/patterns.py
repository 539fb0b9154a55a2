"""Usage patterns: what users do with a prepared model, each as a function that checks its effect.

A pattern gets a Prepare and does what the user would do. It ends without an exception if the effect
is right, with an OctavoError where the backend refuses, and with anything else if something is
wrong. patterns_test.py runs all of them and generates docs/patterns.md; the patterns are in
patterns_*.py, by area.
"""
import dataclasses
import json

import torch
from torch import nn

import octavo
from conftest import session
from guide_parts import mlp
from octavo import _abi
from octavo.torch import ops

PATTERNS = []
STEPS = 20
# How far a loss may be from the one of the plain twin, relative to the first loss of the twin. A
# cast to E4M3 errs by 2^-4 of a value at most, and by 2^-4 / sqrt(12) * 1.4 = 2.6 % in root mean
# square (spacing 2^-3 of the power of two below, values spread over the octave). Two casts a
# product, two layers: 2.6 % * sqrt(4) = 5.2 % of the norm of the output. A mean square of 1024
# outputs changes by its square, 0.3 %, and by twice their correlation with the residual, about
# 2 * 5.2 % / sqrt(1024) = 0.3 %. Gradients in E5M2 err twice as much, which moves the weights:
# 20 steps whose errors are independent add up to sqrt(20) of one step's 0.3 % + 0.6 %, 4 %.
BOUND = 0.05


@dataclasses.dataclass
class Pattern:
    area: str
    name: str
    run: object


def pattern(area, name):
    """Adds a function to the table."""
    def add(function):
        PATTERNS.append(Pattern(area, name, function))
        return function
    return add


class Prepare:
    """octavo.prepare with one backend; with overrides=None, it leaves everything plain."""

    def __init__(self, overrides):
        self.overrides = overrides

    def __call__(self, model, optimizer=None, **arguments):
        if self.overrides is None:
            return model, optimizer
        return octavo.prepare(model, optimizer, **{"overrides": self.overrides, **arguments})

    def again(self, model, optimizer=None):
        """The next stage of a prepared model."""
        return (model, optimizer) if self.overrides is None else octavo.prepare(model, optimizer)


PLAIN = Prepare(None)


def network(*sizes):
    """The same values at every call."""
    torch.manual_seed(3)
    return mlp(*(sizes or (32, 64, 16)))


def adamw(model, lr=1e-2):
    """Of whatever is trained. Decay is off, so that both backends and both twins agree."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr,
                             weight_decay=0.0)


def start(prepare, model=None, optimizer=adamw, **arguments):
    """A prepared model and its optimizer."""
    model = network() if model is None else model
    return prepare(model, optimizer(model) if optimizer else None, **arguments)


def batch(rows=64, seed=4, inputs=32, outputs=16):
    """Inputs, and what a linear teacher makes of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator)
    return x, x @ torch.randn(inputs, outputs, generator=generator) / inputs**0.5


def error(model, x=None, target=None):
    """The mean squared error, to be differentiated."""
    if x is None:
        x, target = batch()
    return nn.functional.mse_loss(model(x), target)


def is_prepared(model):
    return any("octavo_session" in m.__dict__ for m in model.modules())


def boundaries(model):
    """How often the scales were derived anew."""
    return ops.calls(session(model).number, _abi.VERB_END_STEP) if is_prepared(model) else 0


def learn(model, optimizer, steps=STEPS, call=None, loss_of=error, between=None, late=0):
    """Trains; between(model) runs after backward. Returns the losses. Asserts one boundary a step,
    and that all FP8 layers ran. late=1: the boundary of the last step is still to come, because the
    optimizer has no parameter that octavo.prepare saw."""
    losses, before = [], boundaries(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model if call is None else call)
        loss.backward()
        if between is not None:
            between(model)
        optimizer.step()
        losses.append(loss.item())
    check_fp8(model, boundaries(model) - before, steps - late)
    return losses


def check_fp8(model, found=None, expected=None):
    """Every layer in FP8 ran, and scales followed every step."""
    if is_prepared(model):
        assert json.loads(octavo.report(model, "json"))["never_ran"] == []
        assert found == expected, f"{found} boundaries in {expected} steps"


def follows(found, expected, bound=BOUND, falls=0.9):
    """Losses that fall as those of the plain twin, and are not the same: FP8 took part."""
    assert len(found) == len(expected)
    assert expected[-1] < falls * expected[0], f"the twin does not learn: {expected}"
    apart = max(abs(f - e) for f, e in zip(found, expected)) / expected[0]
    assert apart <= bound, f"{apart:.3f} of the first loss apart: {found} for {expected}"
    assert found != expected


def compare(prepare, loop, bound=BOUND, falls=0.9):
    """loop(prepare) -> losses, prepared and plain."""
    found = loop(prepare)
    follows(found, loop(PLAIN), bound, falls)


def plain_output(model, x):
    """What a plain model with the same values gives: the reference for one forward."""
    twin = network()
    twin.load_state_dict({k: v.detach().clone() for k, v in model.state_dict().items()})
    with torch.no_grad():
        return twin(x)


def near(found, expected, bound=0.1):
    """Outputs of two products in FP8: 5.2 % of the norm in root mean square (BOUND), up to twice
    that for scales that have seen few batches."""
    apart = ((found - expected).norm() / expected.norm()).item()
    assert apart <= bound, f"{apart:.3f} of the norm apart"


def values(model):
    return {k: v.detach().clone() for k, v in model.state_dict().items()}


def same(a, b):
    """Equal names and equal bits."""
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key

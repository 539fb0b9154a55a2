"""Weights that code writes through `.data` or through shared memory, which moves no version of torch's: the
next forward in training multiplies by what is there, wherever in a step the write was (docs/hosts.md)."""
import ctypes

import pytest
import torch
from torch import nn

import octavo
from conftest import session, te
from coupling_parts import BACKENDS, backward, batch, boundaries, call_of, each, plain, prepared
from octavo import _abi
from octavo.torch import ops

FACTOR = -1.0  # within the scales of the values before; an output of the old codes is off by twice its size


def _numpy(p):
    p.detach().numpy()[...] *= FACTOR


def _dlpack(p):
    torch.from_dlpack(p.detach()).mul_(FACTOR)


def _storage(p):
    torch.empty(0).set_(p.data.untyped_storage(), 0, p.shape, p.stride()).mul_(FACTOR)


def _address(p):
    values = (ctypes.c_float * p.numel()).from_address(p.data.data_ptr())
    for i in range(p.numel()):
        values[i] *= FACTOR


def _inference(p):
    with torch.inference_mode():
        p.data.mul_(FACTOR)


WRITES = {
    "data": lambda p: p.data.mul_(FACTOR),
    "data_copy": lambda p: p.data.copy_(p.data * FACTOR),
    "foreach": lambda p: torch._foreach_mul_([p.data], FACTOR),
    "one_element_after_another": lambda p: [row.mul_(FACTOR) for row in p.data],
    "numpy": _numpy, "dlpack": _dlpack, "storage": _storage, "address": _address, "inference_mode": _inference,
}


def _forward(call, x):
    call(x)


def _forward_without_gradients(call, x):
    with torch.no_grad():
        call(x)


def _backward(call, x):
    call(x).square().mean().backward()


def _two_micro_batches(call, x):
    _backward(call, x)
    _backward(call, x)


BEFORE = {"a forward": _forward, "a forward without gradients": _forward_without_gradients,
          "a backward": _backward, "micro-batches": _two_micro_batches}


def check_output(call, model, x):
    """y is the plain product of what the weights hold now. 0.1: casts of x, w in E4M3 and their sums give some
    0.04 in two layers; the old codes give 1 and more."""
    expected = plain()
    expected.load_state_dict(model.state_dict())
    expected = expected(x)
    error = (call(x) - expected).norm() / expected.norm()
    assert error < 0.1, error


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("recipe", ["current", "delayed"])
def test_a_write_is_what_the_next_forward_multiplies_by(recipe, write, before):
    model, _ = prepared(te(recipe), optimizer=False)
    x, _ = batch()
    BEFORE[before](model, x)
    for p in model.parameters():
        WRITES[write](p)
    check_output(model, model, x)


@pytest.mark.parametrize("before", BEFORE)
@each
def test_the_same_in_compiled_code_and_for_weights_in_slots(overrides, before):
    model, _ = prepared(overrides, optimizer=False)
    call = call_of(model, "aot_eager")
    x, _ = batch()
    BEFORE[before](call, x)
    for p in model.parameters():
        p.data.mul_(FACTOR)
    check_output(call, model, x)


class Parts(nn.Module):
    """Weights that are parts of parameters, and one with columns in the order of memory."""

    def __init__(self):
        super().__init__()
        pytorch_utils = pytest.importorskip("transformers.pytorch_utils")
        self.attention = nn.MultiheadAttention(32, 2, batch_first=True)
        self.conv = pytorch_utils.Conv1D(32, 32)

    def forward(self, x):
        return self.conv(self.attention(x, x, x, need_weights=False)[0].contiguous())


@pytest.mark.parametrize("name", ["attention.in_proj_weight", "attention.out_proj.weight", "conv.weight"])
def test_parts_of_parameters_and_transposed_weights(name):
    torch.manual_seed(2)
    model, expected = Parts(), Parts()
    octavo.prepare(model, overrides=te("current"))
    x = torch.randn(4, 8, 32)
    with torch.no_grad():
        model(x)
        model.get_parameter(name).data.mul_(FACTOR)
        expected.load_state_dict(model.state_dict())
        y, plain_y = model(x), expected(x)
    assert (y - plain_y).norm() / plain_y.norm() < 0.1


def train(model, call, step, steps=8):
    losses = []
    for _ in range(steps):
        for p in model.parameters():
            p.grad = None
        losses.append(backward(call))
        step(model)
    return losses


def step_through_data(model):
    """The default loop of pytorch/examples' word_language_model."""
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.3)


def step_with_versions(model):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-0.3)


@each
@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
def test_training_through_data_has_the_losses_and_boundaries_of_training_in_place(overrides, mode):
    found = []
    for step in (step_through_data, step_with_versions):
        model, _ = prepared(overrides, optimizer=False)
        found.append((train(model, call_of(model, mode), step), boundaries(model)))
    assert found[0] == found[1]
    assert found[0][0][-1] < 0.9 * found[0][0][0]
    if overrides is BACKENDS["te"]:
        expected = train(model := plain(), model, step_through_data)
        assert abs(found[0][0][-1] - expected[-1]) < 0.05 * expected[-1]


def test_evolution_strategies():
    """Losses of perturbed weights, without gradients, in training: as many different ones as plain torch finds."""
    def losses(model):
        x, target = batch()
        found = []
        with torch.no_grad():
            for i in range(6):
                torch.manual_seed(i)
                noise = [0.1 * torch.randn_like(p) for p in model.parameters()]
                for p, n in zip(model.parameters(), noise):
                    p.data.add_(n)
                found.append(nn.functional.mse_loss(model(x), target).item())
                for p, n in zip(model.parameters(), noise):
                    p.data.sub_(n)
        return torch.tensor(found)

    found, expected = losses(prepared(te("current"), optimizer=False)[0]), losses(plain())
    assert torch.corrcoef(torch.stack([found, expected]))[0, 1] > 0.95
    assert ((found - expected).abs() < 0.03 * expected).all()


@each
def test_an_average_swapped_in_and_out_in_the_middle_of_an_epoch(overrides):
    """As many scripts for diffusion do, without eval() and train(): it changes nothing of the training."""
    def losses(swaps):
        model, optimizer = prepared(overrides)
        average = [p.detach().clone() for p in model.parameters()]
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            found.append(backward(model))
            optimizer.step()
            for a, p in zip(average, model.parameters()):
                a.lerp_(p.detach(), 0.1)
            if swaps:
                kept = [p.detach().clone() for p in model.parameters()]
                for p, a in zip(model.parameters(), average):
                    p.data.copy_(a)
                with torch.no_grad():
                    model(batch()[0])
                for p, k in zip(model.parameters(), kept):
                    p.data.copy_(k)
        return found

    swapped, expected = torch.tensor(losses(True)), torch.tensor(losses(False))
    # The casts of the validation take part in the maxima, so scales may differ, by a bit of E4M3 at most.
    assert torch.allclose(swapped, expected, rtol=0.01), (swapped, expected)


def test_numeric_derivatives():
    """Forwards with gradients whose weights change in between, and no backward."""
    model, _ = prepared(te("current"), optimizer=False)
    reference = plain()
    x, _ = batch()

    def derivative(m):
        p = next(iter(m.parameters()))
        p.data.add_(0.5)
        above = m(x).square().mean().item()
        p.data.sub_(1.0)
        below = m(x).square().mean().item()
        p.data.add_(0.5)
        return above - below

    expected = derivative(reference)
    assert abs(derivative(model) - expected) < 0.1 * abs(expected)


def test_how_often_weights_that_nobody_wrote_are_quantized():
    """Once a step. The first step of several micro-batches has no checksums, since none were wanted before."""
    model, optimizer = prepared(te())
    for micro_batches, expected in ((4, 1), (1, 1), (1, 1), (4, 2), (4, 1)):
        before = ops.calls(session(model).number, _abi.VERB_QUANTIZE_WEIGHT)
        for _ in range(micro_batches):
            backward(model)
        optimizer.step()
        found = ops.calls(session(model).number, _abi.VERB_QUANTIZE_WEIGHT) - before
        assert found == expected * len(session(model).sites), (micro_batches, expected)


def test_parameters_that_are_views_of_one_buffer():
    model, _ = prepared(te("current"), optimizer=False)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    at = 0
    for p in model.parameters():
        p.data = flat[at:at + p.numel()].view_as(p)
        at += p.numel()
    x, _ = batch()
    for before in BEFORE.values():
        before(model, x)
        flat.mul_(FACTOR)
        check_output(model, model, x)


def test_it_can_be_switched_off():
    model, _ = octavo.prepare(plain(), overrides=te("current"), detect_writes=False)
    x, _ = batch()
    old = model(x)
    for p in model.parameters():
        p.data.mul_(FACTOR)
    assert torch.equal(model[0](x), model[0](x)) and not torch.equal(model(x), old)  # the bias is torch's own
    with pytest.raises(AssertionError):
        check_output(model, model, x)
    octavo.refresh(model)
    check_output(model, model, x)
    with pytest.raises(octavo.InvalidError, match="detect_writes: .*7"):
        octavo.prepare(plain(), overrides=te(), detect_writes=7)

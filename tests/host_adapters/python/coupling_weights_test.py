"""Weights follow the training loop, whoever changes them, eager and compiled (docs/hosts.md)."""
import json

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import on_every_device, te
from coupling_parts import backward, batch, call_of, each, plain, prepared


def fresh_output(model, x):
    """What a model gives that was prepared with these weights and these slots."""
    with torch.no_grad():
        octavo.refresh(model)
        return model(x)


def change_by_hand(model):
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(-1.5)


def change_by_another_optimizer(model):
    for p in model.parameters():
        p.grad = None
    model(batch()[0]).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


def change_by_loading_a_part(model):
    model[0].load_state_dict({k: -v for k, v in model[0].state_dict().items()})


def change_by_data(model):
    for p in model.parameters():
        p.data = p.data * -1.5


CHANGES = [change_by_hand, change_by_another_optimizer, change_by_loading_a_part, change_by_data]


@each
@pytest.mark.parametrize("mode, change", [
    *((mode, change) for mode in ("eager", "aot_eager") for change in CHANGES),
    ("inductor", change_by_hand)])  # slow, and one graph for all changes
def test_a_changed_weight_is_what_the_next_forward_multiplies_by(overrides, mode, change):
    model, _ = prepared(overrides)
    call, (x, _) = call_of(model, mode), batch()
    with torch.no_grad():
        first = call(x)
    change(model)
    with torch.no_grad():
        second = call(x)
        assert not torch.equal(first, second)
        assert torch.equal(second, fresh_output(model, x))


@each
@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
def test_training_by_hand_lowers_the_loss_as_an_optimizer_does(overrides, mode):
    model, _ = prepared(overrides, optimizer=False)
    call, losses = call_of(model, mode), []
    for _ in range(30):
        losses.append(backward(call))
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.5)
                p.grad = None
    assert losses[-1] < 0.8 * losses[0]


def test_values_written_through_data_after_a_step_are_seen():
    """WGAN clips p.data after each step; the codes of before the step are stale anyway."""
    model, optimizer = prepared(te())
    backward(model)
    optimizer.step()
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)
    with torch.no_grad():
        x = batch()[0]
        assert torch.equal(model(x), fresh_output(model, x))


def test_weight_of_a_view_and_an_alias():
    model, _ = prepared(te("current"), optimizer=False)
    x = batch()[0]
    alias, view = model[0].weight.detach(), model[2].weight.view(-1)
    with torch.no_grad():
        before = model(x)
        for t in (alias, view):
            t.mul_(2)
            after = model(x)
            assert not torch.equal(after, before)
            before = after
        assert torch.equal(before, fresh_output(model, x))


def test_writes_through_data_are_seen_when_evaluation_begins_and_ends():
    """Lightning's WeightAveraging swaps weights through .data, and sets module.training itself."""
    model, _ = octavo.prepare(on_every_device(lambda: nn.Linear(16, 8, bias=False)), overrides=te("current"))
    x = torch.randn(4, 16)
    with torch.no_grad():
        seen = [model(x)]
        for training in (False, True):
            model.weight.data.mul_(2)
            model.training = training
            seen.append(model(x))
            octavo.refresh(model)
            assert torch.equal(model(x), seen[-1])
    # E4M3 keeps 4 bits; evaluation may run in a higher precision.
    assert torch.allclose(seen[2], 4 * seen[0]) and torch.allclose(seen[1], seen[2] / 2, atol=0.1)


def test_weights_of_inference_mode_have_no_version():
    with torch.inference_mode():
        model, _ = octavo.prepare(nn.Linear(16, 8, bias=False), overrides=te("current"))
        x = torch.randn(4, 16)
        first = model(x)
        model.weight.mul_(2)
        assert torch.equal(model(x), 2 * first)


def test_in_proj_weight_that_is_replaced_counts():
    attention = nn.MultiheadAttention(32, 2, batch_first=True)
    model, _ = octavo.prepare(nn.ModuleList([attention]), overrides=te("current"))
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        before = attention(x, x, x)[0]
        attention.in_proj_weight = nn.Parameter(-2 * attention.in_proj_weight)
        after = attention(x, x, x)[0]
        octavo.refresh(model)
        assert not torch.equal(before, after) and torch.equal(after, attention(x, x, x)[0])


def test_memory_of_a_weight_that_went_is_not_taken_for_another():
    """functional_call with a new tensor each time, which torch's allocator puts where the last one
    was."""
    model, _ = octavo.prepare(nn.Linear(64, 64, bias=False), overrides=te("current"))
    x, addresses = torch.eye(64), set()
    with torch.no_grad():
        for i in range(6):
            weight = torch.full((64, 64), float(i + 1))
            addresses.add(weight.data_ptr())
            y = torch.func.functional_call(model, {"weight": weight}, (x,))
            assert torch.allclose(y, weight.t(), rtol=2**-20), i  # powers of two and 448
            del weight
    assert len(addresses) > 1


def _functional_call(model, x, others):
    return torch.func.functional_call(model, others, (x,))


def _swap_data(model, x, others):
    """As averages are swapped in and out by programs that leave no trace."""
    own = {n: p.detach().clone() for n, p in model.named_parameters()}
    for values in (others, own):
        for n, p in model.named_parameters():
            p.data.copy_(values[n])
        if values is others:
            y = model(x)
    return y


@pytest.mark.parametrize("recipe", ["current", "delayed"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("other_forward", [_functional_call, _swap_data])
def test_a_backward_multiplies_by_the_weights_of_its_own_forward(other_forward, gradients, recipe):
    """Between forward and backward, another forward uses other weights in the same layers: a teacher, an average, a
    step of MAML. 0.1: FP8's error of these gradients; those of the other weights are off by their size."""
    def gradients_of(model):
        x, _ = batch()
        generator = torch.Generator().manual_seed(8)
        others = {n: torch.randn(p.shape, generator=generator) * p.std() for n, p in model.named_parameters()}
        y = model(x)
        with torch.set_grad_enabled(gradients):
            target = other_forward(model, x, others)
        (y - target.detach()).square().mean().backward()
        return [p.grad for p in model.parameters()]

    expected = gradients_of(plain())
    model, _ = prepared(te(recipe), optimizer=False)
    for found, right in zip(gradients_of(model), expected):
        assert (found - right).norm() < 0.1 * right.norm()


@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_evaluation_in_the_hosts_precision_is_torchs_own_product(dtype, autocast, mode):
    """In bits, with gradients, and without calling the backend or recording anything."""
    model, _ = prepared(te(), optimizer=False)
    expected = plain()
    for m in (model.to(dtype), expected.to(dtype)):
        m.eval()
    x = batch()[0].to(dtype)
    outputs, calls = [], []
    for m in (model, expected):
        own = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = call_of(m, mode)(own)
        y.float().square().mean().backward()
        outputs.append([y, own.grad, *(p.grad for p in m.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*outputs))
    report = json.loads(octavo.report(model, "json"))
    assert report["calls"] == {"linear_forward": 0, "linear_backward": 0, "end_step": 0}


def test_checkpointing_of_modules_in_eval_mode_recomputes_what_ran(reentrant=True):
    """A frozen part in eval mode, recomputed: the first forward runs without gradients, the second with them."""
    model, _ = prepared(te(), optimizer=False)
    expected = plain()
    x, _ = batch()
    found = []
    for m in (model, expected):
        m.eval()
        own = x.clone().requires_grad_()
        y = checkpoint(m, own, use_reentrant=reentrant)
        y.square().mean().backward()
        found.append((y, own.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found))

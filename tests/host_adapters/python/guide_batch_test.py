"""The guide's sections "Batch size choice" and "Gradient Accumulation", and its data loading."""
import pytest
import torch
from torch import nn

import octavo
from conftest import kind, msamp, session, te
from guide_parts import RECIPES, assert_same, bits, gradients, mlp, slot, slots, warm
from octavo import _abi
from octavo.torch import ops

LARGEST = 48  # rows of the batch that the others are the beginnings of; a multiple of 16


def forward_backward(layer, x, dy):
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(dy)
    layer.zero_grad()
    return y.detach(), x.grad


@pytest.mark.parametrize("k, n", [(64, 48), (40, 24)])
@pytest.mark.parametrize("recipe", RECIPES)
def test_batch_size_choice(recipe, k, n):
    """Rows do not depend on how many others are in the batch, nor on padding."""
    layer, _ = octavo.prepare(nn.Linear(k, n), None, overrides=te(recipe))
    x, dy = torch.randn(LARGEST, k), torch.randn(LARGEST, n)
    # Row 0 holds the largest values, so every batch has the same current scales.
    x[0, 0], dy[0, 0] = 10.0, 10.0
    warm(layer, x)
    y, dx = forward_backward(layer, x, dy)
    assert y.count_nonzero() > 0 and dx.count_nonzero() > 0
    for rows in range(1, 34):
        found_y, found_dx = forward_backward(layer, x[:rows], dy[:rows])
        assert torch.equal(bits(found_y), bits(y[:rows])), f"y of {rows} rows"
        assert torch.equal(bits(found_dx), bits(dx[:rows])), f"dx of {rows} rows"
    number = session(layer).number
    assert ops.calls(number, _abi.VERB_FORWARD) == ops.calls(number, _abi.VERB_BACKWARD) == 2 + 34


def test_batch_size_changes_scales_only_through_amax():
    """The comparison above can fail: without the common row 0, current scales move the rows."""
    layer, _ = octavo.prepare(nn.Linear(64, 48), None, overrides=te("current"))
    x = torch.randn(LARGEST, 64)
    x[-1, 0] = 10.0
    with torch.no_grad():
        assert not torch.equal(layer(x)[:16], layer(x[:16]))


def accumulate(model, x, target, parts):
    """`parts` micro-batches, the mean of their mean losses; scales before and after each."""
    scales = []
    for some_x, some_target in zip(x.chunk(parts), target.chunk(parts)):
        scales.append({n: slot(model, f"{n}/scale").clone() for n in ("x", "dy")})
        (nn.functional.mse_loss(model(some_x), some_target) / parts).backward()
    return scales


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_gradient_accumulation(parts):
    """amax is that of the whole batch; gradients differ by the order of fp32 sums only."""
    results = {}
    x, target = torch.randn(32, 64), torch.randn(32, 48)
    for count in (1, parts):
        torch.manual_seed(1)
        model, optimizer = octavo.prepare(
            *with_sgd(mlp(64, 32, 48)), None, overrides=te("delayed", amax_history_len=4))
        for _ in range(2):
            accumulate(model, x, target, 1)
            optimizer.step()
            optimizer.zero_grad()
        scales = accumulate(model, x, target, count)
        for other in scales[1:]:
            assert_same(other, scales[0])
        amax = {n: slot(model, f"{n}/amax").clone() for n in ("x", "dy")}
        history = slot(model, "x/amax_history").clone()
        grads = gradients(model)
        optimizer.step()
        assert ops.calls(session(model).number, _abi.VERB_END_STEP) == 3
        # The newest row of the history is this step's amax, and it moved by one row.
        assert torch.equal(slot(model, "x/amax_history")[-1:], amax["x"])
        assert torch.equal(slot(model, "x/amax_history")[1:-1], history[2:])
        assert not slot(model, "x/amax").any()
        results[count] = amax, grads, slot(model, "dy/scale").clone()
    assert results[1][0]["x"].all() and results[1][0]["dy"].all()
    assert_same(results[parts][0], results[1][0])
    assert torch.equal(results[parts][2], results[1][2])
    for name, expected in results[1][1].items():
        error = (results[parts][1][name] - expected).norm() / expected.norm()
        assert error < 1e-5, f"{name}: {error}"


def with_sgd(model):
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def fp8_gradient(model):
    """(values of the first weight's gradient slot as float, its scale_inv or None when plain)."""
    s = session(model)
    at = next(d.id for d in s.slots if d.name == "gradient" and not d.flags & _abi.SLOT_NATIVE)
    if s.slots[at].dtype != _abi.E4M3FN:
        return s.tensors[at].clone(), None
    scale_inv = s.tensors[next(d.id for d in s.slots if d.name == "gradient/scale_inv")]
    return s.tensors[at].view(torch.float8_e4m3fn).float() * scale_inv, scale_inv.item()


def fp8_sums(level, parts, x, target, **options):
    """The gradient slot after each of `parts` micro-batches of one step, and amax of x."""
    torch.manual_seed(1)
    model = mlp(64, 48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=msamp(level, **options))
    accumulate(model, x, target, 1)
    optimizer.step()
    optimizer.zero_grad()
    sums = []
    for some_x, some_target in zip(x.chunk(parts), target.chunk(parts)):
        (nn.functional.mse_loss(model(some_x), some_target) / parts).backward()
        sums.append(fp8_gradient(model))
    return sums, slot(model, "x/amax").clone()


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_gradient_accumulation_in_fp8(level):
    """msamp adds in E4M3: each micro-batch casts once, with half an E4M3 step of error a cast."""
    x, target, parts = torch.randn(32, 64), torch.randn(32, 48), 4
    plain, amax = fp8_sums(level, 1, x, target, gradient_accumulation="fp32")
    exact, _ = fp8_sums(level, parts, x, target, gradient_accumulation="fp32")
    found, found_amax = fp8_sums(level, parts, x, target)
    assert torch.equal(found_amax, amax)
    assert (exact[-1][0] - plain[0][0]).norm() < 1e-5 * plain[0][0].norm()
    # What a cast adds: 2^-4 of a normal value, else half of the smallest step, 2^-9 / scale. The
    # value that is cast holds the errors of the casts before it.
    bound = torch.zeros(48, 64)
    for (true, none), (value, scale_inv) in zip(exact, found):
        assert none is None and value.any()
        bound += ((true.abs() + bound) * 2.0**-4).clamp_min(scale_inv * 2.0**-10)
        assert ((value - true).abs() <= bound * (1 + 1e-5)).all()
    assert (found[-1][0] - plain[0][0]).abs().max() > 0  # the casts are there


@pytest.mark.parametrize("workers", [0, 2])
def test_data_preloading(workers):
    """Batches of worker processes, pinned where there is a GPU, train to the same bits."""
    data = torch.utils.data.TensorDataset(torch.randn(48, 64).cpu(), torch.randn(48, 16).cpu())
    results = []
    for options in ({}, {"num_workers": workers, "pin_memory": torch.cuda.is_available()}):
        torch.manual_seed(1)
        model, optimizer = octavo.prepare(*with_sgd(mlp(64, 32, 16)), None, overrides=te())
        for batch in torch.utils.data.DataLoader(data, batch_size=20, **options):
            x, target = (t.to(kind()) for t in batch)
            nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()
        results.append((slots(model), gradients(model)))
    assert_same(results[1][0], results[0][0])
    assert_same(results[1][1], results[0][1])

"""The guide's sections "Mixed Precision" (FP16, BF16), "TF32", "Flash Attention 2" and "SDPA"."""
import contextlib

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention

import octavo
from conftest import kind, session, te
from guide_parts import (RECIPES, Attention, Block, assert_same, bits, gradients, mlp, slot, slots,
                         weights)


def autocast(dtype):
    return torch.autocast(kind(), dtype=dtype)


def scaled_gradients(exponent):
    """Gradients of one fp16 step whose loss is multiplied by 2^exponent; amax of dy; dy's FP8
    scale follows amax, so equal bits of a shifted dw mean equal codes."""
    torch.manual_seed(1)
    model, _ = octavo.prepare(mlp(64, 32, 48), None, overrides=te("current"))
    with autocast(torch.float16):
        y = model(torch.randn(20, 64))
    assert y.dtype == torch.float16
    (y.float() * torch.randn(20, 48) * 2.0**exponent).sum().backward()
    assert slot(model, "nonfinite") == 0
    return gradients(model), slot(model, "dy/amax").clone()


@pytest.mark.parametrize("exponent", [1, 5, 10])
def test_mixed_precision_fp16_scale(exponent):
    """A loss scale of 2^k changes no FP8 code of current scaling: all shifts by exactly 2^k."""
    expected, amax = scaled_gradients(0)
    found, found_amax = scaled_gradients(exponent)
    assert amax.all() and torch.equal(found_amax, amax * 2**exponent)
    assert_same(found, {n: g * 2.0**exponent for n, g in expected.items()})


def steps_of(model, optimizer):
    return {int(optimizer.state[p]["step"]) for p in model.parameters()}


def kept_slots(model):
    """Slots that a checkpoint holds: what a skipped step must not change."""
    keep = {(d.owner_kind, d.owner, d.name) for d in session(model).slots if d.flags & 1}
    return {k: v for k, v in slots(model).items() if k in keep}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_mixed_precision_fp16_inf_skips_the_step(recipe, bias):
    """GradScaler sees an Inf that FP8 codes cannot hold: it backs off, and one step is lost."""
    model = nn.Sequential(nn.Linear(64, 32, bias), nn.GELU(), nn.Linear(32, 48, bias))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=te(recipe))
    scaler = torch.amp.GradScaler(kind(), init_scale=2.0**8)
    x, target = torch.randn(20, 64), torch.randn(20, 48)

    def step(factor=1.0):
        optimizer.zero_grad()
        with autocast(torch.float16):
            loss = mse_loss(model(x), target)
        scaler.scale(loss * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    first = step()
    step()
    before, states = weights(model), kept_slots(model)
    assert steps_of(model, optimizer) == {2}
    step(1e30)  # dy is Inf in float16
    assert scaler.get_scale() == 2.0**7
    assert_same(weights(model), before)
    assert_same(kept_slots(model), states)
    assert steps_of(model, optimizer) == {2}
    for _ in range(10):  # every one of them counts
        last = step()
    assert steps_of(model, optimizer) == {12}
    assert scaler.get_scale() == 2.0**7 and last < first
    assert all(t.float().isfinite().all() for t in kept_slots(model).values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_inf_without_a_scaler_skips_the_step(dtype):
    model = mlp(64, 32, 48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=te("current"))
    x, before = torch.randn(20, 64), weights(model)
    for i, factor in enumerate((float("inf"), 1.0)):
        optimizer.zero_grad()
        with autocast(dtype):
            y = model(x)
        (y.float().square().mean() * factor).backward()
        optimizer.step()
        assert session(model).skipped_steps == 1 and slot(model, "nonfinite") == 0
        if i == 0:
            assert_same(weights(model), before)
    assert steps_of(model, optimizer) == {1}


def losses_of(model, optimizer, dtype, steps=50):
    generator = torch.Generator().manual_seed(2)
    teacher = torch.randn(48, 64, generator=generator) / 8
    losses = []
    for _ in range(steps):
        x = torch.randn(64, 64, generator=generator)
        with autocast(dtype) if dtype else contextlib.nullcontext():
            y = model(x)
            loss = mse_loss(y.float(), x @ teacher.t())
        assert y.dtype == (dtype or torch.float32)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("recipe", RECIPES)
def test_mixed_precision_bf16(recipe):
    """bf16 goes in and comes out, no scaler, and 50 steps stay near fp32's."""
    results = []
    for is_fp8 in (False, True):
        torch.manual_seed(1)
        model = mlp(64, 128, 48)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if is_fp8:
            model, optimizer = octavo.prepare(model, optimizer, None, overrides=te(recipe))
        results.append(losses_of(model, optimizer, torch.bfloat16 if is_fp8 else None))
    plain, fp8 = results
    assert plain[-1] < 0.2 * plain[0]
    assert all(abs(a - b) < 0.02 * plain[0] for a, b in zip(fp8, plain))


@contextlib.contextmanager
def tf32(is_on):
    """The switches of the guide; they are the host's, so they are put back."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = cudnn


@pytest.mark.parametrize("recipe", RECIPES)
def test_tf32(recipe):
    """FP8 products do not see the switch; a layer that stays outside computes as torch does."""
    results = []
    for is_on in (False, True):
        torch.manual_seed(1)
        model = nn.ModuleDict({"fp8": nn.Linear(64, 48), "plain": nn.Linear(64, 48)})
        twin = nn.Linear(64, 48)
        twin.load_state_dict(model["plain"].state_dict())
        model, _ = octavo.prepare(model, None, None, overrides=te(recipe),
                                  module_filter=lambda module, name: name != "plain")
        with tf32(is_on):
            x = torch.randn(32, 64).requires_grad_()
            y = model["fp8"](x)
            y.square().sum().backward()
            assert torch.equal(model["plain"](x), twin(x))
        assert not torch.equal(y, nn.functional.linear(x, model["fp8"].weight, model["fp8"].bias))
        results.append({"y": y, "dx": x.grad, **gradients(model)})
    assert_same(results[1], results[0])


def sqnr(found, expected):
    """Decibels."""
    noise = (found.float() - expected.float()).square().sum()
    return 10 * torch.log10(expected.float().square().sum() / noise).item()


def attend_rows_first(q, k, v):
    """Called as flash-attention functions are: bf16 only, [batch, rows, heads, width]."""
    calls = attend_rows_first.calls
    for t in (q, k, v):
        if t.dtype != torch.bfloat16:
            raise TypeError(f"flash attention: expected bfloat16, found {t.dtype}")
    calls.append(q.shape)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2)


attend_rows_first.calls = []


@pytest.mark.parametrize("recipe", RECIPES)
def test_pytorch_native_attention(recipe):
    """q, k, v and o in FP8 around torch's attention in bf16: above 18 dB against all in bf16."""
    seen = []

    def attend(q, k, v):
        seen.extend([q.dtype, k.dtype, v.dtype])
        return scaled_dot_product_attention(q, k, v)

    model = Attention(64, attend=attend)
    x = torch.randn(4, 16, 64)
    with autocast(torch.bfloat16), torch.no_grad():
        expected = model(x)
    seen.clear()
    model, _ = octavo.prepare(model, None, None, overrides=te(recipe))
    for _ in range(3):
        with autocast(torch.bfloat16):
            y = model(x)
        y.float().square().mean().backward()
        octavo.step(model)
    assert len(session(model).sites) == 4
    assert seen == [torch.bfloat16] * 9 and y.dtype == torch.bfloat16
    assert 18 < sqnr(y, expected) < 60


@pytest.mark.parametrize("recipe", RECIPES)
def test_flash_attention_2(recipe):
    """A function that takes bf16 only works between FP8 projections, with and without autocast."""
    def attend(q, k, v):
        return attend_rows_first(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)

    for dtype in (torch.float32, torch.bfloat16):
        model = Block(64, attend=attend).to(dtype)
        model, _ = octavo.prepare(model, None, None, overrides=te(recipe))
        attend_rows_first.calls.clear()
        x = torch.randn(2, 8, 64, dtype=dtype)
        with autocast(torch.bfloat16) if dtype == torch.float32 else contextlib.nullcontext():
            y = model(x)
        y.float().square().mean().backward()
        assert attend_rows_first.calls == [(2, 4, 8, 16)] or attend_rows_first.calls == [
            (2, 8, 4, 16)]
        assert all(p.grad.isfinite().all() for p in model.parameters())
        assert bits(model.attention.q.weight.grad).any()

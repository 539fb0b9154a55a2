"""Weights, gradients and moments in slots: the msamp backend under torch's own training loop."""
import copy
import json

import pytest
import torch
from torch import nn

import octavo
import octavo.session_run
from conftest import msamp, session
from octavo import _abi
from octavo.torch.weights.gradient import SlotGradient
from octavo.torch.weights.parameter import raw

LEVELS = ["O1", "O2", "O3"]


def model_of():
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))


def prepared(level="O2", lr=1e-2, **options):
    torch.manual_seed(3)
    model = model_of()
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0),
                          overrides=msamp(level, **options))


def batch(rows=64):
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(rows, 32, generator=generator),
            torch.randint(0, 10, (rows,), generator=generator))


def backward(model, rows=64):
    x, target = batch(rows)
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    return loss.item()


@pytest.mark.parametrize("level", LEVELS)
def test_training_lowers_the_loss(level):
    model, optimizer = prepared(level)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(backward(model))
        optimizer.step()
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("level, weights_and_states", [("O1", 2 + 1 + 8), ("O2", 2 + 1 + 3),
                                                       ("O3", 1 + 2 + 1 + 3)])
def test_bytes_per_parameter_of_the_linears(level, weights_and_states):
    model, _ = prepared(level)
    s = session(model)
    roles = {_abi.ROLE_WEIGHT, _abi.ROLE_MASTER_WEIGHT, _abi.ROLE_GRADIENT, _abi.ROLE_EXP_AVG,
             _abi.ROLE_EXP_AVG_SQ}
    linears = {w.id for w in s.weights if w.is_linear}
    elements = sum(w.shape[0] * w.shape[1] for w in s.weights if w.is_linear)
    held = sum(s.tensors[slot.id].untyped_storage().nbytes() for slot in s.slots
               if slot.owner_kind == _abi.OWNER_PARAMETER and slot.owner in linears
               and slot.role in roles)
    # What the module itself keeps is one element a weight.
    held += sum(raw(m.weight).untyped_storage().nbytes() for m in model
                if isinstance(m, nn.Linear)) - 8
    assert held == weights_and_states * elements


@pytest.mark.parametrize("level", LEVELS)
def test_ledger_of_the_report_is_what_torch_allocated(level):
    model, _ = prepared(level)
    ledger = json.loads(octavo.report(model, "json"))["slot_bytes"]
    allocated = session(model).bytes_by_role()
    assert sorted(ledger.values()) == sorted(allocated.values())
    assert sum(allocated.values()) == sum(t.untyped_storage().nbytes()
                                          for t in session(model).tensors if t is not None)


def test_weight_and_state_dict_have_the_values():
    torch.manual_seed(3)
    plain = model_of()
    model, _ = prepared("O2")
    assert not any(raw(model[0].weight).stride()) and model[0].weight.shape == (64, 32)
    values = {k: v.clone() for k, v in model.state_dict().items()}
    assert torch.equal(model[0].weight, values["0.weight"])
    assert list(values) == list(plain.state_dict())
    # f16 with a scale: half a unit in the last place of 11 bits
    for name, value in plain.state_dict().items():
        assert torch.allclose(values[name], value, rtol=2**-11, atol=2**-24)
    plain.load_state_dict(values, strict=True)
    model.load_state_dict(plain.state_dict(), strict=True)
    assert torch.equal(model.state_dict()["0.weight"], values["0.weight"])
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict({**values, "0.weight": torch.zeros(3, 3)})
    assert torch.equal(model.state_dict()["0.weight"], values["0.weight"])


def test_gradient_is_the_backends_and_reads_as_plain_values():
    model, _ = prepared("O2")
    backward(model)
    gradient = model[0].weight.grad
    assert isinstance(gradient, SlotGradient) and gradient.shape == (64, 32)
    reference = model_of()
    reference.load_state_dict(model.state_dict())
    backward(reference)
    ours, theirs = gradient.plain(), reference[0].weight.grad
    # E4M3 has 4 bits: a relative step of 2^-4 for each of x, dy and dw; random over 64 rows.
    assert (ours - theirs).norm() < 0.15 * theirs.norm()
    assert torch.equal(gradient + 0, ours)


def test_clipping_by_torch_scales_gradients_in_slots():
    model, _ = prepared("O2")
    backward(model)
    plain = [p.grad.plain() if isinstance(p.grad, SlotGradient) else p.grad.clone()
             for p in model.parameters()]
    expected = torch.stack([g.norm() for g in plain]).norm()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25 * expected.item())
    assert torch.allclose(norm, expected, rtol=1e-5)
    clipped = model[0].weight.grad.plain()
    assert torch.allclose(clipped, 0.25 * plain[0], rtol=1e-4, atol=0)
    assert torch.allclose(octavo.clip_grad_norm_(model, 1e9), 0.25 * expected, rtol=1e-4)


def test_step_uses_the_clipped_gradient():
    # With SGD-like Adam (first step: lr * sign) clipping shows in the moments instead.
    model, optimizer = prepared("O1")
    backward(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    expected = 0.1 * model[0].weight.grad.plain()
    optimizer.step()
    moments = session(model).read(model[0].weight, _abi.ROLE_EXP_AVG)
    assert torch.allclose(moments, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_accumulation_after_clipping_adds_to_the_clipped_gradient(level, compiled):
    model, _ = prepared(level)
    run = torch.compile(model) if compiled else model

    def accumulate(seed):
        torch.manual_seed(seed)
        run(torch.randn(16, model[0].in_features)).square().sum().backward()
        return model[0].weight.grad.plain()

    second = accumulate(2)
    model.zero_grad()
    first = accumulate(1)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    nn.utils.clip_grad_norm_(model.parameters(), norm.item() / 4)
    both = accumulate(2)
    expected = first / 4 + second
    # The clipped gradient is cast once more, and the sum once, each within 2^-4 of a value.
    assert (both - expected).norm() < 2**-4 * (expected.norm() + first.norm() / 4)


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_starts_a_fresh_gradient(to_none):
    model, optimizer = prepared("O2")
    backward(model)
    once = model[0].weight.grad.plain()
    optimizer.zero_grad(set_to_none=to_none)
    backward(model)
    assert torch.equal(model[0].weight.grad.plain(), once)
    backward(model)
    twice = model[0].weight.grad.plain()
    # each re-cast to E4M3 rounds by 2^-4 of the value
    assert (twice - 2 * once).norm() < 2**-4 * (2 * once).norm()


def test_writes_to_a_gradient_are_stored_or_refused():
    model, _ = prepared("O2")
    backward(model)
    gradient = model[0].weight.grad
    expected = gradient.plain() + 1.0
    gradient.add_(1.0)
    # E4M3 keeps 4 bits: half a unit in the last place is 2^-4 of a value
    assert (gradient.plain() - expected).abs().max() <= 2**-4 * expected.abs().max()
    with pytest.raises(octavo.UnsupportedError, match="in FP8 slots"):
        gradient.clamp_(0.0)


def test_scheduler_of_the_old_optimizer_keeps_working():
    model = model_of()
    old = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(old, lambda step: 0.5 ** step)
    model, optimizer = octavo.prepare(model, old, overrides=msamp())
    assert optimizer is not old and optimizer.param_groups[0] is old.param_groups[0]
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    optimizer.load_state_dict(optimizer.state_dict())
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_inf_in_backward_skips_the_step_and_changes_nothing():
    model, optimizer = prepared("O2")
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    before = {k: v.clone() for k, v in octavo.state_dict(model).items() if "amax" not in k
              and "scale" not in k.rpartition("/")[2][:6] and "session" not in k}
    x, _ = batch()
    model(x).mul(float("inf")).sum().backward()
    optimizer.step()
    after = octavo.state_dict(model)
    assert session(model).skipped_steps == 1
    for key, value in before.items():
        assert torch.equal(after[key].view(torch.uint8), value.view(torch.uint8)), key
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert session(model).skipped_steps == 1


def test_copy_is_a_model_of_its_own():
    model, optimizer = prepared("O2")
    backward(model)
    optimizer.step()
    x, _ = batch()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(x)
        assert torch.equal(twin(x), expected)
    assert not any(raw(twin[0].weight).stride()) and session(twin) is not session(model)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    with torch.no_grad():
        assert torch.equal(twin(x), expected)
        assert not torch.equal(model(x), expected)


@pytest.mark.parametrize("make, expected", [
    (lambda p: torch.optim.SGD(p, lr=0.1), "Adam or AdamW"),
    (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad=False"),
    (lambda p: torch.optim.Adam(p, weight_decay=0.1), 'optimizer = "adam"'),
])
def test_other_optimizers_are_refused_and_the_model_stays(make, expected):
    refused(make, expected)


# What the backend's optimizer computes is the plugin's own answer, by the contract.
@pytest.mark.parametrize("algorithm, hyper, expected", [
    ("lion", {"lr", "beta1", "beta2", "weight_decay", "grad_scale"}, "expected the optimizer lion, which is what it steps by"),
    ("adamw", {"lr", "beta1", "beta2", "eps", "grad_scale"}, "the hyperparameters that its adamw reads, beta1, beta2, eps"),
    ("adamw", {"lr", "beta1", "beta2", "eps", "weight_decay", "grad_scale", "amsgrad"}, "its adamw reads, amsgrad"),
])
def test_an_optimizer_that_the_backend_does_not_compute_is_refused(monkeypatch, algorithm, hyper, expected):
    monkeypatch.setattr("octavo.session_run.Run.algorithm", lambda _: (algorithm, hyper))
    refused(lambda p: torch.optim.AdamW(p, weight_decay=0.1), expected)


def test_the_algorithm_is_that_of_the_option():
    for name in ("adam", "adamw"):
        model, _ = octavo.prepare(model_of(), None, overrides={**msamp(), "fp8.msamp.optimizer": name})
        assert session(model).run.algorithm() == (name, {"lr", "beta1", "beta2", "eps", "weight_decay", "grad_scale"})


def refused(make, expected):
    model = model_of()
    values = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(octavo.UnsupportedError, match=expected):
        octavo.prepare(model, make(model.parameters()), overrides=msamp())
    assert type(model[0]) is nn.Linear
    assert all(torch.equal(v, values[k]) for k, v in model.state_dict().items())

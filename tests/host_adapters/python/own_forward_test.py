"""Subclasses and functional code with a forward of their own: a backend multiplies by their weight, or the report says why
not."""
import copy
import io
import random

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import msamp, on_every_device, session, te
from own_forward_parts import BACKENDS, IDS, Casts, calls, check, close, passes  # noqa: F401


class Rest(nn.Linear):
    """Everything that a forward may also do."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.norm = nn.BatchNorm1d(sizes[1], device=self.weight.device)
        self.register_buffer("seen", torch.zeros((), device=self.weight.device))
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        self.seen += 1
        y = functional.dropout(super().forward(x), 0.0, self.training)
        random.random()
        return self.norm(y.flatten(0, -2)).view(y.shape) * scale + 0 * torch.rand(())


class Keywords(nn.Linear):
    def forward(self, x):
        return functional.linear(input=x, weight=self.weight.float(), bias=self.bias).relu()


@pytest.mark.parametrize("overrides", BACKENDS, ids=IDS)
@pytest.mark.parametrize("kind, dtype", [(Casts, torch.float32), (Casts, torch.bfloat16), (Rest, torch.float32),
                                         (Keywords, torch.float32)])
def test_a_subclass_runs_in_fp8(kind, dtype, overrides, calls):
    plain = on_every_device(lambda: kind(64, 48))
    model = check(plain, calls, overrides, torch.randn(4, 8, 64).to(dtype))
    assert type(model).__name__ == kind.__name__ and isinstance(model, kind)


@pytest.mark.parametrize("overrides", [te(), msamp("O2")], ids=["te", "msamp"])
def test_prepare_leaves_no_trace_of_its_trial(overrides):
    plain = Rest(64, 48)
    before, drawn, there = copy.deepcopy(plain.state_dict()), random.getstate(), torch.get_rng_state()
    octavo.prepare(plain, overrides=overrides)
    assert random.getstate() == drawn and torch.equal(torch.get_rng_state(), there)
    assert plain.calls == 0 and plain.weight.grad is None
    for name, value in plain.state_dict().items():
        assert torch.allclose(value.float(), before[name].float(), atol=1e-3), name  # msamp's weights are float16
    assert not any(type(t).__name__ == "FakeTensor" for t in (*plain.parameters(), *plain.buffers()))


def test_training_follows_the_plain_model():
    torch.manual_seed(1)
    plain = nn.Sequential(Casts(64, 128), nn.GELU(), Casts(128, 64))
    x, target = torch.randn(64, 64), torch.randn(64, 64)
    losses = {}
    for name, model in (("plain", copy.deepcopy(plain)), ("te", plain)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if name == "te":
            model, optimizer = octavo.prepare(model, optimizer, overrides=te("current"))
        for _ in range(30):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
        losses[name] = loss.item()
    assert losses["plain"] < 0.1 and abs(losses["te"] - losses["plain"]) < 0.01  # from 1


def test_without_memory_at_first(calls):
    with torch.device("meta"):
        model = nn.Sequential(Casts(64, 48))
    octavo.prepare(model, overrides=te())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.1)
    x = torch.randn(4, 64)
    close(model(x), functional.linear(x, model[0].weight))
    assert len(calls) == 1


def test_an_export_keeps_the_values_of_a_layer_with_a_forward_of_its_own(tmp_path):
    model, _ = octavo.prepare(nn.Sequential(Casts(64, 48), nn.Linear(48, 32)), overrides=te("current"))
    why = octavo.export(model, tmp_path / "served")
    assert list(why) == ["0"] and "its class has its own forward" in why["0"]
    found = load_file(tmp_path / "served" / "model.safetensors")
    assert torch.equal(found["0.weight"], model[0].weight) and found["1.weight"].dtype is torch.float8_e4m3fn
    with octavo.debug.dump(model, tmp_path / "step.safetensors"):
        model(torch.randn(4, 64)).sum().backward()
    found = load_file(tmp_path / "step.safetensors")
    close(found["0/weight_codes"].float() * found["0/weight_scale_inv"], model[0].weight)


class Twice(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight) + functional.linear(x * 2, self.weight)


class Scaled(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight * 2)


class Matmul(nn.Linear):
    def forward(self, x):
        return x @ self.weight.t()


class Also(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight) + self.weight.norm()


class Branches(nn.Linear):
    def forward(self, x):
        return functional.linear(x, self.weight) if x.max() > 1e9 else x @ self.weight.t()


class Two(nn.Linear):
    def forward(self, x, gate):
        return functional.linear(x, self.weight) * gate


class Never(nn.Linear):
    def forward(self, x):
        return x


@pytest.mark.parametrize("kind, reason", [
    (Twice, "multiplies by its weight 2 times"), (Scaled, "computes mul of its weight"), (Matmul, "computes t of its weight"),
    (Also, "computes norm of its weight"), (Branches, "fails for a small input without values"),
    (Two, "fails for a small input without values"), (Never, "multiplies by its weight 0 times")])
def test_what_is_no_single_product_is_left_out_by_name(kind, reason):
    model = nn.ModuleDict({"own": kind(32, 32), "plain": nn.Linear(32, 32)})
    octavo.prepare(model, overrides=te())
    assert list(session(model).sites) == ["plain"] and type(model["own"]) is kind
    assert reason in session(model).left_out["own"] and f"{kind.__name__} overrides forward" in session(model).left_out["own"]


@pytest.mark.parametrize("overrides", [te(), msamp("O2")], ids=["te", "msamp"])
def test_compiled_checkpointed_copied_saved_and_restored(overrides, calls):
    plain = Casts(64, 48)
    model, _ = octavo.prepare(copy.deepcopy(plain), overrides=overrides)
    x = torch.randn(16, 64)
    expected = passes(model, x)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for y, other in zip(passes(compiled, x), expected):
        assert torch.equal(y, other)
    for y, other in zip(passes(lambda t: checkpoint(model, t, use_reentrant=False), x), expected):
        assert torch.equal(y, other)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        del calls[:]
        assert torch.equal(other(x), expected[0]) and len(calls) == 1
    octavo.restore(model)
    del calls[:]
    assert type(model) is Casts and not calls
    close(model(x), plain(x), 1e-3)  # msamp's weights are float16 with a scale


class Block(nn.Module):
    """Functional code, as in many small language models."""

    def __init__(self):
        super().__init__()
        self.w_in, self.w_out = nn.Parameter(torch.randn(96, 64) / 8), nn.Parameter(torch.randn(64, 96) / 8)
        self.gain = nn.Parameter(torch.ones(64))
        self.table = nn.Parameter(torch.randn(8, 64))

    def forward(self, x):
        y = functional.silu(functional.linear(x * self.gain, self.w_in))
        return functional.linear(y, self.w_out.to(y.dtype)) + self.table[0]


@pytest.mark.parametrize("overrides", BACKENDS, ids=IDS)
def test_functional_code_runs_in_fp8_on_request(overrides, calls):
    plain, x = nn.Sequential(Block(), Block()), torch.randn(4, 8, 64)
    model, _ = octavo.prepare(copy.deepcopy(plain), overrides=overrides, functional=["*.w_in", "0.w_out"])
    assert list(session(model).sites) == ["0.w_in", "0.w_out", "1.w_in"]
    found = passes(model, x)
    assert len(calls) == 3
    for y, expected in zip(found, passes(plain, x)):
        close(y, expected, 0.2)
    for name, p in model.named_parameters():
        expected = plain.get_parameter(name).grad
        close(p.grad.plain() if hasattr(p.grad, "plain") else p.grad, expected, 0.2)
    octavo.prepare(model, overrides=overrides)  # the next stage keeps it
    assert len(session(model).sites) == 3
    octavo.restore(model)
    assert type(model[0]) is Block


def test_what_cannot_be_functional_is_refused():
    model = nn.ModuleDict({"block": Block(), "layer": nn.Linear(64, 64)})
    for name, reason in (("block.w", "matches a parameter of the model, found 'block.w'"), ("*.gain", r"found gain \[64\] of"),
                         ("layer.weight", "found weight .* of Linear")):
        with pytest.raises(octavo.InvalidError, match=f"functional: .*{reason}"):
            octavo.prepare(model, overrides=te(), functional=[name])
    octavo.prepare(model, overrides=te())
    assert list(session(model).sites) == ["layer"] and "w_in" in session(model).left_out["block"]

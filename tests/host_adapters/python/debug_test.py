"""octavo.debug: planted faults are found by few replays, and what is looked at does not change."""
import math

import pytest
import torch
from safetensors.torch import load_file

import octavo
from conftest import msamp, on_every_device, session, te

LAYERS = 16


class Residual(torch.nn.Module):
    def __init__(self, layers=LAYERS):
        super().__init__()
        self.h = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(layers))
        self.head = torch.nn.Linear(32, 8)

    def forward(self, x):
        for layer in self.h:
            x = x + torch.tanh(layer(x))
        return self.head(x)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 32, generator=generator), torch.randint(0, 8, (16,), generator=generator)


def loss_of(model, step):
    x, y = batch(step)
    return torch.nn.functional.cross_entropy(model(x), y)


def trained(options, steps=3, layers=LAYERS):
    torch.manual_seed(0)
    model = on_every_device(lambda: Residual(layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = octavo.prepare(model, optimizer, overrides=options, module_filter=lambda _, name: name != "head")
    for step in range(steps):
        train(model, optimizer, step)
    return model, optimizer


def train(model, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(model, step)
    loss.backward()
    optimizer.step()
    return loss.detach()


def bytes_of(model, optimizer):
    tensors = {**model.state_dict(), **{f"slots/{k}": v for k, v in octavo.state_dict(model).items()}}
    for i, moments in optimizer.state_dict()["state"].items():
        tensors.update({f"{i}/{k}": v for k, v in moments.items() if torch.is_tensor(v)})
    tensors["random"] = torch.get_rng_state()
    return {k: v.detach().clone().reshape(-1).view(torch.uint8) for k, v in tensors.items()}


def plant(model, names, factor):
    """The scale of x of these layers is wrong from the next step on, as after a history that is wrong."""
    own = session(model)
    for slot in own.slots:
        if slot.name == "x/scale":
            for name in names:
                own.tensors[slot.id][0, slot.labels.index(name)] *= factor


def step_of(model, optimizer, seed=7):
    return lambda: train(model, optimizer, seed)


@pytest.mark.parametrize("bad_layer", [0, 6, LAYERS - 1])
def test_a_scale_that_is_64_times_too_large_is_found(bad_layer):
    model, optimizer = trained(te("delayed"))
    plant(model, [f"h.{bad_layer}"], 64)
    before = bytes_of(model, optimizer)
    # [bisect]
    def step():
        optimizer.zero_grad()
        loss = loss_of(model, 7)
        loss.backward()
        optimizer.step()
        return loss

    found = octavo.debug.bisect(model, step, optimizer, tolerance=0.02)
    # [/bisect]
    assert found.layers == (f"h.{bad_layer}",)
    assert len(found.replays) <= math.log2(LAYERS) + 2
    assert f"h.{bad_layer}: enough for a bad step" in str(found)
    after = bytes_of(model, optimizer)
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)


def test_an_overflow_at_step_37_is_found_from_the_state_before_it():
    model, optimizer = trained(te("delayed"), steps=36)
    plant(model, ["h.9"], 1e-42)  # 1 / scale is infinite
    found = octavo.debug.bisect(model, step_of(model, optimizer, 36), optimizer)
    assert found.layers == ("h.9",)
    assert len(found.replays) <= math.log2(LAYERS) + 2 and math.isnan(found.replays[-1].value)


def test_two_layers_that_go_wrong_together_only():
    names = [f"h.{i}" for i in range(LAYERS)]
    model, optimizer = trained(te("current"), steps=1)

    def step():
        in_fp8 = {name for name in names if "forward" not in model.get_submodule(name).__dict__}
        return 1.0 if {"h.3", "h.12"} <= in_fp8 else 0.0

    found = octavo.debug.bisect(model, step, optimizer, bad=lambda value: value > 0.5)
    assert found.layers == ("h.3", "h.12")
    assert len(found.replays) <= 2 * (math.log2(LAYERS) + 2)


def test_bisect_says_what_is_wrong_with_the_question():
    model, optimizer = trained(te("current"), steps=1)
    with pytest.raises(octavo.StateError, match="goes wrong with all layers in FP8, found one that does not"):
        octavo.debug.bisect(model, step_of(model, optimizer), optimizer)
    with pytest.raises(octavo.StateError, match="finite with all layers in torch's precision, found nan"):
        octavo.debug.bisect(model, lambda: float("nan"), optimizer)
    with pytest.raises(ZeroDivisionError):
        octavo.debug.bisect(model, lambda: 1 / 0, optimizer)
    with pytest.raises(octavo.StateError):
        octavo.debug.bisect(torch.nn.Linear(2, 2), lambda: 0.0)
    train(model, optimizer, 1)  # as before


@pytest.mark.parametrize("options", [te("delayed"), te("block"), msamp("O1"), msamp("O3")],
                         ids=["delayed", "block", "O1", "O3"])
def test_plain_layers_multiply_as_torch_does(options):
    model, optimizer = trained(options)
    optimizer.zero_grad()
    x, _ = batch(5)
    layer = model.h[4]
    weight, bias = layer.state_dict()["weight"], layer.bias.detach()
    # [plain]
    with octavo.debug.plain(model, "h.4"):
        inside = layer(x)
        # [/plain]
        assert torch.equal(inside, torch.nn.functional.linear(x, weight, bias))
        assert not torch.equal(model.h[5](x), torch.nn.functional.linear(x, model.h[5].state_dict()["weight"], model.h[5].bias))
        inside.sum().backward()
    assert not torch.equal(layer(x), inside)
    gradient = layer.weight.grad
    gradient = gradient.plain() if hasattr(gradient, "plain") else gradient
    exact, relative = x.double().sum(0), 2**-4 if "msamp" in str(options) else 1e-6
    rounded = 15 * 2**-24 * x.double().abs().sum(0)  # of 15 additions, in any order
    assert ((gradient - exact).abs() <= relative * exact.abs() + rounded).all()


def test_patterns_that_match_nothing_are_refused():
    model, _ = trained(te("current"), steps=1)
    with pytest.raises(octavo.InvalidError, match="found 'blocks.*'; the layers are h.0, h.1"):
        with octavo.debug.plain(model, "blocks.*"):
            pass


def test_dump_writes_what_a_step_used(tmp_path):
    model, optimizer = trained(te("current"))
    # [dump]
    with octavo.debug.dump(model, tmp_path / "step.safetensors", "h.2", "h.9"):
        optimizer.zero_grad()
        loss_of(model, 4).backward()
    # [/dump]
    found = load_file(tmp_path / "step.safetensors")
    assert set(found) == {f"h.{i}/{what}" for i in (2, 9) for what in (
        "x", "y", "dx", "dy", "weight", "weight_codes", "weight_scale_inv")}
    values = found["h.2/weight_codes"].float() * found["h.2/weight_scale_inv"]
    assert torch.allclose(values, found["h.2/weight"], rtol=2**-4, atol=1e-4)
    assert torch.equal(found["h.2/weight"], model.h[2].weight.cpu())
    product = found["h.2/x"] @ found["h.2/weight"].T + model.h[2].bias.cpu()
    assert (found["h.2/y"] - product).norm() < 0.1 * product.norm()
    assert not model.h[2]._forward_hooks and [p.name for p in tmp_path.iterdir()] == ["step.safetensors"]

"""Forwards on the instance of a layer, before and after octavo.prepare, hooks of Accelerate among them: a backend multiplies
by its weight, or the report says why not."""
import copy
import functools
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

import octavo
from conftest import msamp, session, te
from own_forward_parts import BACKENDS, IDS, Casts, calls, close, passes  # noqa: F401


def by_linear(self, x):
    return functional.linear(x, self.weight, self.bias) * 2


def by_matmul(self, x):
    return x @ self.weight.t() * 2


def replaced(layer, forward=by_linear):
    layer.forward = types.MethodType(forward, layer)
    return layer


def wrapped(layer):
    inner = layer.forward

    @functools.wraps(inner)
    def forward(x):
        return inner(x) * 2

    layer.forward = forward
    return layer


@pytest.mark.parametrize("overrides", BACKENDS, ids=IDS)
@pytest.mark.parametrize("change", [replaced, wrapped])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_forward_on_the_instance(change, when, overrides, calls):
    x, layer = torch.randn(16, 64), nn.Linear(64, 48)
    plain = change(copy.deepcopy(layer))
    if when == "both":
        plain = change(plain)
    model = layer if when == "after" else change(layer)
    octavo.prepare(model, overrides=overrides)
    if when != "before":
        change(model)
    found = passes(model, x)
    assert len(calls) == 1
    for y, expected in zip(found, passes(plain, x)):
        close(y, expected, 0.2)
    del calls[:]
    octavo.restore(model)
    model(x)
    assert not calls


def test_a_forward_on_the_instance_that_is_no_product_is_left_out_by_name():
    model = nn.ModuleDict({"own": replaced(nn.Linear(32, 32), by_matmul), "plain": nn.Linear(32, 32),
                           "attention": nn.MultiheadAttention(32, 2)})
    model["attention"].forward = functools.partial(nn.MultiheadAttention.forward, model["attention"])
    octavo.prepare(model, overrides=te())
    assert list(session(model).sites) == ["plain"]
    assert session(model).left_out == {
        "own": "its forward was replaced on the instance by by_matmul, which computes t of its weight",
        "attention": "its forward was replaced on the instance by MultiheadAttention.forward"}


def hooked(module):
    hooks = pytest.importorskip("accelerate.hooks")
    return hooks.add_hook_to_module(module, hooks.AlignDevicesHook(io_same_device=True))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = pytest.importorskip("transformers.pytorch_utils").Conv1D(48, 64)

    def forward(self, x):
        return self.layer(x)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(64, 2, batch_first=True)

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0]


class Holds(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("overrides", [te(), msamp("O2")], ids=["te", "msamp"])
@pytest.mark.parametrize("make, count", [(lambda: Holds(nn.Linear(64, 48)), 1), (lambda: Holds(Casts(64, 48)), 1),
                                         (Gpt2, 1), (Attends, 4)], ids=["Linear", "Casts", "Conv1D", "Attention"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_accelerates_hooks(make, count, when, overrides, calls):
    hooks = pytest.importorskip("accelerate.hooks")
    plain, x = make(), torch.randn(4, 8, 64)
    model = copy.deepcopy(plain)
    if when == "before":
        hooked(model.layer)
    octavo.prepare(model, overrides=overrides)
    assert len(session(model).sites) == count, session(model).left_out
    if when == "after":
        hooked(model.layer)
    expected = passes(plain, x)
    for remove in (False, True):
        if remove:
            hooks.remove_hook_from_module(model.layer)
        del calls[:]
        found = passes(model, x)
        assert len(calls) == count
        for y, other in zip(found, expected):
            close(y, other, 0.2)
    hooked(model.layer)
    octavo.restore(model)
    del calls[:]
    close(model(x), plain(x), 1e-3)
    assert not calls and hasattr(model.layer, "_hf_hook")


def test_layers_are_plain_for_a_while_behind_hooks(calls):
    model = nn.Sequential(hooked(nn.Linear(64, 48)), replaced(nn.Linear(48, 64)), Casts(64, 64))
    x, plain = torch.randn(8, 64), copy.deepcopy(model)
    octavo.prepare(model, overrides=te())
    forwards = [m.__dict__.get("forward") for m in model]
    with octavo.debug.plain(model):
        assert torch.equal(model(x), plain(x)) and not calls
    assert [m.__dict__.get("forward") for m in model] == forwards
    model(x)
    assert len(calls) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_offloaded_layers(when, tmp_path, calls):
    """Accelerate's offloading puts each weight in place for its forward, as a parameter of its own."""
    accelerate = pytest.importorskip("accelerate")
    plain = nn.Sequential(nn.Linear(64, 48), nn.Sequential(nn.ReLU(), nn.Linear(48, 64))).eval()
    model, x = copy.deepcopy(plain), torch.randn(8, 64)
    options = te(use_autocast_during_eval=True)
    if when == "before":
        accelerate.disk_offload(model[1], tmp_path, execution_device="cpu")
        octavo.prepare(model, overrides=options)
        assert list(session(model).sites) == ["0"] and "offloaded by Accelerate" in session(model).left_out["1.1"]
    else:
        octavo.prepare(model, overrides=options)
        accelerate.cpu_offload(model[1], execution_device="cpu")
    for _ in range(2):
        del calls[:]
        with torch.no_grad():
            close(model(x), plain(x))
        assert len(calls) == (1 if when == "before" else 2)

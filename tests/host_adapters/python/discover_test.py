"""Which layers octavo.prepare takes, and what it says about the others."""
import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import octavo
from conftest import msamp, session, te
from octavo.torch.layers.discover import discover
from octavo.torch.ranks import fsdp


class Named(nn.Linear):
    """A subclass that computes nothing of its own."""


class Own(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


class Matmul(nn.Linear):
    def forward(self, x):
        return x @ self.weight.t()


def found(model, **options):
    """(names of linears, what was left out)."""
    model, _ = octavo.prepare(model, overrides=options.pop("overrides", te()), **options)
    return list(session(model).sites), session(model).left_out


def test_subclasses_of_linear():
    model = nn.ModuleDict({"named": Named(16, 16), "own": Own(16, 16)})
    names, left_out = found(model)
    assert names == ["named", "own"] and not left_out  # own_forward_test.py
    assert isinstance(model["named"], Named) and isinstance(model["own"], Own)


@pytest.mark.parametrize("change", [
    parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal,
    torch.nn.utils.spectral_norm,
    lambda m: prune.l1_unstructured(m, "weight", 0.5)], ids=["weight_norm", "spectral_norm",
                                                            "orthogonal", "old", "prune"])
def test_computed_weights_stay(change):
    model = nn.ModuleDict({"a": nn.Linear(16, 16), "b": nn.Linear(16, 16)})
    change(model["a"])
    x = torch.randn(3, 16)
    expected = model.eval()["a"](x)
    names, left_out = found(model)
    assert names == ["b"] and "computed at each forward" in left_out["a"]
    assert torch.equal(model["a"](x), expected)


def test_a_parametrized_bias_is_no_obstacle():
    layer = nn.Linear(16, 16)
    nn.utils.parametrize.register_parametrization(layer, "bias", nn.Softplus())
    x = torch.randn(3, 16)
    expected = layer(x)
    assert found(nn.Sequential(layer)) == (["0"], {})
    assert (layer(x) - expected).norm() < 0.1 * expected.norm()


def test_lazy_layers_wait_for_their_size():
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 16))
    ready = copy.deepcopy(model)
    names, left_out = found(model)
    assert names == ["2"] and left_out == {
        "0": "its size is not known yet: run one batch before octavo.prepare"}
    assert model(torch.randn(3, 32)).shape == (3, 16)
    ready(torch.randn(3, 32))
    assert found(ready) == (["0", "2"], {})


def test_foreign_kinds_of_weights_stay():
    class Marked(torch.Tensor):
        pass

    model = nn.ModuleDict({"marked": nn.Linear(16, 16), "none": nn.Linear(0, 16),
                           "integer": nn.Linear(16, 16), "plain": nn.Linear(16, 16)})
    model["marked"].weight = nn.Parameter(torch.randn(16, 16).as_subclass(Marked))
    model["integer"].weight = nn.Parameter(torch.ones(16, 16, dtype=torch.int8), False)
    names, left_out = found(model)
    assert names == ["plain"]
    assert "Marked" in left_out["marked"] and "no elements" in left_out["none"]
    assert left_out["integer"] == "its weight is torch.int8"


def test_a_float64_model_is_refused_whole():
    model = nn.Sequential(nn.Linear(16, 16).double(), nn.Linear(16, 16), nn.Linear(16, 8).double())
    with pytest.raises(octavo.InvalidError, match=r"0: torch.float64; 2: torch.float64.*float\(\)"):
        octavo.prepare(model, overrides=te())
    assert all(type(m) is nn.Linear for m in model)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)))


def test_tied_weights():
    """A weight that stays in the model can be tied; one that moves to slots cannot."""
    model = Tied()
    assert found(model) == (["body", "head"], {})
    assert model.head.weight is model.embedding.weight
    model = Tied()
    names, left_out = found(model, overrides=msamp("O2"))
    assert names == ["body"] and "shared with embedding" in left_out["head"]
    assert torch.isfinite(model(torch.arange(8))).all()


def test_layers_that_share_a_weight_are_two_linears_of_one_weight():
    a, b = nn.Linear(16, 16), nn.Linear(16, 16)
    b.weight = a.weight
    for backend in (te(), msamp("O2")):
        model, _ = octavo.prepare(copy.deepcopy(nn.Sequential(a, b)), overrides=backend)
        assert list(session(model).sites) == ["0", "1"]
        assert sum(w.is_linear for w in session(model).weights) == 1
        model(torch.randn(4, 16)).sum().backward()
        assert model[0].weight.grad is model[1].weight.grad


def test_a_module_under_two_names_counts_once():
    layer = nn.Linear(16, 16)
    model = nn.ModuleDict({"first": layer, "second": layer})
    asked = []
    names, left_out = found(model, module_filter=lambda m, name: asked.append(name) or True)
    assert (names, left_out, asked) == (["first"], {}, ["first"])


def test_the_model_itself_may_be_the_layer():
    assert found(nn.Linear(16, 16)) == (["model"], {})
    with pytest.raises(octavo.UnsupportedError, match="found none .model: Matmul overrides forward"):
        octavo.prepare(Matmul(16, 16), overrides=te())


def test_the_users_filter():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    assert found(model, module_filter=lambda m, name: name != "1") == (["0"], {
        "1": "excluded by module_filter"})
    assert type(model[1]) is nn.Linear


def test_only_matrices_that_multiply_are_listed():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 16))
            self.token = nn.Parameter(torch.randn(1, 1, 16))

    model = nn.ModuleDict({"a": nn.Embedding(8, 16), "b": nn.LayerNorm((4, 16)), "c": Router(),
                           "d": nn.Conv2d(3, 8, 3), "e": nn.LSTM(16, 16), "f": nn.Linear(16, 16)})
    names, left_out = found(model)
    assert names == ["f"] and list(left_out) == ["c", "e"]
    assert left_out["c"] == "Router is not a linear layer (weight)"


def test_discovery_changes_nothing():
    model = nn.Sequential(nn.Linear(16, 16), nn.MultiheadAttention(16, 2), Named(16, 16))
    before = [(type(m), set(m.__dict__)) for m in model.modules()]
    result = discover(model)
    assert [type(m) for m in model.modules()] == [t for t, _ in before]
    assert [set(m.__dict__) for m in model.modules()] == [d for _, d in before]
    assert [w.name for w in result.weights] == [
        "0.weight", "1.in_proj_weight.q", "1.in_proj_weight.k", "1.in_proj_weight.v",
        "1.out_proj.weight", "2.weight"]


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
def test_a_late_failure_restores_every_kind_of_module(backend, monkeypatch):
    utils = pytest.importorskip("transformers.pytorch_utils")
    model = nn.Sequential(nn.TransformerEncoderLayer(32, 2, 64), utils.Conv1D(32, 32),
                          Named(32, 32))
    kinds = [(type(m), set(m.__dict__)) for m in model.modules()]
    memory = [(p.data_ptr(), p.stride()) for p in model.parameters()]

    def full(session):
        raise octavo.ResourceError("no memory left")

    monkeypatch.setattr(fsdp, "prepared", full)
    with pytest.raises(octavo.ResourceError):
        octavo.prepare(model, overrides=backend)
    assert [(type(m), set(m.__dict__)) for m in model.modules()] == kinds
    assert [(p.data_ptr(), p.stride()) for p in model.parameters()] == memory
    assert model[0].activation_relu_or_gelu == 1
    monkeypatch.undo()
    octavo.prepare(model, overrides=backend)
    assert len(session(model).sites) == 4 + 2 + 2


def test_lora_of_peft():
    peft = pytest.importorskip("peft")
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["0", "2"]))
    names, left_out = found(model)
    base = [n for n in names if n.endswith("base_layer")]
    adapters = [n for n in (*names, *session(model).verdicts) if "lora_" in n]
    assert len(base) == 2 and len(set(adapters)) == 4 and not left_out


def test_adapters_on_attention_keep_it_out():
    """PEFT puts its own projection inside, and changes the weights during the forward."""
    peft = pytest.importorskip("peft")
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(32, 2), "head": nn.Linear(32, 16)})
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["attention"]))
    names, left_out = found(model)
    assert "base_model.model.head" in names and not any("base_layer" in name for name in names)
    assert "out_proj is a peft" in left_out["base_model.model.attention.base_layer"]


@pytest.mark.parametrize("model", [nn.Linear(16, 16), Named(16, 16), nn.Sequential(Named(16, 16))])
def test_copies_and_pickles(model):
    model, _ = octavo.prepare(copy.deepcopy(model), overrides=te())
    file, x = io.BytesIO(), torch.randn(5, 16)
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
        assert torch.equal(other(x), model(x)) and session(other) is not session(model)

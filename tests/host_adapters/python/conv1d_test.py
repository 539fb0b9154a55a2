"""transformers' Conv1D: [K, N] weights keep shape, values and name, and run in FP8."""
import copy
import io

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import ops

pytest.importorskip("transformers")
from transformers.pytorch_utils import Conv1D  # noqa: E402

N, K = 48, 32
BACKENDS = [te(), te("current"), te("block"), te("mx"), msamp("O1"), msamp("O2")]
NAMES = ["te-delayed", "te-current", "te-block", "te-mx", "msamp-O1", "msamp-O2"]


def twins():
    """A Conv1D and the nn.Linear that computes the same."""
    conv, plain = Conv1D(N, K), nn.Linear(K, N)
    with torch.no_grad():
        conv.weight.copy_(plain.weight.t())
        conv.bias.copy_(plain.bias)
    return conv, plain


def train(module, optimizer, steps=4):
    generator = torch.Generator().manual_seed(3)
    results = []
    for _ in range(steps):
        x, target = (torch.randn(20, n, generator=generator) for n in (K, N))
        x.requires_grad_()
        optimizer.zero_grad()
        y = module(x)
        nn.functional.mse_loss(y, target).backward()
        results += [y.detach(), x.grad]
        optimizer.step()
    return results


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_same_bits_as_a_linear_layer(backend):
    found = []
    for module in twins():
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        module, optimizer = octavo.prepare(module, optimizer, overrides=backend)
        found.append(train(module, optimizer))
        assert ops.calls(session(module).number, _abi.VERB_BACKWARD) == 4
        weight = module.state_dict()["weight"]
        found[-1].append(weight.t() if isinstance(module, Conv1D) else weight)
    for conv, plain in zip(*found):
        assert torch.equal(conv, plain)


def test_shape_values_and_name_stay():
    conv, _ = twins()
    weight, before = conv.weight, conv.weight.detach().clone()
    conv, _ = octavo.prepare(conv, overrides=te())
    assert isinstance(conv, Conv1D) and type(conv).__name__ == "Conv1D"
    assert conv.weight is weight and weight.shape == (K, N) and torch.equal(weight, before)
    assert [n for n, _ in conv.named_parameters()] == ["weight", "bias"]
    assert conv.nf == N


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
def test_state_dict_is_contiguous_and_loads_both_ways(backend):
    conv, _ = twins()
    plain = copy.deepcopy(conv)
    conv, _ = octavo.prepare(conv, overrides=backend)
    state = conv.state_dict()
    assert state["weight"].is_contiguous() and state["weight"].shape == (K, N)
    plain.load_state_dict(state)
    other = Conv1D(N, K)
    conv.load_state_dict(other.state_dict())
    x = torch.randn(9, K)
    assert (conv(x) - other(x)).norm() < 0.1 * other(x).norm()


def test_copies_and_pickles():
    conv, _ = octavo.prepare(twins()[0], overrides=te())
    file, x = io.BytesIO(), torch.randn(5, 3, K)
    torch.save(conv, file)
    file.seek(0)
    for other in (copy.deepcopy(conv), torch.load(file, weights_only=False)):
        assert type(other) is type(conv) and torch.equal(other(x), conv(x))
        assert session(other) is not session(conv)


def test_subclasses():
    class Named(Conv1D):
        pass

    class Own(Conv1D):
        def forward(self, x):
            return super().forward(x) * 2

    model, _ = octavo.prepare(nn.ModuleDict({"named": Named(N, K), "own": Own(N, K)}),
                              overrides=te())
    assert list(session(model).sites) == ["named"] and isinstance(model["named"], Named)
    assert session(model).left_out == {"own": "Own overrides forward"}

"""Experts of transformers' models: every matrix of a 3-D parameter is a linear of its own."""
import copy
import io

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import ops
from octavo.torch.layers.transformers import EXPERTS

transformers = pytest.importorskip("transformers", minversion="5.0")

EXPERT_COUNT, H, INNER, TOKENS, K = 4, 32, 16, 24, 2


def mixtral(implementation="eager"):
    from transformers.models.mixtral import modeling_mixtral
    config = transformers.MixtralConfig(hidden_size=H, intermediate_size=INNER,
                                        num_local_experts=EXPERT_COUNT, hidden_act="silu")
    config._experts_implementation = implementation
    return filled(modeling_mixtral.MixtralExperts(config))


def gpt_oss(implementation="eager"):
    """[E, K, N] weights with biases, gate and up interleaved."""
    from transformers.models.gpt_oss import modeling_gpt_oss
    config = transformers.GptOssConfig(hidden_size=H, intermediate_size=INNER,
                                       num_local_experts=EXPERT_COUNT)
    config._experts_implementation = implementation
    return filled(modeling_gpt_oss.GptOssExperts(config))


def nemotron(implementation="eager"):
    """Experts without a gate."""
    from transformers.models.nemotron_h import modeling_nemotron_h
    config = transformers.NemotronHConfig(hidden_size=H, moe_intermediate_size=INNER,
                                          n_routed_experts=EXPERT_COUNT)
    config._experts_implementation = implementation
    return filled(modeling_nemotron_h.NemotronHExperts(config))


def filled(module):
    for p in module.parameters():
        nn.init.normal_(p, std=0.2)
    return module


def routing(kind="ragged"):
    """(hidden_states, top_k_index, top_k_weights); with "empty" experts 1 and 3 get no token."""
    pairs = {"ragged": [(0, 1), (0, 2), (0, 3), (1, 2), (0, 1)], "empty": [(0, 2), (2, 0)]}[kind]
    index = torch.tensor([pairs[t % len(pairs)] for t in range(TOKENS)])
    return torch.randn(TOKENS, H), index, torch.rand(TOKENS, K)


def results(module, x, index, weights):
    """The output and every gradient."""
    x, weights = x.clone().requires_grad_(), weights.clone().requires_grad_()
    module.zero_grad()
    y = module(x, index, weights)
    y.square().sum().backward()
    return [y.detach(), x.grad, weights.grad, *(p.grad for p in module.parameters())]


MAKERS = [mixtral, gpt_oss, nemotron]


@pytest.mark.parametrize("kind", ["ragged", "empty"])
@pytest.mark.parametrize("make", MAKERS)
def test_equals_transformers_with_every_product_on_the_host(make, kind):
    module = make()
    own = copy.deepcopy(module)
    EXPERTS.apply(own, {})
    inputs = routing(kind)
    for a, b in zip(results(module, *inputs), results(own, *inputs)):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("backend", [te(), te("current"), te("mx")],
                         ids=lambda o: o["fp8.te.recipe"])
def test_results_are_near_and_counted(make, backend):
    plain = make()
    module, _ = octavo.prepare(copy.deepcopy(plain), overrides=backend)
    own, inputs = session(module), routing()
    assert len(own.sites) == 2 * EXPERT_COUNT and not own.left_out
    for _ in range(2):  # the first pass of delayed scaling has scales of 1
        found = results(module, *inputs)
        octavo.step(module)
    for a, b in zip(results(plain, *inputs), found):
        assert (a - b).norm() < 0.15 * a.norm()
    assert ops.calls(own.number, _abi.VERB_FORWARD) == 2 * 2 * EXPERT_COUNT
    assert ops.calls(own.number, _abi.VERB_BACKWARD) == 2 * 2 * EXPERT_COUNT


@pytest.mark.parametrize("backend", [te(), msamp("O1"), msamp("O2")],
                         ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("make", MAKERS)
def test_experts_without_tokens(make, backend):
    """They are not called, keep their weights' values and have a gradient of zero."""
    module = make()
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0)
    module, optimizer = octavo.prepare(module, optimizer, overrides=backend)
    number = session(module).number
    for step in range(3):
        optimizer.zero_grad()
        module(*routing("empty")).square().sum().backward()
        for name, p in module.named_parameters():
            gradient = p.grad.plain() if hasattr(p.grad, "plain") else p.grad
            assert gradient[0].abs().max() > 0 and gradient[1].abs().max() == 0, name
        optimizer.step()
        assert ops.calls(number, _abi.VERB_FORWARD) == 2 * 2 * (step + 1)
    for name, value in module.state_dict().items():
        old = before[name]
        assert torch.isfinite(value).all()
        assert not torch.equal(value[0], old[0])
        assert (value[1] - old[1]).abs().max() <= 0.07 * old[1].abs().max()
    assert torch.isfinite(module(*routing("ragged"))).all()
    assert module(torch.zeros(0, H), torch.zeros(0, K, dtype=torch.int64),
                  torch.zeros(0, K)).shape == (0, H)


def test_an_index_past_the_last_expert_contributes_nothing():
    module = mixtral()
    if not hasattr(module, "has_post_expert_norm"):
        pytest.skip(f"transformers {transformers.__version__} reads no such index")
    x, index, weights = routing()
    index[::3, 1] = EXPERT_COUNT
    own, _ = octavo.prepare(copy.deepcopy(module), overrides=te("current"))
    expected, found = module(x, index, weights), own(x, index, weights)
    assert (found - expected).norm() < 0.15 * expected.norm()


def test_dispatch_of_transformers_is_left_alone():
    """The counterpart belongs to one module; another one of the same class and config stays."""
    module, other = mixtral("grouped_mm"), mixtral("grouped_mm")
    other.config, cls = module.config, type(module)
    forward = cls.forward
    module, _ = octavo.prepare(module, overrides=te())
    assert isinstance(module, cls) and cls.forward is forward and type(other) is cls
    assert module.config._experts_implementation == "grouped_mm"
    other(*routing())
    assert ops.calls(session(module).number, _abi.VERB_FORWARD) == 0


def test_one_declined_expert_runs_in_torch():
    overrides = {**te("current"), "layers.skip": ["down_proj.1", "gate_up_proj.2"]}
    for make in (mixtral, gpt_oss):
        plain, inputs = make(), routing()
        module, _ = octavo.prepare(copy.deepcopy(plain), None, overrides=overrides)
        assert len(session(module).sites) == 2 * EXPERT_COUNT - 2
        for a, b in zip(results(plain, *inputs), results(module, *inputs)):
            assert (a - b).norm() < 0.15 * a.norm()
        assert ops.calls(session(module).number, _abi.VERB_FORWARD) == 2 * EXPERT_COUNT - 2


def test_what_cannot_be_converted_says_why():
    class Own(type(mixtral())):
        def forward(self, hidden_states, top_k_index, top_k_weights):
            return hidden_states

    parallel, own = mixtral(), mixtral()
    parallel._is_expert_parallel = True
    own.__class__ = Own
    foreign = nn.Module()
    foreign.gate_up_proj = nn.Parameter(torch.randn(2, 32, 16))
    foreign.down_proj = nn.Parameter(torch.randn(2, 16, 16))
    model = nn.ModuleDict({"parallel": parallel, "own": own, "foreign": foreign,
                           "head": nn.Linear(H, H)})
    model, _ = octavo.prepare(model, overrides=te())
    left_out = session(model).left_out
    assert list(session(model).sites) == ["head"]
    assert left_out["parallel"] == "MixtralExperts uses expert parallelism"
    assert "experts interface" in left_out["own"] and "experts interface" in left_out["foreign"]


def test_a_parameter_changed_behind_prepare_is_an_error():
    """Adapters that parametrize experts would be ignored otherwise."""
    module, _ = octavo.prepare(mixtral(), overrides=te())
    nn.utils.parametrize.register_parametrization(module, "down_proj", nn.Identity())
    with pytest.raises(octavo.StateError, match="down_proj: expected the parameter"):
        module(*routing())


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
@pytest.mark.parametrize("make", MAKERS)
def test_copies_pickles_and_state_dicts(make, backend):
    plain = make()
    model, _ = octavo.prepare(nn.Sequential(copy.deepcopy(plain)), overrides=backend)
    file, inputs = io.BytesIO(), routing()
    torch.save(model, file)
    file.seek(0)
    expected = model[0](*inputs)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert type(other[0]) is type(model[0]) and isinstance(other[0], type(plain))
        assert torch.equal(other[0](*inputs), expected)
        assert ops.calls(session(other).number, _abi.VERB_FORWARD) == 2 * EXPERT_COUNT
    state = model[0].state_dict()
    assert list(state) == list(plain.state_dict())
    for name, value in plain.state_dict().items():
        assert state[name].is_contiguous()
        assert (state[name] - value).abs().max() <= 0.07 * value.abs().max()
    make().load_state_dict(state)

"""Weights in slots are real to any other code: what reads them gets values, what writes them
writes the slots, and nothing stays behind (octavo/torch/parameter.py)."""
import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import octavo
from conftest import msamp, session
from guide_parts import mlp
from octavo.torch.weights.parameter import SlotParameter, raw

LEVELS = ["O1", "O2", "O3"]
# Half a unit in the last place of what a write is rounded to: f16 with a scale.
ROUNDING = 2**-11


def prepared(level="O2", lr=1e-2):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    adam = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    return octavo.prepare(model, adam, overrides=msamp(level))


def step(model, optimizer):
    torch.manual_seed(4)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.randn(64, 32)), torch.randn(64, 16)).backward()
    optimizer.step()


def stored(model, p):
    """What the slots have."""
    return session(model).read(p)


def is_dropped(p):
    return not any(raw(p).stride())


@pytest.mark.parametrize("level", LEVELS)
def test_values_are_read_and_follow_every_step(level):
    model, optimizer = prepared(level)
    weight, seen = model[0].weight, []
    for _ in range(3):
        step(model, optimizer)
        assert torch.equal(weight + 0, stored(model, weight))
        seen.append(weight.norm().item())
    assert len(set(seen)) == 3
    assert isinstance(weight, SlotParameter) and type(weight.clone()) is torch.Tensor


def test_memory_is_given_back_when_nothing_holds_it():
    model, optimizer = prepared()
    weight = model[0].weight
    step(model, optimizer)
    assert is_dropped(weight)
    norm, alias = weight.norm(), weight.detach()
    assert not is_dropped(weight)
    step(model, optimizer)
    assert torch.equal(alias, stored(model, weight))  # held: updated in place
    del alias
    step(model, optimizer)
    assert is_dropped(weight) and weight.norm() != norm


def test_shape_and_other_facts_cost_no_memory():
    model, _ = prepared()
    weight = model[0].weight
    facts = (weight.shape, weight.dtype, weight.device, weight.numel(), weight.requires_grad,
             weight.is_leaf, weight.dim(), weight.grad, torch.zeros_like(weight), weight.is_cuda,
             sum(p.numel() for p in model.parameters()), weight.is_floating_point())
    assert is_dropped(weight) and facts[0] == (64, 32)
    model.requires_grad_(True)
    repr(nn.Linear(2, 2)), hash(weight), len(weight)
    assert is_dropped(weight)


WRITES = {"copy_": lambda p: p.copy_(torch.full_like(p, 0.25)), "mul_": lambda p: p.mul_(-2.0),
          "add_": lambda p: p.add_(1.0), "lerp_": lambda p: p.lerp_(torch.ones_like(p), 0.5),
          "foreach": lambda p: torch._foreach_mul_([p], 3.0), "normal_": lambda p: nn.init.normal_(p, generator=torch.Generator().manual_seed(7)),
          "detach": lambda p: p.detach().zero_(), "view": lambda p: p.view(-1).add_(0.5),
          "row": lambda p: p[3].fill_(7.0), "out=": lambda p: torch.mul(p, 2.0, out=p),
          "setitem": lambda p: p.__setitem__(0, 5.0), "data": lambda p: p.data.mul_(3.0),
          "data=": lambda p: setattr(p, "data", torch.ones(p.shape)),
          "vector": lambda p: vector_to_parameters(torch.arange(p.numel()) / p.numel(), [p])}


@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_go_to_the_slots(write, level, mode):
    torch._dynamo.reset()
    model, _ = prepared(level)
    call = model if mode == "eager" else torch.compile(model, backend=mode)
    x, weight = torch.randn(8, 32), model[0].weight
    with torch.no_grad():
        before = call(x)
        expected = nn.Parameter(stored(model, weight))
        write(expected)
        write(weight)
        after = call(x)
    assert not torch.equal(before, after)
    found = stored(model, weight)
    assert (found - expected).abs().max() <= ROUNDING * expected.abs().max()
    assert torch.equal(weight + 0, found)


def test_code_that_computes_with_a_weight_itself_trains_it():
    """As TRL's SFTTrainer does with lm_head.weight: chunks of the loss, without the module."""
    def train(overrides):
        torch.manual_seed(6)
        model = mlp(32, 64, 16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
        if overrides:
            model, optimizer = octavo.prepare(model, optimizer, overrides=overrides)
        head, losses = model[2], []
        x, target = torch.randn(64, 32), torch.randint(0, 16, (64,))
        for _ in range(20):
            optimizer.zero_grad()
            hidden = model[1](model[0](x))
            parts = [nn.functional.cross_entropy(h @ head.weight.t() + head.bias, t,
                                                 reduction="sum")
                     for h, t in zip(hidden.chunk(4), target.chunk(4))]
            loss = sum(parts) / 64
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected, found = train(None), train(msamp())
    assert expected[-1] < 0.5 * expected[0]
    assert found == pytest.approx(expected, rel=0.05)


def test_a_weight_that_is_used_both_ways_adds_up_its_gradients():
    model, _ = prepared()
    x, weight = torch.randn(16, 64), model[2].weight

    def gradient(*losses):
        weight.grad = None
        for loss in losses:
            loss().backward()
        return weight.grad.plain() if hasattr(weight.grad, "plain") else weight.grad.clone()

    ways = (lambda: model[2](x).square().sum(), lambda: (x @ weight.t()).square().sum())
    alone = [gradient(way) for way in ways]
    expected = sum(alone)
    for order in (ways, ways[::-1]):
        # three casts to E4M3, each 2^-4 of a value at most
        assert (gradient(*order) - expected).norm() < 3 * 2**-4 * expected.norm()


def test_a_graph_that_saved_the_values_is_told_when_they_go():
    model, optimizer = prepared()
    x = torch.randn(4, 32, requires_grad=True)
    y = x @ model[0].weight.t()
    step(model, optimizer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def moving_average(model, decay, updates, optimizer):
    """EMA as timm's ModelEmaV2: a deep copy whose state_dict is written in place."""
    ema = copy.deepcopy(model).eval()
    for _ in range(updates):
        step(model, optimizer)
        with torch.no_grad():
            for own, other in zip(ema.state_dict().values(), model.state_dict().values()):
                own.copy_(decay * own + (1 - decay) * other)
    return ema


def test_exponential_moving_average_of_state_dicts():
    model, optimizer = prepared()
    start = [p.detach().clone() for p in model.parameters()]
    ema = moving_average(model, 0.5, 4, optimizer)
    x = torch.randn(4, 32)
    with torch.no_grad():
        assert not torch.equal(ema(x), model(x))
        for p, q, first in zip(model.parameters(), ema.parameters(), start):
            assert 0 < (q - first).norm() < 1.01 * (p - first).norm()


@pytest.mark.parametrize("options", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}],
                         ids=["swa", "ema"])
def test_averaged_model(options):
    model, optimizer = prepared()
    averaged, plain = AveragedModel(model, **options), AveragedModel(mlp(32, 64, 16), **options)
    for _ in range(4):
        step(model, optimizer)
        averaged.update_parameters(model)
        reference = mlp(32, 64, 16)
        reference.load_state_dict(model.state_dict())
        plain.update_parameters(reference)
    for p, q in zip(averaged.module.parameters(), plain.module.parameters()):
        # four writes to f16 with a scale
        assert (p - q).abs().max() <= 4 * 2**-11 * q.abs().max()
    x = torch.randn(4, 32)
    with torch.no_grad():
        assert torch.isfinite(averaged(x)).all()


def test_vectors_of_parameters():
    model, _ = prepared()
    vector = parameters_to_vector(model.parameters())
    vector_to_parameters(vector * 2, model.parameters())
    assert torch.allclose(parameters_to_vector(model.parameters()), 2 * vector, rtol=2**-10)


def test_an_optimizer_of_torch_steps_it():
    """Made in a second stage without octavo.prepare: every step goes through the values."""
    model, _ = prepared()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(4)
    x, target, losses = torch.randn(64, 32), torch.randn(64, 16), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_a_write_between_backward_and_step_counts():
    model, optimizer = prepared(lr=0.0)
    nn.functional.mse_loss(model(torch.randn(8, 32)), torch.zeros(8, 16)).backward()
    weight = model[0].weight
    expected = weight.detach() + 0.5
    with torch.no_grad():
        weight.add_(0.5)
    optimizer.step()
    assert (weight - expected).abs().max() <= ROUNDING * expected.abs().max()


def test_hooks_that_its_gradient_never_passes_are_refused():
    model, _ = prepared()
    weight = model[0].weight
    for add in (weight.register_hook, weight.register_post_accumulate_grad_hook):
        with pytest.raises(octavo.UnsupportedError, match="register_.*hook.*use te"):
            add(lambda gradient: None)
    with pytest.raises(octavo.UnsupportedError, match="torch|grad"):
        torch.autograd.grad(model(torch.randn(4, 32)).sum(), model.parameters())
    plain = mlp(32, 64, 16)
    plain[2].weight.register_hook(lambda gradient: None)
    with pytest.raises(octavo.UnsupportedError, match="^2.weight: expected a weight without hooks"):
        octavo.prepare(plain, overrides=msamp())
    assert type(plain[0]) is nn.Linear and type(plain[0].weight) is nn.Parameter


def test_gradients_of_compiled_graphs_are_seen_by_torchs_tools():
    torch._dynamo.reset()
    norms = []
    for compiled in (False, True):
        model, _ = prepared()
        call = torch.compile(model, backend="aot_eager") if compiled else model
        torch.manual_seed(4)
        x = torch.randn(16, 32)
        for _ in range(2):
            call(x).square().sum().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())
            model.zero_grad()
            assert model[0].weight.grad is None
    assert norms == norms[:1] * 4


def test_copies_and_pickles_of_a_parameter_are_plain():
    model, _ = prepared()
    weight, file = model[0].weight, io.BytesIO()
    torch.save(list(model.parameters()), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    for other in (copy.deepcopy(weight), loaded[0]):
        assert type(other) is nn.Parameter and torch.equal(other, weight)


def test_parametrizations_that_come_later():
    """weight_norm computes the weight from others: te multiplies by it, msamp says what to do."""
    from conftest import te
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te("current"))
    nn.utils.parametrizations.weight_norm(model[0])
    x = torch.randn(4, 32)
    model(x).square().sum().backward()
    assert model[0].parametrizations.weight.original1.grad.any()
    other, _ = prepared()
    with pytest.raises(octavo.OctavoError, match="weight.*octavo.(prepare|restore)"):
        nn.utils.parametrizations.weight_norm(other[0])
        other(x)


def test_closed_session_is_named():
    model, _ = prepared()
    weight = model[0].weight
    session(model).close()
    with pytest.raises(octavo.StateError, match="slots of a session that is closed"):
        weight.norm()

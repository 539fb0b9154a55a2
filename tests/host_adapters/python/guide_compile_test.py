"""The guide's section "torch.compile": one graph, and eager's bits.

It takes over a minute, since inductor calls the C++ compiler for every graph.
"""
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import msamp, session, te
from guide_parts import RECIPES, Attention, assert_same, gradients, slots, weights
from octavo import _abi
from octavo.torch import ops

SIZES = (8, 5, 12)  # of batches: the second makes the graph dynamic
OVERRIDES = {**{recipe: te(recipe) for recipe in RECIPES}, "msamp": msamp("O2")}


class Mlp(nn.Module):
    """ReLU, because an inductor GELU rounds in another order than eager's."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Both(nn.Module):
    """An attention block and an MLP, recomputed in backward or not."""

    def __init__(self, recompute=False):
        super().__init__()
        self.first, self.second, self.recompute = Attention(64), Mlp(), recompute

    def forward(self, x):
        for part in (self.first, self.second):
            x = checkpoint(part, x, use_reentrant=False) if self.recompute else part(x)
        return x


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Compiled code of this run only; torch's caches in memory are emptied, too."""
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    yield
    torch._dynamo.reset()


def train(make, overrides, backend):
    """[per step: (y, gradients with x's, slots before and after optimizer.step)], counter, model.

    dy is given, so that no loss adds up in the compiler's own order. Gradients in slots are
    compared before the step.
    """
    torch.manual_seed(1)
    model = make()
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), None,
                                      overrides=overrides)
    counter = CompileCounterWithBackend(backend) if backend else None
    call = torch.compile(model, fullgraph=True, backend=counter) if backend else model
    # Of its own: on a GPU, compiled checkpointing draws seeds from the generator of the CPU.
    data = torch.Generator().manual_seed(2)
    steps = []
    for rows in SIZES:
        x = torch.randn(rows, 4, 64, generator=data).requires_grad_()
        optimizer.zero_grad()
        y = call(x)
        y.backward(torch.randn(y.shape, generator=data))
        grads = plain_gradients(model)
        before = slots(model)
        optimizer.step()
        after = {k: v for k, v in slots(model).items() if not k[2].startswith("gradient")}
        steps.append(({"y": y.detach(), "dx": x.grad, **grads}, before, after))
    return steps, counter, model


def plain_gradients(model):
    """Gradients that are not in slots."""
    in_slots = session(model).needs_own_optimizer
    return {n: g for n, g in gradients(model).items()
            if type(g) is torch.Tensor and (n.endswith("bias") or not in_slots)}


def compare(make, overrides, backend):
    expected, _, eager = train(make, overrides, None)
    found, counter, model = train(make, overrides, backend)
    for i, (a, b) in enumerate(zip(found, expected)):
        for part in range(3):
            assert_same(a[part], b[part], f"step {i}")
    assert counter.frame_count <= 2, "a static graph and a dynamic one"
    for verb in range(6):
        once, calls = (ops.calls(session(m).number, verb) for m in (eager, model))
        # A compiler may keep what eager checkpointing computes again.
        assert calls == once or (verb == _abi.VERB_FORWARD and 2 * calls == once), verb
    assert calls_per_step(model) == len(session(model).sites)


def calls_per_step(model):
    return ops.calls(session(model).number, _abi.VERB_BACKWARD) / len(SIZES)


@pytest.mark.parametrize("make", [Mlp, lambda: Attention(64)], ids=["mlp", "attention"])
@pytest.mark.parametrize("name", OVERRIDES)
def test_aot_eager(name, make):
    compare(make, OVERRIDES[name], "aot_eager")


def test_aot_eager_nvfp4():
    compare(Mlp, te("nvfp4"), "aot_eager")


@pytest.mark.parametrize("name", OVERRIDES)
def test_inductor(name):
    compare(Both, OVERRIDES[name], "inductor")


@pytest.mark.parametrize("name", OVERRIDES)
def test_with_activation_checkpointing(name):
    """One graph, and tracing writes nothing that outlives it."""
    compare(lambda: Both(recompute=True), OVERRIDES[name], "aot_eager")


@pytest.mark.parametrize("make", [Mlp, lambda: Attention(64)], ids=["mlp", "attention"])
@pytest.mark.parametrize("name", OVERRIDES)
def test_no_graph_breaks(name, make):
    model, _ = octavo.prepare(make(), None, None, overrides=OVERRIDES[name])
    found = torch._dynamo.explain(model)(torch.randn(8, 4, 64))
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


class Tapped(nn.Module):
    """Linear layers between norms and GELUs of torch. `before` and `after` are zeros, one for each
    layer, added to its input and its output, so that their gradients are the layer's dx and dy.
    Returns y and every layer's (x, y)."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.linears = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x, before, after):
        seen = []
        for norm, linear, s, t in zip(self.norms, self.linears, before, after):
            given = nn.functional.gelu(norm(x)) + s
            found = linear(given)
            seen.append((given, found))
            x = found + t
        return x, seen


@pytest.mark.parametrize("name", ["delayed", "msamp"])
def test_inductor_between_parts_that_round_otherwise(name):
    """Inductor computes a GELU and a norm in another order than eager, so whole models differ in
    some bits, with and without octavo. Octavo's layers do not: eager ones give the same outputs,
    gradients and slots from what the layers in the graph were given."""
    torch.manual_seed(1)
    model, _ = octavo.prepare(Tapped(), None, None, overrides=OVERRIDES[name])
    torch.manual_seed(1)
    twin, _ = octavo.prepare(Tapped(), None, None, overrides=OVERRIDES[name])
    assert_same(weights(twin), weights(model))
    call = torch.compile(model, fullgraph=True, backend="inductor", dynamic=False)
    for step in range(2):
        before, after = ([torch.zeros(8, 64).requires_grad_() for _ in range(3)] for _ in range(2))
        y, seen = call(torch.randn(8, 64), before, after)
        y.backward(torch.randn_like(y))
        for i, (x, found) in enumerate(seen):
            given = x.detach().requires_grad_()
            expected = twin.linears[i](given)
            expected.backward(after[i].grad)
            assert_same({"y": found, "dx": before[i].grad}, {"y": expected, "dx": given.grad},
                        f"step {step}, layer {i}")
        mine, others = ({n: g for n, g in plain_gradients(m).items() if n.startswith("linears.")}
                        for m in (model, twin))
        assert_same(mine, others, f"step {step}")
        assert_same(slots(model), slots(twin), f"step {step}")
        for m in (model, twin):
            octavo.step(m)
            m.zero_grad()


def test_evaluation():
    """A compiled model in eval mode records nothing and gives eager's bits."""
    model, _ = octavo.prepare(Mlp(), None, None, overrides=te("delayed"))
    model.eval()
    call = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(8, 64)
    with torch.no_grad():
        expected, before = model(x), slots(model)
        assert torch.equal(call(x), expected)
    assert_same(slots(model), before)

"""The guide's sections "Adafactor", "8-bit Adam", "_multi_tensor" and "DeepSpeed ZeRO", of which
torch has the first stage.

It takes over half a minute, since it quantizes every weight a second time after each step.
"""
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

import fake_device
import octavo
import staged
from conftest import kind, msamp, session, te
from guide_parts import assert_same, mlp, slots, weights


def fresh(model, x):
    """Every slot after a forward, and after one for which the weights are quantized once more."""
    found = []
    with torch.no_grad():
        for _ in range(2):
            model(x)
            found.append(slots(model))
            octavo.refresh(model)
    return found


def run(build, steps=20, recipe="delayed", sizes=(64, 128, 48)):
    """Trains on a linear teacher; asserts that no step leaves stale FP8 weights. -> (model,
    optimizer, losses)."""
    torch.manual_seed(1)
    model = mlp(*sizes)
    model, optimizer = octavo.prepare(model, build(model), None, overrides=te(recipe))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(64, sizes[0], generator=generator)
    target = x @ torch.randn(sizes[0], sizes[-1], generator=generator) / 8
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        assert all(type(p.grad) is torch.Tensor and p.grad.dtype == torch.float32
                   for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
        before, after = fresh(model, x)
        assert_same(after, before, "stale")
    return model, optimizer, losses


def test_adafactor():
    """A factored optimizer takes plain gradients and keeps its own states."""
    model, optimizer, losses = run(lambda m: torch.optim.Adafactor(m.parameters(), lr=0.1), 30)
    assert isinstance(optimizer, torch.optim.Adafactor)
    assert losses[-1] < 0.5 * losses[0]
    state = optimizer.state[model[0].weight]
    assert state["row_var"].shape == (128, 1) and state["col_var"].shape == (1, 64)


def groups(model):
    """Biases without decay, as scripts do."""
    named = list(model.named_parameters())
    return [{"params": [p for n, p in named if n.endswith("weight")], "weight_decay": 0.1},
            {"params": [p for n, p in named if n.endswith("bias")], "weight_decay": 0.0}]


def eight_bit(name):
    """A function that makes this library's 8-bit AdamW, or a skip with the reason."""
    if name == "bitsandbytes":
        library = pytest.importorskip("bitsandbytes", exc_type=ImportError)
        return lambda m: library.optim.AdamW8bit(groups(m), lr=1e-2, min_8bit_size=256)
    library = pytest.importorskip("torchao.optim", exc_type=ImportError)
    return lambda m: library.AdamW8bit(groups(m), lr=1e-2, block_size=256)


@pytest.mark.parametrize("library", ["bitsandbytes", "torchao"])
def test_8_bit_adam(library):
    """States of 8 bits beside FP8 weights, with decay and no-decay groups."""
    build = eight_bit(library)
    try:
        # Both compile their step, for which inductor generates no code on that device.
        with torch._dynamo.config.patch(disable=kind() == "fake_device"):
            model, optimizer, losses = run(build)
    except (NotImplementedError, RuntimeError) as e:
        if isinstance(e, octavo.OctavoError):
            raise
        pytest.skip(f"{library}'s 8-bit Adam does not step on this CPU: {e}")
    plain = run(lambda m: torch.optim.AdamW(groups(m), lr=1e-2))[2]
    assert losses[-1] < 0.5 * losses[0]
    assert abs(losses[-1] - plain[-1]) < 0.1 * plain[0]
    assert any(t.dtype in (torch.uint8, torch.int8) or "8bit" in type(t).__name__
               for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))


class Writer(torch.optim.Optimizer):
    """Writes p.data, which torch's version counters do not see, as older optimizers do."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - p.grad


@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mx"])
def test_data_writes_leave_no_stale_weights(recipe):
    """Every step requantizes, whatever the optimizer did: run() asserts it after each step."""
    _, _, losses = run(lambda m: Writer(m.parameters()), 20, recipe)
    assert losses[-1] < 0.9 * losses[0]


KINDS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]


@pytest.mark.parametrize("kind", KINDS, ids=[k.__name__ for k in KINDS])
def test_multi_tensor(kind):
    """One call for all tensors or one each: the same weights give the same slots, bit for bit."""
    results = {}
    for name in ("plain", "foreach", "fused"):
        choice = {"foreach": name == "foreach", "fused": name == "fused"}
        model, _, losses = run(lambda m: kind(m.parameters(), lr=1e-2, **choice), 5)
        results[name] = slots(model), weights(model), losses
    assert_same(results["foreach"][0], results["plain"][0], "foreach")
    assert_same(results["foreach"][1], results["plain"][1], "foreach")
    if kind is torch.optim.SGD:
        assert_same(results["fused"][0], results["plain"][0], "fused")
    # torch's fused Adam rounds in another order; its weights differ by ulps, the slots follow them.
    for found, expected in zip(results["fused"][2], results["plain"][2]):
        assert abs(found - expected) < 1e-2 * expected


@pytest.mark.parametrize("count", [0, 1, 2, 511])
def test_multi_tensor_of_the_backend(count):
    """msamp's Adam: one call for a list of parameters of mixed sizes equals one call each."""
    results = []
    for is_list in (True, False):
        torch.manual_seed(1)
        sizes = [16 + 8 * (i % 3) for i in range(count // 2 + 2)]
        model = nn.ModuleList(nn.Linear(k, n) for k, n in zip(sizes, sizes[1:]))
        model, _ = octavo.prepare(model, torch.optim.AdamW(model.parameters()), None,
                                  overrides=msamp("O2"))
        s, x = session(model), torch.randn(20, sizes[0])
        for layer in model:
            x = layer(x)
        x.square().sum().backward()
        ids = list(range(len(s.weights)))[:count]
        assert len(ids) == count
        row = torch.tensor([1e-2, 0.9, 0.999, 1e-8, 0.1, 1.0, 0.0, 0.0])
        before = slots(model)
        for some in ([ids] if is_list else [[i] for i in ids]):
            s.optimizer_step(some, row.repeat(len(some), 1))
        results.append({**slots(model), **{n: w for n, w in weights(model).items()
                                           if n.endswith("bias")}})
        stepped = [k for k, t in slots(model).items() if k[2] == "step" and t.any()]
        assert len(stepped) == count and before.keys() <= results[-1].keys()
    assert_same(results[0], results[1])


def steps_of(build):
    """(weights, slots) after five steps of one process; every rank has the same batch."""
    model, _, _ = run(build, 5)
    return weights(model), slots(model)


def zero_rank(rank, folder, device):
    if device == "fake_device":
        fake_device.use()
    dist.init_process_group(staged.backend(device), init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        owned = []

        def build(model):
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
            owned.append(sum(p.numel() for g in optimizer.optim.param_groups for p in g["params"]))
            return optimizer

        torch.save((*steps_of(build), owned[0]), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_zero_redundancy_optimizer(tmp_path):
    """Two ranks that step half of the parameters each end with one process's weights and slots."""
    torch.multiprocessing.spawn(zero_rank, (str(tmp_path), kind()), nprocs=2)
    expected = steps_of(lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2))
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for rank, (found_weights, found_slots, _) in enumerate(ranks):
        assert_same(found_weights, expected[0], f"rank {rank}")
        assert_same(found_slots, expected[1], f"rank {rank}")
    owned = [count for _, _, count in ranks]
    assert sum(owned) == 64 * 128 + 128 + 128 * 48 + 48 and min(owned) > 0

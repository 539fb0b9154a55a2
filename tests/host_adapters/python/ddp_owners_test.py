"""DistributedDataParallel around a prepared model in other ways than ddp_test.py: around something that contains it, and
with collectives of its own between those of gradients in slots. Two ranks, against plain torch on the same ones."""
import datetime

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import octavo
import torchrun
from conftest import msamp, te

STEPS, LR = 4, 1e-2
BACKENDS = {"plain": None, "te": te("current"), "msamp": msamp("O2")}


class Net(nn.Module):
    """`second` runs where asked for; embeddings and norms are DDP's in any case."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.norm = nn.Linear(32, 64), nn.LayerNorm(64)
        self.second, self.gain = nn.Linear(64, 64), nn.Parameter(torch.ones(64))
        self.last = nn.Linear(64, 16)

    def forward(self, x, with_second=True):
        x = self.norm(self.first(x))
        return self.last(self.second(x) * self.gain if with_second else x)


class Bare(nn.Linear):
    """The model is a linear itself: its names have no part before the first dot."""

    def __init__(self):
        torch.manual_seed(3)
        super().__init__(32, 16)


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, *args):
        return self.model(x, *args).square().mean()


def made(overrides, model=Net):
    model = model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, eps=1e-4)
    return octavo.prepare(model, optimizer, overrides=overrides) if overrides else (model, optimizer)


def batch(step):
    rank = dist.get_rank()
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(10 * step + rank))


def trained(overrides, wrap, model=Net, second=lambda step: True, steps=STEPS):
    model, optimizer = made(overrides, model)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    call = wrap(model)
    for step in range(steps):
        optimizer.zero_grad()
        y = call(batch(step)) if isinstance(model, nn.Linear) else call(batch(step), second(step))
        y.square().mean().backward()
        optimizer.step()
    return {n: p.detach() - before[n] for n, p in model.named_parameters()}


def with_power_sgd(model):
    wrapped = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=8, start_powerSGD_iter=2, min_compression_rate=0.1)
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return wrapped


def unused(step):
    """On rank 1 alone, in the first pass and later."""
    return dist.get_rank() == 0 or step % 2 == 1


def finding(model):
    return DistributedDataParallel(model, find_unused_parameters=True)


WRAPS = {
    "model": {"wrap": DistributedDataParallel},
    "compiled": {"wrap": lambda model: DistributedDataParallel(torch.compile(model, backend="aot_eager"))},
    "with its loss": {"wrap": lambda model: DistributedDataParallel(WithLoss(model))},
    "in two modules": {"wrap": lambda model: DistributedDataParallel(WithLoss(WithLoss(model)))},
    "bare": {"wrap": DistributedDataParallel, "model": Bare},
    "replicate": {"wrap": replicate},
    "unused": {"wrap": finding, "second": unused},
    "unused and with its loss": {"wrap": lambda model: finding(WithLoss(model)), "second": unused},
    "power": {"wrap": with_power_sgd},
}


def run(folder):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=40))
    found = {"slots alone": slots_alone()}
    for name, how in WRAPS.items():
        found[name] = {backend: trained(overrides, **how) for backend, overrides in BACKENDS.items()}
    return found


def slots_alone():
    model, _ = octavo.prepare(nn.Sequential(nn.Linear(32, 16, bias=False)), overrides=msamp("O2"))
    try:
        DistributedDataParallel(model)
    except octavo.StateError as e:
        return str(e)
    return "no error"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return torchrun.ranks_of(run, tmp_path_factory.mktemp("ranks"))


def test_nothing_left_for_ddp_is_refused(ranks):
    assert all("octavo.prepare(group=)" in rank["slots alone"] for rank in ranks)


@pytest.mark.parametrize("backend", ["te", "msamp"])
@pytest.mark.parametrize("name", WRAPS)
def test_weights_move_as_in_plain_torch(ranks, name, backend):
    for rank in ranks:
        plain, ours = rank[name]["plain"], rank[name][backend]
        for key, theirs in plain.items():
            assert theirs.norm() > 0
            # Adam divides by the size of the gradient, so a cast's relative 2^-4 of it shows in full, and more near 0.
            assert (ours[key] - theirs).norm() < 0.3 * theirs.norm(), key
    first, second = (rank[name][backend] for rank in ranks)
    assert all(torch.equal(first[key], second[key]) for key in first)

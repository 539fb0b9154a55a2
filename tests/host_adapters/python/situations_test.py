"""The situations of ../situations.txt that PyTorch can be in, each next to a plain twin; and their table in docs/situations.csv."""
import copy
import csv
import math
import pathlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import octavo
import situations
from conftest import session
from coupling_parts import boundaries
from octavo.torch import ops

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "situations.csv"


def noise(shape, seed):
    """Numbers from -1 to 1 that look random, the same in every host."""
    values = (torch.arange(math.prod(shape), dtype=torch.float64) + 1000.0 * seed).sin() * 43758.5453
    return (2 * (values - values.floor()) - 1).float().reshape(shape)


def net(width=32, seed=1):
    model = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 16))
    with torch.no_grad():
        for seed, p in enumerate(model.parameters(), seed):
            p.copy_(noise(p.shape, seed) / 4)
    return model


def distance(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


class Side:
    """A model, with whatever one does to it."""

    def __init__(self, *of):
        self.net = net(*of)

    def __getitem__(self, layer):
        return self.net[2 * int(layer)]


class Runner:
    def __init__(self, backend, recipe):
        key = "fp8.msamp.opt_level" if backend == "msamp" else f"fp8.{backend}.recipe"
        self.overrides = {"mixed_precision": "fp8", "layers.min_gain": "off", "layers.skip": [],
                          "fp8.backend": backend, key: recipe}
        self.ours, self.twin = self.both = Side(), Side()
        self.factor, self.only = 1.0, None

    def x(self):
        return noise((64, 32), 5) * self.factor

    def prepare(self):
        for side in self.both:
            of = side.net if self.only is None else side[self.only]
            side.adam = side.result = torch.optim.AdamW(of.parameters(), lr=1e-3, weight_decay=0.0)
        _, self.ours.result = octavo.prepare(self.ours.net, self.ours.adam, overrides=self.overrides)

    def optimizer(self, layer):
        self.only = layer

    def freeze(self, layer, wanted=False):
        for side in self.both:
            side[layer].requires_grad_(wanted)

    def unfreeze(self, layer):
        self.freeze(layer, True)

    def mode(self, which):
        for side in self.both:
            side.net.train(which == "train")

    def grad(self, which):
        torch.set_grad_enabled(which == "on")

    def input(self, factor):
        self.factor = float(factor)

    def forward(self):
        for side in self.both:
            side.loss = nn.functional.mse_loss(side.net(self.x()), noise((64, 16), 6))

    def peek(self):
        for side in self.both:
            side.net(self.x())

    def checkpointed(self):
        for side in self.both:
            y = checkpoint(side.net, self.x().requires_grad_(), use_reentrant=False)
            side.loss = nn.functional.mse_loss(y, noise((64, 16), 6))

    def backward(self):
        for side in self.both:
            side.loss.backward()

    def inf(self):
        (self.ours.net(self.x()).sum() * math.inf).backward()

    def part(self, layer):
        for side in self.both:
            side[layer](self.x()).square().mean().backward()

    def step(self):
        for side in self.both:
            side.result.step()

    def zero(self):
        for side in self.both:
            side.net.zero_grad()

    def train(self, count):
        for _ in range(int(count)):
            self.zero()
            self.forward()
            self.backward()
            self.step()

    @torch.no_grad()
    def scale(self, layer, by):
        for side in self.both:
            side[layer].weight.mul_(float(by))

    def data(self, layer, by):
        for side in self.both:
            side[layer].weight.data.mul_(float(by))

    def set(self, layer, by):
        values = self.weight(layer) * float(by)
        for side in self.both:
            side[layer].weight.data = values.clone()

    def lr(self, rate, of="adam"):
        for side in self.both:
            for group in getattr(side, of).param_groups:
                group["lr"] = float(rate)

    def lr_of_result(self, rate):
        self.lr(rate, "result")

    def add_group(self, layer, rate):
        for side in self.both:
            side.adam.add_param_group({"params": list(side[layer].parameters()), "lr": float(rate)})

    def add_foreign(self, rate):
        self.ours.adam.add_param_group({"params": [nn.Parameter(torch.zeros(4))], "lr": float(rate)})

    def other(self, rate):
        for side in self.both:
            side.result = torch.optim.SGD(side.net.parameters(), lr=float(rate))
        self.train(1)

    def manual(self, rate, values=torch.Tensor.detach):
        self.zero()
        self.forward()
        self.backward()
        for side in self.both:
            for p in side.net.parameters():
                values(p).sub_(p.grad, alpha=float(rate))

    def manual_data(self, rate):
        self.manual(rate, lambda p: p.data)

    def refresh(self):
        octavo.refresh(self.ours.net)

    def share(self):
        second = nn.Linear(32, 64)
        second.weight = self.ours["0"].weight
        octavo.prepare(nn.ModuleList([second]), torch.optim.AdamW(second.parameters()), overrides=self.overrides)

    def second(self):
        self.seconds = Side(16, 11), Side(16, 11)
        for side in self.seconds:
            side.adam = side.result = torch.optim.AdamW(side.net.parameters(), lr=1e-3, weight_decay=0.0)
        _, self.seconds[0].result = octavo.prepare(self.seconds[0].net, self.seconds[0].adam, overrides=self.overrides)

    def against(self):
        for side, second in zip(self.both, self.seconds):
            with torch.no_grad():
                y = side.net(self.x())
            second.net.zero_grad()
            side.loss = nn.functional.mse_loss(second.net(y), noise((64, 16), 6))
            side.loss.backward()
            second.result.step()

    def through(self):
        self.zero()
        for side, second in zip(self.both, self.seconds):
            side.loss = nn.functional.mse_loss(second.net(side.net(self.x())), noise((64, 16), 6))
            side.loss.backward()
            second.net.zero_grad()
        self.step()

    def copy(self):
        self.copied = [self.weight(layer) for layer in "01"]
        for side in self.both:
            side.copy = Side()
            side.copy.net = copy.deepcopy(side.net).eval()

    def towards_copy(self, count):
        for _ in range(int(count)):
            self.zero()
            for side in self.both:
                with torch.no_grad():
                    target = side.copy.net(self.x()) / 2
                side.loss = nn.functional.mse_loss(side.net(self.x()), noise((64, 16), 6) + target)
            self.backward()
            self.step()

    def copy_stays(self):
        assert all(torch.equal(self.ours.copy[layer].weight, w) for layer, w in zip("01", self.copied))
        assert not torch.equal(self.ours.copy["0"].weight, self.weight("0"))

    def inner(self, rate):
        self.zero()
        for side in self.both:
            p = dict(side.net.named_parameters())
            gradients = torch.autograd.grad(nn.functional.mse_loss(side.net(self.x()), noise((64, 16), 6)), list(p.values()))
            moved = {name: w - float(rate) * g for (name, w), g in zip(p.items(), gradients)}
            side.loss = nn.functional.mse_loss(torch.func.functional_call(side.net, moved, (self.x(),)), noise((64, 16), 6))
            side.loss.backward()

    def lbfgs(self, count):
        for side in self.both:
            optimizer = torch.optim.LBFGS(side.net.parameters(), lr=0.1, max_iter=4)

            def closure():
                optimizer.zero_grad()
                side.loss = nn.functional.mse_loss(side.net(self.x()), noise((64, 16), 6))
                side.loss.backward()
                return side.loss
            for _ in range(int(count)):
                optimizer.step(closure)

    def grad_of(self, layer):
        found = [torch.autograd.grad(side.loss, side[layer].weight, retain_graph=True)[0] for side in self.both]
        assert distance(*found) <= 0.15

    def narrow_input(self):
        self.ours.net(self.x()[:, :31])

    def weight(self, layer):
        return self.ours[layer].weight.detach().clone()

    def output(self, bound, of=None, x=None):
        of, x = of or self.ours, self.x() if x is None else x
        scratch = net(x.shape[1])
        scratch.load_state_dict(copy.deepcopy(dict(of.net.state_dict())))
        error = distance(of.net(x), scratch(x))
        assert error <= float(bound)

    def output_of_second(self, bound):
        self.output(bound, self.seconds[0], self.twin.net(self.x()).detach())

    def output_of_copy(self, bound):
        self.output(bound, self.ours.copy)

    def loss(self, bound):
        error = distance(self.ours.loss, self.twin.loss)
        assert error <= float(bound)

    def gradients(self, bound):
        for layer in "01":
            found, expected = (side[layer].weight.grad.clone() for side in self.both)
            assert distance(found, expected) <= float(bound), layer

    def mark(self):
        self.marked = [self.weight(layer) for layer in "01"]

    def still(self, layer):
        assert torch.equal(self.weight(layer), self.marked[int(layer)])

    def moved(self, layer):
        assert not torch.equal(self.weight(layer), self.marked[int(layer)])

    def calls(self, count):
        assert ops.forwards(session(self.ours.net).number, session(self.ours.net).sites["0"].id) == int(count)

    def boundaries(self, count):
        assert boundaries(self.ours.net) == int(count)

    def skipped(self, count):
        assert session(self.ours.net).skipped_steps == int(count)


@pytest.mark.parametrize("case", situations.cases("pytorch"), ids=situations.name_of)
def test_situation(case):
    situation, backend, recipe = case
    runner = Runner(backend, recipe)
    try:
        for words, expected in situations.operations(situation, "pytorch", backend):
            act = getattr(runner, words[0])
            if expected is None:
                act(*words[1:])
                continue
            is_typed, word = expected
            with pytest.raises(Exception) as raised:
                act(*words[1:])
            assert word in str(raised.value)
            assert isinstance(raised.value, octavo.OctavoError) or not is_typed, raised.value
    finally:
        torch.set_grad_enabled(True)


def test_every_situation_has_a_verdict_for_every_host_and_backend():
    for situation in situations.read():
        backends = {b.split(":")[0] for b in situation.backends}
        for host in ("pytorch", "libtorch", "jax"):
            missing = backends - situations.verdicts(situation, host).keys()
            assert not missing, f"{situation.name}: {host}: expected it in hosts, or a line `no {host}: reason`"
            both = [h for h in situation.hosts if h in situation.without]
            assert not both, f"{situation.name}: {both} are in hosts and have a reason"


def test_the_page_has_the_table():
    with PAGE.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == situations.table()

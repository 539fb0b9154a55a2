"""Programs of strangers: each trains, or evaluates, without knowing of Octavo, and must come to what plain torch comes to.

A program is a function of a Run. It makes its models, calls run.prepare where a user would call octavo.prepare, trains, and
returns figures by name. strangers_test.py runs it plain and with each of its arms, with the same seeds, and compares

    figures          with those of the plain run;
    weights          every parameter that moves in the plain run moves, as far and the same way; no other one does;
    layers that ran  every layer that octavo.prepare accepted made as many FP8 forwards as the plain run called it.

Tolerances are relative: what two seeds of the plain program differ by, which stands in each program's line as `apart`,
within limits. This prints it, with the figures of each arm:

    python tests/strangers/strangers_test.py --measure [part of a name...]
"""
import dataclasses
import random

import numpy as np
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from octavo.torch import ops

PROGRAMS = []
# The same seeds differ by the noise of FP8 alone, which moves a loss by a few percent (patterns.BOUND).
LEAST, MOST = 0.04, 0.1
ARMS = {"delayed": te("delayed"), "current": te("current"), "block": te("block"), "msamp": msamp("O2")}
# A matrix's movement: its length and direction against the plain run's. Adam moves a weight by the sign of its gradient in
# its first steps, so that noise on small gradients turns some of the elements around. A vector moves at all: the
# gradient of a bias of keys, or of one in front of a BatchNorm, is zero but for rounding.
LENGTHS, COSINE = (0.5, 2.0), 0.25
# What does not move, relative to its largest value: a write to msamp's f16 with a scale rounds, so do merging and unmerging.
ROUNDED = 2.0**-10


@dataclasses.dataclass(eq=False)
class Program:
    name: str
    run: object
    apart: float     # how far two seeds of the plain program are apart, relative to the first one
    arms: tuple
    moves: object    # None: the weights are compared; a text: why not
    counts: object   # None: calls are compared; a text: why each layer must have run, no more

    @property
    def within(self):
        """How far a figure may be from the plain one, relative to it."""
        return min(max(self.apart, LEAST), MOST)

    def __str__(self):
        return f"{self.run.__module__.removesuffix('_programs')}: {self.name}"


def program(name, apart, arms=("delayed", "current", "msamp"), moves=None, counts=None):
    """Adds a function to the table."""
    def add(function):
        PROGRAMS.append(Program(name, function, apart, arms, moves, counts))
        return function
    return add


class Run:
    """One run of a program: arm None is the plain one."""

    def __init__(self, arm, seed=0):
        self.arm, self.seed, self.overrides = arm, seed, ARMS.get(arm)
        self.models = []     # (model, its values before)
        self.calls = {}      # the index of a model and the name of a linear in it -> [calls in training mode, all calls]

    def prepare(self, model, optimizer=None, **arguments):
        """What a user gets of octavo.prepare. In the plain run the same objects."""
        self.watch(model)
        if self.arm is not None:
            return octavo.prepare(model, optimizer, overrides=self.overrides, **arguments)
        return model, optimizer

    def watch(self, model):
        """Notes a model whose weights and layers are compared, before it is prepared."""
        at = len(self.models)
        self.models.append((model, {k: p.detach().clone() for k, p in model.named_parameters()}))
        if self.arm is None:
            for name, module in model.named_modules():
                if isinstance(module, nn.Linear):
                    module.register_forward_hook(self._counted(at, name))

    def _counted(self, at, name):
        calls = self.calls.setdefault((at, name), [0, 0])

        def hook(module, arguments, output):
            calls[0] += module.training
            calls[1] += 1
        return hook

    def moved(self):
        """[{parameter: how it moved since prepare}] for each model."""
        out = []
        for model, before in self.models:
            now = {k: p.detach() for k, p in model.named_parameters()}
            out.append({k: now[k].float() - b.float() for k, b in before.items()
                        if k in now and now[k].shape == b.shape})
        return out

    def forwards(self):
        """[{linear: FP8 forwards}] for each model."""
        out = []
        for model, _ in self.models:
            try:
                own = session(model)
            except octavo.OctavoError:  # not prepared any more
                out.append({})
                continue
            out.append({name: ops.forwards(own.number, site.id) for name, site in own.sites.items()})
        return out


@dataclasses.dataclass
class Result:
    figures: dict
    moved: list
    forwards: list
    calls: dict
    before: list


def result(what, arm, seed=0):
    """Runs a program."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch._dynamo.reset()
    run = Run(arm, seed)
    figures = what.run(run)
    moved = run.moved()
    return Result({k: float(v) for k, v in figures.items()}, moved, run.forwards() if arm else [], run.calls,
                  [b for _, b in run.models])


def faults(what, found, plain):
    """What is wrong with a result, as texts."""
    out = [f"{name}: {found.figures[name]:.5g} for {value:.5g}, {abs(found.figures[name] - value) / abs(value):.3f} apart"
           for name, value in plain.figures.items()
           if not abs(found.figures[name] - value) <= what.within * abs(value)]
    if what.moves is None:
        for at, expected in enumerate(plain.moved):
            out += [f"model {at}: {t}" for t in _moved(expected, found.moved[at], plain.before[at])]
    for at, forwards in enumerate(found.forwards):
        out += [f"model {at}: {t}" for t in _ran(at, forwards, plain.calls, what.counts is None)]
    if what.counts is None and not any(sum(forwards.values()) for forwards in found.forwards):
        out.append("no layer ran in FP8")
    return out


def _moved(expected, found, before):
    for name, way in expected.items():
        least = ROUNDED * before[name].abs().max()
        if name not in found:
            yield f"{name}: is gone"
        elif way.abs().max() <= least:
            if found[name].abs().max() > 2 * least:
                yield f"{name}: moved by {found[name].norm():.3g}, plain stays"
        elif way.dim() < 2:
            if not found[name].any():
                yield f"{name}: stays, plain moves by {way.norm():.3g}"
        else:
            length = (found[name].norm() / way.norm()).item()
            cosine = nn.functional.cosine_similarity(found[name].flatten(), way.flatten(), dim=0).item()
            if not LENGTHS[0] <= length <= LENGTHS[1] or cosine < COSINE:
                yield f"{name}: moved {length:.3f} times as far as plain, cosine {cosine:.3f}"


def _ran(at, forwards, calls, are_counted):
    for name, count in forwards.items():
        known = calls.get((at, name if name != "model" else ""))
        least, most = known or (1, count)  # part of a module that is no linear itself
        if not are_counted:
            least, most = min(least, 1), count
        if not least <= count <= most:
            yield f"{name}: {count} FP8 forwards for {least} to {most} of plain"


# What programs share.

def mlp(*sizes, activation=nn.GELU):
    sizes = sizes or (32, 64, 16)
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers += [nn.Linear(a, b)] + ([activation()] if i < len(sizes) - 2 else [])
    return nn.Sequential(*layers)


def batches(run, steps, rows=64, unseen=False, inputs=32, outputs=16):
    """Inputs with what a fixed network makes of them, plus noise: something to learn, with a floor."""
    teacher = torch.Generator().manual_seed(100)
    w, v = (torch.randn(inputs, outputs, generator=teacher) / inputs**0.5 for _ in range(2))
    draw = torch.Generator().manual_seed(300 if unseen else 200 + run.seed)
    for _ in range(steps):
        x = torch.randn(rows, inputs, generator=draw)
        yield x, torch.tanh(2 * (x @ w)) + (x @ v).sin() + 0.1 * torch.randn(rows, outputs, generator=draw)


def error(model, x, y):
    return nn.functional.mse_loss(model(x), y)


@torch.no_grad()
def unseen(model, run, make=mlp):
    """The errors on unseen data of the model, and of a plain one that loads its state_dict."""
    (x, y), = batches(run, 1, 512, unseen=True)
    was = model.training
    own = error(model.eval(), x, y)
    model.train(was)
    twin = make()
    twin.load_state_dict({k: v.detach().clone() for k, v in model.state_dict().items()})
    return {"own": own, "loaded": error(twin.eval(), x, y)}


def fit(model, optimizer, run, steps=40, loss_of=error, **arguments):
    """The usual loop. Returns the mean loss of its last quarter."""
    losses = []
    for x, y in batches(run, steps, **arguments):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-(steps // 4):]) / (steps // 4)


def adamw(parameters, lr=5e-3):
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)


VOCABULARY = 32


def sentences(run, steps, rows=8, length=16):
    """Tokens of a chain in which each has four successors, of which the first is the likeliest."""
    table = torch.stack([torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(400 + i))[:4]
                         for i in range(VOCABULARY)])
    draw = torch.Generator().manual_seed(500 + run.seed)
    odds = torch.tensor([0.7, 0.1, 0.1, 0.1])
    for _ in range(steps):
        tokens = [torch.randint(0, VOCABULARY, (rows,), generator=draw)]
        for choice in torch.multinomial(odds.expand(length - 1, 4), rows, True, generator=draw):
            tokens.append(table[tokens[-1], choice])
        yield torch.stack(tokens, 1)


def tail(losses, last=10):
    """The mean of the last losses."""
    return sum(losses[-last:]) / last


def language(model, optimizer, run, steps=40, between=None):
    """Trains a causal model of transformers. Returns the mean of its last losses."""
    losses = []
    for i, tokens in enumerate(sentences(run, steps)):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if between is not None:
            between(i)
    return tail(losses)

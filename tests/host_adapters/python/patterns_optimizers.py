"""Usage patterns: the classes of torch.optim, and other libraries' optimizers."""
import bitsandbytes
import torch
import torchao.optim

from conftest import kind
from patterns import BOUND, compare, error, learn, network, pattern, start

AREA = "Optimizers"
optim = torch.optim
# What the user writes -> optimizer of a model; each at a rate at which the plain twin learns.
MADE = {
    "torch.optim.SGD": lambda m: optim.SGD(m.parameters(), lr=0.5),
    "SGD with momentum, Nesterov, weight decay": lambda m: optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "torch.optim.Adam": lambda m: optim.Adam(m.parameters(), lr=1e-2),
    "Adam with weight decay (L2)": lambda m: optim.Adam(m.parameters(), lr=1e-2, weight_decay=1e-3),
    "Adam with amsgrad=True": lambda m: optim.Adam(m.parameters(), lr=1e-2, amsgrad=True),
    "torch.optim.AdamW": lambda m: optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1),
    "AdamW with fused=True": lambda m: optim.AdamW(m.parameters(), lr=1e-2, fused=True),
    "AdamW with foreach=True": lambda m: optim.AdamW(m.parameters(), lr=1e-2, foreach=True),
    "AdamW with maximize=True, of a negative loss": lambda m: optim.AdamW(
        m.parameters(), lr=1e-2, maximize=True),
    "AdamW with lr as a tensor": lambda m: optim.AdamW(m.parameters(), lr=torch.tensor(1e-2)),
    "torch.optim.Adamax": lambda m: optim.Adamax(m.parameters(), lr=2e-2),
    "torch.optim.NAdam": lambda m: optim.NAdam(m.parameters(), lr=1e-2),
    "torch.optim.RAdam": lambda m: optim.RAdam(m.parameters(), lr=2e-2),
    "torch.optim.Adagrad": lambda m: optim.Adagrad(m.parameters(), lr=3e-2),
    "torch.optim.Adadelta": lambda m: optim.Adadelta(m.parameters(), lr=3.0),
    "torch.optim.RMSprop": lambda m: optim.RMSprop(m.parameters(), lr=3e-3),
    "torch.optim.Rprop": lambda m: optim.Rprop(m.parameters(), lr=1e-3),
    "torch.optim.ASGD": lambda m: optim.ASGD(m.parameters(), lr=0.5),
    "torch.optim.Adafactor": lambda m: optim.Adafactor(m.parameters(), lr=5e-2),
    "AdamW8bit of torchao": lambda m: torchao.optim.AdamW8bit(
        m.parameters(), lr=1e-2, block_size=256, weight_decay=0.0),
    "AdamW8bit of bitsandbytes": lambda m: bitsandbytes.optim.AdamW8bit(
        m.parameters(), lr=1e-2, min_8bit_size=256, weight_decay=0.0),
    "Lion8bit of bitsandbytes": lambda m: bitsandbytes.optim.Lion8bit(
        m.parameters(), lr=3e-3, min_8bit_size=256),
}
# Rprop steps by the signs of gradients, so that a gradient near 0 whose sign the noise turns moves
# a weight as far as any other: twice the difference.
BOUNDS = {"torch.optim.Rprop": 0.1}


def trains(name, make):
    sign = -1.0 if "negative" in name else 1.0

    def loop(p):
        # torchao compiles its step; without, it computes the same in less time. bitsandbytes tries to at
        # each step where inductor generates no code.
        with torch._dynamo.config.patch(disable="torchao" in name or kind() == "fake_device"):
            losses = learn(*start(p, optimizer=make), loss_of=lambda call: sign * error(call))
        return [sign * loss for loss in losses]
    return lambda prepare: compare(prepare, loop, BOUNDS.get(name, BOUND))


for name, make in MADE.items():
    pattern(AREA, name)(trains(name, make))


@pattern(AREA, "torch.optim.LBFGS with a closure")
def lbfgs(prepare):
    def loop(p):
        model, optimizer = start(p, optimizer=lambda m: optim.LBFGS(
            m.parameters(), lr=0.5, max_iter=4, history_size=4))
        losses = []

        def closure():
            optimizer.zero_grad()
            loss = error(model)
            loss.backward()
            return loss
        for _ in range(5):
            losses.append(optimizer.step(closure).item())
        return losses
    # Each step is four. Differences of gradients, with twice the noise, give the curvatures that
    # scale a direction.
    compare(prepare, loop, bound=0.1)


@pattern(AREA, "AdamW with a closure")
def closure(prepare):
    def loop(p):
        model, optimizer = start(p)

        def closure():
            optimizer.zero_grad()
            loss = error(model)
            loss.backward()
            return loss
        return [optimizer.step(closure).item() for _ in range(20)]
    compare(prepare, loop)


def embedded(model):
    """The mean error of a model of an embedding and two linears."""
    tokens = torch.arange(64) % 8
    return (model[1](model[0](tokens)) - torch.eye(8)[tokens] @ torch.ones(8, 16).triu()
            ).square().mean()


@pattern(AREA, "Muon for the matrices, AdamW for the biases")
def muon(prepare):
    def loop(p):
        model = network()
        matrices = [q for q in model.parameters() if q.dim() == 2]
        model, optimizer = p(model, optim.Muon(matrices, lr=2e-2, weight_decay=0.0))
        second = optim.AdamW([q for q in model.parameters() if q.dim() == 1], lr=1e-2)
        losses = []
        for _ in range(20):
            loss = error(model)
            loss.backward()
            for o in (optimizer, second):
                o.step()
                o.zero_grad()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "SparseAdam for an embedding, AdamW for the linears")
def sparse(prepare):
    def loop(p):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Embedding(8, 32, sparse=True), network())
        model, optimizer = p(model, optim.AdamW(model[1].parameters(), lr=1e-2))
        second = optim.SparseAdam(model[0].parameters(), lr=1e-2)
        losses, before = [], model[0].weight.detach().clone()
        for _ in range(20):
            second.zero_grad()
            losses += learn(model, optimizer, 1, loss_of=embedded)
            second.step()
        assert not torch.equal(before, model[0].weight)
        return losses
    compare(prepare, loop)


class Signs(optim.Optimizer):
    """An optimizer of the user's own: steps by the sign of the gradient."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-group["lr"])


@pattern(AREA, "your own optimizer class")
def own(prepare):
    compare(prepare, lambda p: learn(*start(p, optimizer=lambda m: Signs(m.parameters(), 2e-3))))


@pattern(AREA, "any optimizer, made after octavo.prepare(model)")
def made_after(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        return learn(model, optim.SGD(model.parameters(), lr=0.5))
    compare(prepare, loop)

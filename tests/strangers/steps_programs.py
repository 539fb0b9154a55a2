"""Steps that are skipped, split, undone or taken elsewhere, and gradients that only a part of the model takes."""
import copy

import torch
from torch import nn

from stranger import adamw, batches, error, fit, mlp, program, tail, unseen

ALL = ("delayed", "current", "block", "msamp")
TE = ("delayed", "current", "block")


@program("PGD: torch.autograd.grad of the inputs, then a step on the attacked batch", apart=0.025,
         counts="Attacks take the gradient of inputs.")
def pgd(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses = []
    for x, y in batches(run, 40):
        attacked = x.clone()
        for _ in range(2):
            attacked.requires_grad_(True)
            way, = torch.autograd.grad(error(model, attacked, y), attacked)
            attacked = (attacked.detach() + 0.05 * way.sign())
        loss = error(model, attacked, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("FGSM after zero_grad: inputs' gradient by autograd.grad between zero_grad and backward", apart=0.028)
def fgsm(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses = []
    for x, y in batches(run, 40):
        optimizer.zero_grad()
        x.requires_grad_(True)
        way, = torch.autograd.grad(1000 * error(model, x, y), x)  # 1000: attacks often sum
        loss = error(model, (x + 0.05 * way.sign()).detach(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("a guard that restores the last good weights after a bad step", apart=0.076)
def rollback(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses, good, restored = [], copy.deepcopy(model.state_dict()), 1
    for i, (x, y) in enumerate(batches(run, 60)):
        if i % 10 == 7:
            y = y * 1e4  # a spike
        loss = error(model, x, y)
        if i > 3 and loss > 1e3:
            model.load_state_dict(good)
            restored += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        good = copy.deepcopy(model.state_dict())
        losses.append(loss.item())
    return {"loss": tail(losses), "restored": restored, **unseen(model, run)}


@program("Reptile: a deep copy learns, the model moves towards it by .data", apart=0.047, arms=TE,
         counts="The copy is what trains.")
def reptile(run):
    model, _ = run.prepare(mlp())
    losses = []
    for task in range(6):
        inner = copy.deepcopy(model)
        sgd = torch.optim.SGD(inner.parameters(), lr=0.3)
        losses.append(fit(inner, sgd, run, 8))
        for p, q in zip(model.parameters(), inner.parameters()):
            p.data.add_(q.data - p.data, alpha=0.5)
        (x, y), = batches(run, 1)
        error(model, x, y).backward()
        model.zero_grad()
    return {"loss": tail(losses, 2), **unseen(model, run)}


@program("A3C: a local copy computes gradients, a shared model's optimizer steps, the copy loads", apart=0.032,
         arms=TE,
         counts="The copy is what computes.")
def shared(run):
    model, _ = run.prepare(mlp())
    local = copy.deepcopy(model)
    optimizer = adamw(model.parameters())
    losses = []
    for x, y in batches(run, 40):
        local.load_state_dict(model.state_dict())
        local.zero_grad()
        loss = error(local, x, y)
        loss.backward()
        for p, q in zip(model.parameters(), local.parameters()):
            p.grad = q.grad
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("A3C, the copy follows by p.data.copy_", apart=0.032, arms=TE, counts="The copy is what computes.")
def shared_data(run):
    model, _ = run.prepare(mlp())
    local = copy.deepcopy(model)
    optimizer = adamw(model.parameters())
    losses = []
    for x, y in batches(run, 40):
        for p, q in zip(local.parameters(), model.parameters()):
            p.data.copy_(q.data)
        local.zero_grad()
        loss = error(local, x, y)
        loss.backward()
        for p, q in zip(model.parameters(), local.parameters()):
            p.grad = q.grad
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("AdamW: weight decay, betas, a warm-up written into param_groups, a group frozen at times", apart=0.066)
def groups(run):
    model = mlp(32, 64, 64, 16)
    model, optimizer = run.prepare(model, torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.3},
         {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}], lr=1e-2, betas=(0.8, 0.95)))
    losses = []
    for i, (x, y) in enumerate(batches(run, 80)):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, (i + 1) / 20) * (0.0 if i % 20 == 19 else 1.0)
        if i == 40:
            optimizer.param_groups[0]["weight_decay"] = 1.0
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        if i % 4 == 3:
            model[2].weight.grad = None
            model[2].bias.grad = None
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run, lambda: mlp(32, 64, 64, 16)),
            "norm": sum(p.detach().norm() for p in model.parameters())}


@program("requires_grad_(False) and True again between steps, moments kept", apart=0.081)
def thawed(run):
    model = mlp(32, 64, 64, 16)
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for i, (x, y) in enumerate(batches(run, 60)):
        model[2].requires_grad_(i // 10 % 2 == 0)
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run, lambda: mlp(32, 64, 64, 16))}


@program("two forwards, one detached; a loss of 1e-6 and one of 1e3 in turns", apart=0.116,
         arms=("current", "block", "msamp"))
def scales(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses = []
    for i, (x, y) in enumerate(batches(run, 60)):
        optimizer.zero_grad()
        loss = error(model, x, y)
        (loss * (1e-6, 1e3)[i % 2]).backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("widths of 1, 3, 10 and 33, no bias", apart=0.018, arms=ALL)
def odd(run):
    def make():
        return nn.Sequential(nn.Linear(32, 33), nn.Tanh(), nn.Linear(33, 3, bias=False), nn.Linear(3, 1), nn.Linear(1, 10),
                             nn.Tanh(), nn.Linear(10, 16))
    model = make()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    return {"loss": fit(model, optimizer, run, 60), **unseen(model, run, make)}


@program("a layer shared by two models, an optimizer each", apart=0.095, arms=TE)
def two_models(run):
    trunk = mlp(32, 64, 64)
    one, two = nn.Sequential(trunk, mlp(64, 16)), nn.Sequential(trunk, mlp(64, 16))
    both = nn.ModuleList([one, two])
    both, _ = run.prepare(both)
    first, second = adamw(one.parameters(), 5e-3), adamw(two[1].parameters(), 5e-3)
    losses = []
    for x, y in batches(run, 60):
        for model, optimizer, target in ((one, first, y), (two, second, -y)):
            optimizer.zero_grad()
            loss = error(model, x, target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"one": tail(losses[::2]), "two": tail(losses[1::2])}


@program("compiled: gradients of inputs by autograd.grad before the step", apart=0.075,
         arms=("delayed", "current", "msamp"),
         counts="A graph calls no module.")
def compiled_inputs(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    call = torch.compile(model, backend="aot_eager")
    losses = []
    for x, y in batches(run, 30):
        optimizer.zero_grad()
        x.requires_grad_(True)
        way, = torch.autograd.grad(error(call, x, y), x)
        loss = error(call, (x + 0.05 * way.sign()).detach(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}

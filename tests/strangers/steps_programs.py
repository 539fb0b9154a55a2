"""Steps that are skipped, split, undone or taken elsewhere, and gradients that only a part of the model takes."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

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


@program("loss.backward(inputs=[x]) before the step (input attribution)", apart=0.056)
def attribution(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses, seen = [], []
    for x, y in batches(run, 40):
        optimizer.zero_grad()
        probe = x.clone().requires_grad_(True)
        (-F.mse_loss(model(probe), y.roll(1, 0))).backward(inputs=[probe])
        seen.append(probe.grad.abs().mean().item())
        loss = error(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "probe": tail(seen), **unseen(model, run)}


@program("a guard leaves out bad micro-batches of an accumulation", apart=0.108)
def micro(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses = []
    for i, (x, y) in enumerate(batches(run, 60)):
        if i % 10 == 3:
            y[0, 0] = float("nan")
        loss = error(model, x, y) / 2
        loss.backward()
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(2 * loss.item())
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


@program("a probe step: backward, SGD by p.data.sub_, evaluation, weights put back (learning to reweight)", apart=0.038)
def probe(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 5e-3))
    losses, probes = [], []
    for x, y in batches(run, 40):
        optimizer.zero_grad()
        error(model, x, y).backward()
        old = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.data.sub_(p.grad.detach().clone() * 1.0)
            probes.append(error(model, x, y).item())
            for p, o in zip(model.parameters(), old):
                p.data.copy_(o)
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "probe": tail(probes), **unseen(model, run)}


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


@program("parameters as views of one flat buffer, which is what the step changes", apart=0.086, arms=TE)
def flat(run):
    model, _ = run.prepare(mlp())
    buffer, at = torch.cat([p.detach().reshape(-1) for p in model.parameters()]), 0
    for p in model.parameters():
        p.data = buffer[at:at + p.numel()].view_as(p)
        at += p.numel()
    losses = []
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        buffer.sub_(0.5 * torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("model.eval() throughout (a frozen BatchNorm), EMA put in by .data.copy_ at times", apart=0.032, arms=TE,
         counts="In eval mode layers run in the host's precision.")
def eval_training(run):
    model, _ = run.prepare(mlp())
    model.eval()
    losses = []
    shadow = [p.detach().clone() for p in model.parameters()]
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        for p, s in zip(model.parameters(), shadow):
            p.data.add_(p.grad, alpha=-0.5)
            s.lerp_(p.data, 0.3)
            p.data.copy_(s)
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("a frozen backbone in training mode under no_grad, its inputs in the thousands", apart=0.033,
         counts="Of the backbone none has a gradient.")
def features(run):
    model = nn.ModuleDict({"backbone": mlp(32, 64, 64), "head": mlp(64, 64, 16)})
    model, optimizer = run.prepare(model, adamw(model["head"].parameters(), 1e-2))
    losses = []
    for x, y in batches(run, 60):
        with torch.no_grad():
            h = model["backbone"](2000 * x) / 500
        loss = F.mse_loss(model["head"](h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


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


@program("two forwards, one detached; a loss of 1e-6 and one of 1e3 in turns", apart=0.116, arms=("current", "block", "msamp"))
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


@program("compiled: a guard on the norm leaves out steps with Inf", apart=0.078, arms=("delayed", "msamp"),
         counts="A graph calls no module.")
def compiled_guard(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    call = torch.compile(model, backend="aot_eager")
    losses, skipped = [], 1
    for i, (x, y) in enumerate(batches(run, 60)):
        if i % 6 == 5:
            y[0, 0] = float("inf")
        optimizer.zero_grad()
        loss = error(call, x, y)
        loss.backward()
        if not torch.isfinite(loss):
            skipped += 1
            continue
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "skipped": skipped, **unseen(model, run)}


@program("compiled: gradients of inputs by autograd.grad before the step", apart=0.075, arms=("delayed", "current", "msamp"),
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

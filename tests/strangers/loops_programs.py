"""Training loops and tools of torch itself, as its users write them."""
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from stranger import adamw, batches, error, fit, mlp, program, unseen

ALL = ("delayed", "current", "block", "msamp")
TE = ("delayed", "current", "block")


@program("AdamW", apart=0.032, arms=ALL)
def usual(run):
    model, optimizer = mlp(), None
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run)}


@program("p.data.add_(p.grad, alpha=-lr), no optimizer (word_language_model)", apart=0.086, arms=TE)
def data_add(run):
    model, _ = run.prepare(mlp())
    losses = []
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.5)
        losses.append(loss.item())
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run)}


@program("torch._foreach_add_ on p.data", apart=0.086, arms=TE)
def foreach_data(run):
    model, _ = run.prepare(mlp())
    losses = []
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        torch._foreach_add_([p.data for p in model.parameters()], [p.grad for p in model.parameters()], alpha=-0.5)
        losses.append(loss.item())
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run)}


@program("p.data = p.data - lr * p.grad", apart=0.086, arms=TE)
def data_assign(run):
    model, _ = run.prepare(mlp())
    losses = []
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        for p in model.parameters():
            p.data = p.data - 0.5 * p.grad
        losses.append(loss.item())
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run)}


@program("torch.autograd.grad and p.sub_ under no_grad", apart=0.086, arms=TE)
def manual_grad(run):
    model, _ = run.prepare(mlp())
    losses = []
    for x, y in batches(run, 60):
        loss = error(model, x, y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p.sub_(0.5 * g)
        losses.append(loss.item())
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run)}


@program("vector_to_parameters of a vector that was updated", apart=0.086, arms=TE)
def vectors(run):
    model, _ = run.prepare(mlp())
    losses = []
    for x, y in batches(run, 60):
        model.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        grad = parameters_to_vector([p.grad for p in model.parameters()])
        vector_to_parameters(parameters_to_vector(model.parameters()).detach() - 0.5 * grad, model.parameters())
        losses.append(loss.item())
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run)}


def _es(run, write, train=True):
    """Evolution strategies: antithetic pairs, ranks as weights."""
    model, _ = run.prepare(mlp(32, 32, 16))
    model.train(train)
    draw = torch.Generator().manual_seed(7)
    losses = []
    with torch.no_grad():
        for x, y in batches(run, 60):
            vector = parameters_to_vector(model.parameters()).clone()
            step = torch.zeros_like(vector)
            for _ in range(8):
                noise = torch.randn(vector.shape, generator=draw)
                found = []
                for sign in (1, -1):
                    write(model, vector + sign * 0.02 * noise)
                    found.append(error(model, x, y).item())
                step += (found[0] - found[1]) * noise
            write(model, vector - 0.3 * step / step.norm())
            losses.append(min(found))
    return {"loss": sum(losses[-10:]) / 10, **unseen(model, run, lambda: mlp(32, 32, 16))}


def _by_data(model, vector):
    at = 0
    for p in model.parameters():
        p.data.copy_(vector[at:at + p.numel()].view_as(p))
        at += p.numel()


@program("evolution strategies, p.data.copy_, in training mode", apart=0.011, arms=TE, moves="Noise decides which way.",
         counts="none needs a gradient")
def evolution(run):
    return _es(run, _by_data)


@program("evolution strategies, vector_to_parameters", apart=0.011, arms=TE, moves="Noise decides which way.",
         counts="none needs a gradient")
def evolution_vectors(run):
    return _es(run, lambda model, vector: vector_to_parameters(vector, model.parameters()))


@program("EMA stored, copied in by .data.copy_, validated, restored, in the middle of an epoch", apart=0.032)
def ema_swap(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    shadow = [torch.zeros_like(p) for p in model.parameters()]  # far from the weights, so that codes of it show
    losses, valid = [], []
    for i, (x, y) in enumerate(batches(run, 40)):
        loss = error(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for s, p in zip(shadow, model.parameters()):
            s.lerp_(p.detach(), 0.02)
        if i % 2:
            stored = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                for p, s in zip(model.parameters(), shadow):
                    p.data.copy_(s)
                valid.append(error(model, x, y).item())
                for p, s in zip(model.parameters(), stored):
                    p.data.copy_(s)
    return {"loss": sum(losses[-10:]) / 10, "valid": sum(valid[-5:]) / 5, **unseen(model, run)}


@program("two batches forward, p.data.mul_ between them, no step", apart=0.072, arms=("current", "msamp"))
def data_between(run):
    model, _ = run.prepare(mlp())
    (x, y), = batches(run, 1)
    out = {}
    for i in range(3):
        error(model, x, y).backward()
        out[f"norm {i}"] = model(x).norm()
        for p in model.parameters():
            p.data.mul_(1.5)
    out["last"] = model(x).norm()
    return out


def _writes():
    """Ways to give a parameter other values, most of which leave no trace in its version."""
    def data_assigned(p, t):
        p.data = t

    def set_(p, t):
        with torch.no_grad():
            p.set_(t)

    def swapped(p, t):
        torch.utils.swap_tensors(p, nn.Parameter(t))

    def under_inference_mode(p, t):
        with torch.inference_mode():
            p.data.copy_(t)

    def numpy(p, t):
        p.detach().numpy()[...] = t.numpy()

    def storage(p, t):
        p.untyped_storage().copy_(t.untyped_storage())

    def foreach(p, t):
        torch._foreach_copy_([p.data], [t])

    def view(p, t):
        p.data.view(-1)[:] = t.view(-1)

    def out(p, t):
        torch.mul(t, 1.0, out=p.data)
    return (data_assigned, set_, swapped, under_inference_mode, numpy, storage, foreach, view, out)


def _written(run, factor, writes):
    """After each way to write, how much of the output of before is in the one of after."""
    (x, y), = batches(run, 1)
    found = {}
    for write in writes:
        torch.manual_seed(run.seed)
        model, _ = run.prepare(mlp())
        error(model, x, y).backward()
        before = model(x).detach()
        write(model[2].weight, factor * model[2].weight.detach().clone())
        after = model(x)
        found[write.__name__] = (after * before).sum() / before.square().sum()
        error(model, x, y).backward()
    return found


@program("weights turned around by writes that torch counts", apart=0.057, arms=TE, moves="Nothing is trained.")
def counted_writes(run):
    return _written(run, -1.0, _writes()[:3])


@program("weights turned around by writes that leave no trace", apart=0.057, arms=TE, moves="Nothing is trained.")
def traceless_writes(run):
    return _written(run, -1.0, _writes()[3:])


@program("weights made eight times as large", apart=0.021, arms=("current", "block"), moves="Nothing is trained.")
def larger_writes(run):
    return _written(run, 8.0, _writes()[:3])

"""Training with weights that are computed, given from elsewhere, or written by other code."""
import torch
from torch import nn

from stranger import adamw, batches, error, fit, mlp, program, tail, unseen

TE = ("delayed", "current", "block")


@program("weight_norm and spectral_norm of torch.nn.utils.parametrizations", apart=0.035, counts="Not converted.")
def parametrized(run):
    from torch.nn.utils.parametrizations import spectral_norm, weight_norm
    def make():
        torch.manual_seed(run.seed)
        return nn.Sequential(weight_norm(nn.Linear(32, 64)), nn.GELU(), spectral_norm(nn.Linear(64, 64)), nn.GELU(), nn.Linear(64, 16))
    model = make()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run, make)}


@program("weight_norm of torch.nn.utils (hooks, the old one)", apart=0.058, counts="Not converted.")
def old_weight_norm(run):
    from torch.nn.utils import weight_norm
    model = mlp()
    weight_norm(model[0])
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run, 60)}


@program("weight_norm applied after octavo.prepare", apart=0.058, counts="Not converted.", arms=TE, moves="Other parameters.")
def weight_norm_after(run):
    from torch.nn.utils import weight_norm
    model, _ = run.prepare(mlp())
    weight_norm(model[0])
    return {"loss": fit(model, adamw(model.parameters()), run, 60)}


@program("parametrization registered after octavo.prepare", apart=0.058, counts="Not converted.", arms=TE, moves="Other parameters.")
def parametrize_after(run):
    from torch.nn.utils import parametrize
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.tanh() * 2
    model, _ = run.prepare(mlp())
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    return {"loss": fit(model, adamw(model.parameters()), run, 60)}


@program("pruned by torch.nn.utils.prune after octavo.prepare", apart=0.025, counts="Not converted.", arms=TE, moves="Other parameters.")
def pruned(run):
    from torch.nn.utils import prune
    model, _ = run.prepare(mlp())
    fit(model, adamw(model.parameters()), run, 20)
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    prune.l1_unstructured(model[2], "weight", amount=0.5)
    loss = fit(model, adamw(model.parameters()), run, 40)
    return {"loss": loss, "zeros": (model[0].weight == 0).float().mean() + 1}


@program("functional_call with other weights, in turns with its own", apart=0.058, arms=TE)
def functional(run):
    model, _ = run.prepare(mlp())
    names = dict(model.named_parameters())
    fast = {k: (p.detach() * 0.5).requires_grad_(True) for k, p in names.items()}
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    losses, other = [], []
    for x, y in batches(run, 60):
        loss = error(model, x, y)
        f = nn.functional.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
        opt.zero_grad()
        (loss + f).backward()
        opt.step()
        with torch.no_grad():
            for p in fast.values():
                p -= 0.3 * p.grad
                p.grad = None
        losses.append(loss.item())
        other.append(f.item())
    return {"loss": tail(losses), "other": tail(other)}


@program("functional_call, weights made by a hypernetwork", apart=0.078, arms=TE, counts="The weights are no parameters.",
         moves="The model's own weights stay.")
def hypernetwork(run):
    model, _ = run.prepare(mlp())
    shapes = {k: p.shape for k, p in model.named_parameters()}
    z = nn.Parameter(torch.randn(8))
    generator = nn.ModuleDict({k.replace(".", "_"): nn.Linear(8, s.numel()) for k, s in shapes.items()})
    with torch.no_grad():
        for m in generator.values():
            m.weight.mul_(0.2)
    opt = torch.optim.Adam([z, *generator.parameters()], lr=5e-3)
    losses = []
    for x, y in batches(run, 60):
        w = {k: generator[k.replace(".", "_")](z).view(s) * 0.3 for k, s in shapes.items()}
        loss = nn.functional.mse_loss(torch.func.functional_call(model, w, (x,)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("an optimizer on the CPU over copies, written back by p.data.copy_ (offload)", apart=0.111, arms=TE)
def offload(run):
    model, _ = run.prepare(mlp())
    copies = [p.detach().clone().requires_grad_(True) for p in model.parameters()]
    opt = adamw(copies)
    losses = []
    for x, y in batches(run, 60):
        for p in model.parameters():
            p.grad = None
        loss = error(model, x, y)
        loss.backward()
        for c, p in zip(copies, model.parameters()):
            c.grad = p.grad.clone()
        opt.step()
        for c, p in zip(copies, model.parameters()):
            p.data.copy_(c.data)
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("model soups and interpolation: load_state_dict in the middle of training", apart=0.010)
def soup(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    fit(model, optimizer, run, 20)
    first = {k: v.detach().clone() for k, v in model.state_dict().items()}
    fit(model, optimizer, run, 20)
    model.load_state_dict({k: 0.5 * (v + model.state_dict()[k]) for k, v in first.items()})
    return {"loss": fit(model, optimizer, run, 20), **unseen(model, run)}


@program("a layer re-initialised in the middle (plasticity resets)", apart=0.048)
def resets(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    fit(model, optimizer, run, 20)
    torch.manual_seed(run.seed + 50)
    model[2].reset_parameters()
    return {"loss": fit(model, optimizer, run, 40), **unseen(model, run)}


@program("weights clamped through .data after each step (WGAN)", apart=0.019)
def clamped(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses = []
    for x, y in batches(run, 60):
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.data.clamp_(-0.1, 0.1)
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("spectral or max-norm constraint through .data before the forward", apart=0.016)
def max_norm(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses = []
    for x, y in batches(run, 60):
        for m in model:
            if hasattr(m, "weight"):
                m.weight.data = torch.renorm(m.weight.data, 2, 0, 0.4)
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}

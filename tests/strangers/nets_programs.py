"""Training with several models, optimizers, phases and wrappers."""
import copy

import torch
from torch import nn

from stranger import adamw, batches, error, fit, mlp, program, tail, unseen

ALL = ("delayed", "current", "block", "msamp")
TE = ("delayed", "current", "block")


@program("a GAN: two optimizers, requires_grad_ toggled", apart=0.272, counts="Gradients of the inputs alone.")
def gan(run):
    g, d = mlp(32, 64, 16), mlp(16, 64, 1)
    g, og = run.prepare(g, adamw(g.parameters(), 2e-3))
    d, od = run.prepare(d, adamw(d.parameters(), 2e-3))
    bce = nn.functional.binary_cross_entropy_with_logits
    dl, gl, mean = [], [], []
    for x, y in batches(run, 60):
        d.requires_grad_(True)
        fake = g(x)
        od.zero_grad()
        loss = bce(d(y), torch.ones(len(y), 1)) + bce(d(fake.detach()), torch.zeros(len(y), 1))
        loss.backward()
        od.step()
        dl.append(loss.item())
        d.requires_grad_(False)
        og.zero_grad()
        loss = bce(d(fake), torch.ones(len(y), 1)) + 0.1 * (fake - y).square().mean()
        loss.backward()
        og.step()
        gl.append(loss.item())
        mean.append(fake.detach().std().item())
    return {"d": tail(dl), "g": tail(gl), "std": tail(mean)}


@program("siamese: one module called twice a step, cosine loss", apart=0.004)
def siamese(run):
    model = mlp(32, 64, 16)
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses = []
    for x, y in batches(run, 40):
        other = x.roll(1, 0)
        near = (nn.functional.cosine_similarity(y, y.roll(1, 0)) > 0).float() * 2 - 1
        optimizer.zero_grad()
        loss = nn.functional.cosine_embedding_loss(model(x), model(other), near, margin=0.2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses)}


@program("batches of 64, 1, 0, 17 rows", arms=("current", "msamp"), apart=0.089)
def sizes(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses = []
    for i, (x, y) in enumerate(batches(run, 80)):
        rows = (64, 1, 0, 17)[i % 4]
        optimizer.zero_grad()
        loss = (model(x[:rows]) - y[:rows]).square().sum() / max(rows, 1) / 16
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses, 12), **unseen(model, run)}


@program("LayerDrop: blocks left out at random", apart=0.105)
def layerdrop(run):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(32, 64), nn.Linear(64, 16)
            self.blocks = nn.ModuleList(mlp(64, 64, 64) for _ in range(4))

        def forward(self, x):
            x = self.first(x)
            for b in self.blocks:
                if not self.training or torch.rand(()) > 0.5:
                    x = x + b(x)
            return self.last(x)
    model = Net()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    torch.manual_seed(run.seed)
    return {"loss": fit(model, optimizer, run, 60), **unseen(model, run, Net)}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(64, 32), mlp(32, 64, 32), nn.Linear(32, 64, bias=False)

    def forward(self, x):
        e = self.embed(x)
        return self.head(e + self.body(e))


def _tied(run, model, optimizer, steps=60):
    losses, table = [], torch.randperm(64, generator=torch.Generator().manual_seed(5))
    for i in range(steps):
        x = torch.randint(0, 64, (128,), generator=torch.Generator().manual_seed(1000 * run.seed + i))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), table[x])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"mean": sum(losses) / steps, "first": losses[0], "tied": 1.0 + (model.head.weight is model.embed.weight)}


@program("head tied to the embedding before", apart=0.030)
def tied_before(run):
    model = Tied()
    model.head.weight = model.embed.weight
    return _tied(run, *run.prepare(model, adamw(model.parameters(), 3e-3)))


@program("head tied to the embedding after octavo.prepare", apart=0.030, arms=("delayed", "current", "block"))
def tied_after(run):
    model = Tied()
    model, _ = run.prepare(model)
    model.head.weight = model.embed.weight
    return _tied(run, model, adamw(model.parameters(), 3e-3))


@program("a deep copy as teacher, EMA of the student by param.data.lerp_ (mean teacher)", apart=0.104,
         counts="The teacher's forwards need no gradient.")
def mean_teacher(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    teacher = copy.deepcopy(model).requires_grad_(False)
    losses, gaps = [], []
    for x, y in batches(run, 60):
        with torch.no_grad():
            target = teacher(x)
        out = model(x)
        loss = nn.functional.mse_loss(out, y) + 0.5 * nn.functional.mse_loss(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(teacher.parameters(), model.parameters()):
                a.data.mul_(0.9).add_(b.data, alpha=0.1)
        losses.append(loss.item())
        with torch.no_grad():
            gaps.append(error(teacher, x, y).item())
    return {"loss": tail(losses), "teacher": tail(gaps)}


@program("torch.optim.swa_utils.AveragedModel, evaluated each epoch", apart=0.085, counts="The copy is evaluated only.")
def swa(run):
    from torch.optim.swa_utils import AveragedModel
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    average = AveragedModel(model)
    out = {}
    for e in range(3):
        out[f"loss {e}"] = fit(model, optimizer, run, 20)
        average.update_parameters(model)
        (x, y), = batches(run, 1, 512, unseen=True)
        with torch.no_grad():
            out[f"average {e}"] = error(average, x, y)
    return out


@program("update_bn of swa_utils with AveragedModel", apart=0.018, counts="Statistics alone.")
def update_bn(run):
    from torch.optim.swa_utils import AveragedModel, update_bn as update
    def make():
        return nn.Sequential(nn.Linear(32, 64, bias=False), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 16))
    model = make()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    average = AveragedModel(model)
    for _ in range(3):
        fit(model, optimizer, run, 20)
        average.update_parameters(model)
    update([x for x, _ in batches(run, 8)], average)
    (x, y), = batches(run, 1, 512, unseen=True)
    with torch.no_grad():
        return {"average": error(average.eval(), x, y), **unseen(model, run, make)}


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimization, the common public form: weights climb through p.data."""

    def __init__(self, params, base, rho):
        super().__init__(params, dict(rho=rho))
        self.base = base(self.param_groups)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad, alpha=self.defaults["rho"] / norm.item())
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


@program("SAM, p.data assigned back", apart=0.056, arms=TE)
def sam(run):
    model, _ = run.prepare(mlp())
    optimizer = SAM(model.parameters(), lambda p: torch.optim.SGD(p, lr=0.3), 0.3)
    losses = []
    for x, y in batches(run, 60):
        loss = error(model, x, y)
        loss.backward()
        optimizer.first_step()
        error(model, x, y).backward()
        optimizer.second_step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


@program("SAM, p.data.copy_ back", apart=0.038, arms=TE)
def sam_copy(run):
    model, _ = run.prepare(mlp())
    base = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for x, y in batches(run, 60):
        loss = error(model, x, y)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        old = [p.data.clone() for p in model.parameters()]
        for p in model.parameters():
            p.data.add_(p.grad, alpha=(1.0 / norm).item())
        base.zero_grad()
        error(model, x, y).backward()
        for p, o in zip(model.parameters(), old):
            p.data.copy_(o)
        base.step()
        base.zero_grad()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}


class Lookahead:
    """The common public wrapper: no Optimizer itself, writes through .data every k steps."""

    def __init__(self, base, k=5, alpha=0.5):
        self.base, self.k, self.alpha, self.count = base, k, alpha, 0
        self.slow = [p.data.clone() for g in base.param_groups for p in g["params"]]

    def zero_grad(self):
        self.base.zero_grad()

    def step(self):
        self.base.step()
        self.count += 1
        if self.count % self.k == 0:
            for s, p in zip(self.slow, (p for g in self.base.param_groups for p in g["params"])):
                s.add_(p.data - s, alpha=self.alpha)
                p.data.copy_(s)


@program("Lookahead, a wrapper that writes through .data after the step", apart=0.058)
def lookahead(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 2e-2))
    return {"loss": fit(model, Lookahead(optimizer, 2, 0.2), run, 60), **unseen(model, run)}


class GaLore(torch.optim.Optimizer):
    """A gradient projected on its leading singular vectors; Adam in that space; written by p.data.add_."""

    def __init__(self, params, lr=5e-3, rank=8):
        super().__init__(params, dict(lr=lr))
        self.rank, self.count = rank, 0

    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                g, state = p.grad.data, self.state[p]
                if g.dim() == 2:
                    if self.count % 10 == 1:
                        state["u"] = torch.linalg.svd(g, full_matrices=False)[0][:, :self.rank]
                    g = state["u"].T @ g
                m = state.setdefault("m", torch.zeros_like(g)).mul_(0.9).add_(g, alpha=0.1)
                v = state.setdefault("v", torch.zeros_like(g)).mul_(0.99).add_(g * g, alpha=0.01)
                way = m / (1 - 0.9**self.count) / ((v / (1 - 0.99**self.count)).sqrt() + 1e-8)
                if p.dim() == 2:
                    way = state["u"] @ way
                p.data.add_(way, alpha=-group["lr"])


@program("GaLore-like projection, an Optimizer that writes p.data.add_", apart=0.088, arms=TE)
def galore(run):
    model = mlp()
    model, optimizer = run.prepare(model, GaLore(model.parameters()))
    return {"loss": fit(model, optimizer, run, 60), **unseen(model, run)}


class PlainAdam:
    """An optimizer of one's own that is no torch.optim.Optimizer (lucidrains, research code)."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.m = list(parameters), lr, {}

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        for p in self.parameters:
            m = self.m.setdefault(p, torch.zeros_like(p)).mul_(0.9).add_(p.grad, alpha=0.1)
            p.data.sub_(m.sign() * self.lr)


@program("Lion as a class of its own, no torch Optimizer, p.data.sub_", apart=0.058, arms=TE)
def own_optimizer(run):
    model, _ = run.prepare(mlp())
    return {"loss": fit(model, PlainAdam(model.parameters(), 3e-3), run, 60), **unseen(model, run)}


@program("a hook that replaces outputs, and a pre-hook that replaces inputs", apart=0.011)
def hooks(run):
    model = mlp()
    model[0].register_forward_hook(lambda m, a, out: out * 1.5)
    model[2].register_forward_pre_hook(lambda m, a: (a[0] - 0.1,))
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run)}


@program("nn.DataParallel around a prepared model", apart=0.032)
def data_parallel(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(nn.DataParallel(model), optimizer, run), **unseen(model, run)}


@program("autocast on and off by region, bf16", apart=0.004)
def regions(run):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 16)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                x = nn.functional.gelu(self.a(x))
                with torch.autocast("cpu", enabled=False):
                    x = nn.functional.gelu(self.b(x.float()))
                x = self.c(x)
            return x.float()
    model = Net()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run, Net)}


@program("clip_grad_norm_ before and after another term is added", apart=0.019)
def clipping(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    losses, norms = [], []
    for x, y in batches(run, 40):
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        (0.01 * model(x).square().mean()).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "norm": tail(norms), **unseen(model, run)}

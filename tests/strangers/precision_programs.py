"""Overflow, guards, checkpoints of activations, code with a linear layer of its own, compiled programs, torch.nn.Transformer."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from stranger import adamw, batches, error, fit, mlp, program, sentences, tail, unseen, VOCABULARY

ALL = ("delayed", "current", "block", "msamp")
TE = ("delayed", "current", "block")


@program("GradScaler, fp16 autocast, a batch that overflows", apart=0.078, arms=TE)
def scaler(run):
    model, _ = run.prepare(mlp())
    optimizer = adamw(model.parameters(), 1e-2)
    scaler, losses, skipped = torch.amp.GradScaler("cpu", init_scale=1024.0), [], 1
    for i, (x, y) in enumerate(batches(run, 60)):
        x = x * 1e5 if i % 6 == 5 else x  # beyond f16
        with torch.autocast("cpu", torch.float16):
            loss = error(model, x, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if i % 6 != 5:
            losses.append(loss.item())
    return {"loss": tail(losses), "skipped": skipped, **unseen(model, run)}


@program("Inf in an activation, a guard on the loss", apart=0.078)
def guard(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses, skipped = [], 1
    for i, (x, y) in enumerate(batches(run, 60)):
        if i % 6 == 5:
            x[0, 0] = float("inf")
        loss = error(model, x, y)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "skipped": skipped, **unseen(model, run)}


@program("NaN in a weight: the guard stops the run", apart=0.000, moves="One of them is NaN.", counts="It stops.")
def nan_weight(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    count = 1
    for i, (x, y) in enumerate(batches(run, 10)):
        if i == 5:
            with torch.no_grad():
                model[0].weight[0, 0] = float("nan")
        loss = error(model, x, y)
        count += not torch.isfinite(loss)
        if not torch.isfinite(loss):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"not finite": count, "steps": i + 1}


@program("NaN in one gradient, found by a guard on the norm", apart=0.078)
def norm_guard(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    losses, skipped = [], 1
    for i, (x, y) in enumerate(batches(run, 60)):
        if i % 6 == 5:
            y[0, 0] = float("inf")
        optimizer.zero_grad()
        loss = error(model, x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            skipped += 1
            continue
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), "skipped": skipped, **unseen(model, run)}


class Blocks(nn.Module):
    """Residual blocks whose activations are computed again in the backward."""

    def __init__(self, is_reentrant):
        super().__init__()
        self.is_reentrant = is_reentrant
        self.first, self.last = nn.Linear(32, 64), nn.Linear(64, 16)
        self.blocks = nn.ModuleList(mlp(64, 64, 64) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.is_reentrant) if torch.is_grad_enabled() else x + block(x)
        return self.last(x)


@program("reentrant checkpoints of blocks in eval mode", apart=0.046,
         counts="In eval mode layers run in the host's precision.")
def reentrant_eval(run):
    model = Blocks(True)
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    model.blocks.eval()
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda m, a, out: seen.append(out.detach()))
    for x, y in batches(run, 2):
        seen.clear()
        error(model, x, y).backward()
        first, second, second_again, first_again = seen
        assert torch.equal(first, first_again) and torch.equal(second, second_again), "computed again otherwise"
    return {"loss": fit(model, optimizer, run), **unseen(model, run, lambda: Blocks(True))}


@program("checkpoints, reentrant", apart=0.046, counts="Each forward runs twice.")
def reentrant(run):
    model = Blocks(True)
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run, lambda: Blocks(True))}


class OwnLinear(nn.Linear):
    """As in karpathy's nanochat."""

    def forward(self, x):
        return F.linear(x, self.weight.to(dtype=x.dtype))


@program("a Linear subclass with a forward of its own (nanochat)", apart=0.023, counts=None)
def nanochat(run):
    def make():
        return nn.Sequential(OwnLinear(32, 64, bias=False), nn.GELU(), OwnLinear(64, 16, bias=False))
    model = make()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run, make)}


def _halves(run, compiled):
    model = nn.Sequential(*mlp(32, 64, 64, 16))
    first, second = list(model[0].parameters()) + list(model[2].parameters()), list(model[4].parameters())
    one, two = adamw(first), adamw(second, 2e-3)
    run.watch(model)
    if run.arm is not None:
        import octavo
        model, one = octavo.prepare(model, one, overrides=run.overrides)
        model, two = octavo.prepare(model, two)
    call = torch.compile(model, backend="aot_eager") if compiled else model
    losses = []
    for x, y in batches(run, 40):
        loss = error(call, x, y)
        one.zero_grad()
        two.zero_grad()
        loss.backward()
        one.step()
        two.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run, lambda: mlp(32, 64, 64, 16))}


@program("two optimizers over halves of a model", apart=0.023, arms=TE)
def halves(run):
    return _halves(run, False)


@program("two optimizers over halves of a model, compiled", apart=0.023, arms=TE, counts="A graph calls no module.")
def halves_compiled(run):
    return _halves(run, True)


class Translator(nn.Module):
    def __init__(self, norm_first=False):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.body = nn.Transformer(32, 2, 1, 1, 64, 0.0, batch_first=True, norm_first=norm_first)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.body(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True))


@program("torch.nn.Transformer, evaluated by its fast path between steps", apart=0.079, counts="Its projections are functional.")
def transformer(run):
    model = Translator()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    losses, valid = [], []
    for i, t in enumerate(sentences(run, 40)):
        loss = F.cross_entropy(model(t[:, :8].flip(1), t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.inference_mode():
            valid.append(F.cross_entropy(model(t[:, :8].flip(1), t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()).item())
        model.train()
    return {"loss": tail(losses), "valid": tail(valid)}


@program("torch.nn.TransformerEncoder with a padding mask, evaluated by nested tensors", apart=0.025,
         counts="Its projections are functional.")
def encoder(run):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, 32)
            self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True), 2)
            self.head = nn.Linear(32, VOCABULARY)

        def forward(self, x, mask):
            return self.head(self.body(self.embed(x), src_key_padding_mask=mask))
    model = Net()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 3e-3))
    losses, valid = [], []
    for i, t in enumerate(sentences(run, 40)):
        mask = torch.arange(16)[None] >= torch.tensor([16, 12, 9, 16, 8, 15, 10, 16])[:, None]
        wanted = t.flip(1)
        loss = F.cross_entropy(model(t, mask)[~mask], wanted[~mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            valid.append(F.cross_entropy(model(t, mask)[~mask], wanted[~mask]).item())
        model.train()
    return {"loss": tail(losses), "valid": tail(valid)}


@program("torch.compile, default backend, evaluated between steps", apart=0.169, arms=("delayed", "msamp"),
         counts="A graph calls no module.")
def compiled(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    call = torch.compile(model)
    losses, valid = [], []
    for i, (x, y) in enumerate(batches(run, 30)):
        loss = error(call, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if i % 5 == 4:
            call.eval()
            with torch.no_grad():
                valid.append(error(call, x, y).item())
            call.train()
    return {"loss": tail(losses), "valid": tail(valid, 2), **unseen(model, run)}


@program("torch.compile, EMA swapped in by .data.copy_ between steps", apart=0.032, arms=TE, counts="A graph calls no module.")
def compiled_swap(run):
    model, _ = run.prepare(mlp())
    optimizer = adamw(model.parameters())
    call = torch.compile(model, backend="aot_eager")
    shadow = [torch.zeros_like(p) for p in model.parameters()]
    losses, valid = [], []
    for i, (x, y) in enumerate(batches(run, 40)):
        loss = error(call, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for s, p in zip(shadow, model.parameters()):
            s.lerp_(p.detach(), 0.02)
        stored = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p, s in zip(model.parameters(), shadow):
                p.data.copy_(s)
            valid.append(error(call, x, y).item())
            for p, s in zip(model.parameters(), stored):
                p.data.copy_(s)
    return {"loss": tail(losses), "valid": tail(valid), **unseen(model, run)}

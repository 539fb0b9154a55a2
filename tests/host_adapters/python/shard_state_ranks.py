"""What each rank of shard_state_test.py runs: msamp with optimizer state on one rank each, next to the same
without."""
import contextlib
import copy
import io
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fsdp_mesh_ranks
import octavo
from conftest import msamp, session
from fsdp_parts import CLASSES, WIDTH, adamw, backward, train
from octavo.torch.ranks import owners

LEVELS, STEPS, FEW = ("O1", "O2", "O3"), 10, 3
MODULES = ("attention", "tied")  # of fsdp_mesh_ranks
FORMATS = {"random": {"state_rounding": "stochastic", "weight_rounding": "stochastic"},
           "groups": {"state_format": "coat", "state_skip": "head*", "weight_cache": False}, "msamp04": {"profile": "msamp04"}}


class Net(nn.Module):
    """Linears of several sizes, and parameters that stay with torch."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Linear(WIDTH, 48)
        self.blocks = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 48, bias=False))
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.blocks(x))


def made(level, shards, seed=0, model=None, group=None, dtype=torch.float32, **options):
    """(model, optimizer, the model in DistributedDataParallel)."""
    model = (model or Net(seed)).to(dtype)
    model, optimizer = octavo.prepare(model, adamw(model), overrides=msamp(level, **options), group=group,
                                      shard_optimizer_state=shards)
    return model, optimizer, DistributedDataParallel(model, process_group=group)


def whole(model):
    """Copies of all values and slots, on every rank."""
    with octavo.full_state(model):
        return {"weights": {n: t.clone() for n, t in model.state_dict().items()}, "octavo": octavo.state_dict(model)}


def said(call, *arguments):
    """The error of a call: 'StateError: its text'."""
    try:
        call(*arguments)
    except octavo.OctavoError as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


@contextlib.contextmanager
def counted(calls):
    """Counts the collectives of exchanges, by name, without those of norms."""
    before = owners.collective

    def count(session, what, call, *arguments, **options):
        if call is not dist.all_reduce:
            calls.append((what, call.__name__))
        return before(session, what, call, *arguments, **options)

    owners.collective = count
    try:
        yield
    finally:
        owners.collective = before


def trained(level, shards, steps=STEPS, **options):
    model, optimizer, wrapped = made(level, shards, **options)
    return {"losses": train(wrapped, optimizer, steps), **whole(model)}


def equal_run():
    found = {}
    for level in LEVELS:
        calls = []
        with counted(calls):
            model, optimizer, wrapped = made(level, True)
            losses = train(wrapped, optimizer, STEPS)
        found[level] = {"ddp": trained(level, None), "sharded": {"losses": losses, **whole(model)}, "calls": calls,
                        "missing": sum(t is not None and owners.is_released(t) for t in session(model).tensors)}
    return found


def chunks_run():
    """Weights that travel in many chunks, of which some ranks have more than others."""
    before, calls = owners.CHUNK, []
    owners.CHUNK = 1000
    try:
        with counted(calls):
            sharded = trained("O3", True, FEW)
    finally:
        owners.CHUNK = before
    assert {name for _, name in calls} == {"all_gather_into_tensor", "broadcast"}
    return {"ddp": trained("O3", None, FEW), "sharded": sharded}


def options_run():
    """Other ways through the same code: formats, and two optimizers with clipping."""
    found = {"chunks": chunks_run()}
    for name, options in FORMATS.items():
        found[name] = {"ddp": trained("O3", None, FEW, **options), "sharded": trained("O3", True, FEW, **options)}
    found["two optimizers"] = {name: two_optimizers(shards) for name, shards in (("ddp", None), ("sharded", True))}
    return found


def two_optimizers(shards):
    model = Net()
    octavo.prepare(model, overrides=msamp("O3"), shard_optimizer_state=shards)
    first = octavo.join(model, torch.optim.AdamW(model.blocks.parameters(), lr=1e-3))
    others = [p for n, p in model.named_parameters() if not n.startswith("blocks")]
    second = octavo.join(model, torch.optim.AdamW(others, lr=2e-3))
    wrapped, losses = DistributedDataParallel(model), []
    for step in range(FEW):
        model.zero_grad()
        losses.append(backward(wrapped, step))
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        first.step()
        second.step()
    return {"losses": losses, **whole(model)}


def modules_run():
    """Weights that are a part of a parameter, and that several modules read."""
    found = {}
    for name in MODULES:
        make, _ = fsdp_mesh_ranks.MODULES[name]
        for how, shards in (("ddp", None), ("sharded", True)):
            torch.manual_seed(0)
            model = make()
            model, optimizer = octavo.prepare(model, adamw(model), overrides=msamp("O3"), shard_optimizer_state=shards)
            losses = fsdp_mesh_ranks.learn(DistributedDataParallel(model), optimizer)
            found.setdefault(name, {})[how] = {"losses": losses, **whole(model)}
    return found


def overflow_run():
    """Inf in the batch of one rank, in the second of four steps."""
    found = {}
    for name, shards in (("ddp", None), ("sharded", True)):
        model, optimizer, wrapped = made("O3", shards)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            scale = float("inf") if step == 1 and dist.get_rank() == 1 else 1.0
            losses.append(backward(wrapped, step, scale))
            optimizer.step()
        found[name] = {"losses": losses[2:], **whole(model)}
        found[f"{name} skipped"] = model.octavo_session.skipped_steps
    return found


def scaler_run():
    """What GradScaler hears."""
    found = []
    for shards in (None, True):
        model, optimizer, wrapped = made("O2", shards)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        scaler.scale(wrapped(torch.ones(2, 128)).sum()).backward()
        found.append(said(scaler.step, optimizer))
    return found


class Even(nn.Module):
    """Four linears of one size, whose biases share out evenly, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for up in self.up:
            x = nn.functional.gelu(up(x))
        return x


def ledger_run():
    """The bytes that this rank holds, of storages: {level: {role: bytes}}; 0 is torch's own."""
    found = {}
    for level in LEVELS:
        model, optimizer, wrapped = made(level, True, model=Even())
        wrapped(torch.ones(4, 64)).square().mean().backward()
        optimizer.step()
        s = session(model)
        native = [t for w in s.weights if w.is_native for t in (w.parameter, w.parameter.grad)]
        found[level] = {**s.bytes_by_role(), 0: sum(t.untyped_storage().nbytes() for t in native)}
    return found


def reads_run():
    """Reads and writes of weights whose masters are on one rank each."""
    model, optimizer, wrapped = made("O3", True)
    train(wrapped, optimizer, FEW)
    s, found = session(model), {}
    other = next(n for n, p in model.named_parameters() if not s.can_read(p))
    p = dict(model.named_parameters())[other]
    found["read"] = {what: said(call) for what, call in {
        "state_dict": model.state_dict, "norm": lambda: p.norm(), "data": lambda: p.data, "mul": lambda: p.detach().mul_(2),
        "deepcopy of one": lambda: copy.deepcopy(p), "restore": lambda: octavo.restore(model),
        "another stage": lambda: octavo.prepare(model, overrides=msamp("O2")),
        "pickle": lambda: torch.save(made("O2", True)[0], io.BytesIO())}.items()}
    before = whole(model)
    found["still whole"] = before, train(wrapped, optimizer, 1, 30)
    # A value of the wrong shape leaves the weight alone.
    with torch.no_grad(), contextlib.suppress(RuntimeError):
        p.copy_(torch.ones(3, 3, 3))
    plain, its_optimizer, its_wrapped = made("O3", None)
    plain.load_state_dict(before["weights"])
    octavo.load_state_dict(plain, before["octavo"])
    found["unsharded"] = train(its_wrapped, its_optimizer, 1, 30)
    # Values that every rank writes, then those of a state dict alone.
    for m, o, w, name in ((model, optimizer, wrapped, "sharded"), (plain, its_optimizer, its_wrapped, "ddp")):
        with torch.no_grad():
            for q in m.parameters():
                q.copy_(torch.linspace(-0.1, 0.1, q.numel()).view(q.shape))
        losses = train(w, o, FEW)
        m.load_state_dict(before["weights"])
        losses += train(w, o, FEW)
        with octavo.full_state(m), torch.no_grad():
            m.head.weight.mul_(0.5)
            if m is model:
                found["step inside"] = said(o.step)
        losses += train(w, o, FEW)
        found[name] = {"losses": losses, **whole(m)}
    held = torch.zeros_like(before["weights"][other])
    p.data = held
    found["held"] = said(wrapped, torch.ones(2, 128))
    return found


def moments_run():
    """Moments of torch's AdamW, loaded on every rank, and given back."""
    source = Net(4)
    torchs = adamw(source)
    for step in range(FEW):  # the same on every rank
        for p in source.parameters():
            p.grad = torch.linspace(-1e-2, 3e-2 * step, p.numel()).view(p.shape)
        torchs.step()
    found = {}
    for shards, name in ((None, "ddp"), (True, "sharded")):
        model, optimizer, wrapped = made("O2", shards, 4)
        optimizer.load_state_dict(copy.deepcopy(torchs.state_dict()))
        found[name] = {"losses": train(wrapped, optimizer, FEW), **whole(model)}
        if shards:
            part = optimizer.state_dict()
            found["part"] = [set(part["state"]), part["octavo_part"]]
            whole_model, whole_optimizer, _ = made("O2", None, 4)
            found["read"] = said(whole_optimizer.load_state_dict, part)
            optimizer.load_state_dict(part)
        with octavo.full_state(model) if shards else contextlib.nullcontext():
            found[name]["moments"] = {f"{at}/{k}": v for at, own in optimizer.state_dict()["state"].items()
                                      for k, v in own.items()}
    return found


def copies_run():
    """Deep copies: outside they are sharded, too, inside of full_state they are whole."""
    model, optimizer, wrapped = made("O3", True)
    train(wrapped, optimizer, FEW)
    its_optimizer, copied = copy.deepcopy((optimizer, model))
    with octavo.full_state(model):
        alone, alone_optimizer = copy.deepcopy((model, optimizer))
        file = io.BytesIO()
        torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    found = {"is sharded": [session(m).owners is not None for m in (model, copied, alone, loaded)],
             "first": train(wrapped, optimizer, FEW, FEW), "loaded": whole(loaded),
             "copy": train(DistributedDataParallel(copied), its_optimizer, FEW, FEW)}
    found["alone"] = train(DistributedDataParallel(alone), alone_optimizer, FEW, FEW)
    found["states"] = [whole(m) for m in (model, copied, alone)]
    with octavo.full_state(model, to=1):
        here = said(model.state_dict)
        found["to"] = here, None if dist.get_rank() != 1 else octavo.state_dict(model)
    found["bad to"] = said(octavo.full_state(model, to=9).__enter__)
    return found


def export_run():
    """The file of octavo.export on rank 0, and what it says without the whole state."""
    found = {}
    for name, shards in (("ddp", None), ("sharded", True)):
        model, optimizer, wrapped = made("O3", shards)
        train(wrapped, optimizer, FEW)
        with tempfile.TemporaryDirectory() as folder:
            found[f"{name} alone"] = said(octavo.export, model, folder)
            with octavo.full_state(model, to=0):
                if dist.get_rank() == 0:
                    octavo.export(model, folder)
                    found[name] = pathlib.Path(folder, "model.safetensors").read_bytes()
    return found


def stages_run():
    """The next stage and octavo.restore, inside of full_state."""
    found = {}
    for name, shards in (("ddp", None), ("sharded", True)):
        model, optimizer, wrapped = made("O2", shards)
        losses = train(wrapped, optimizer, FEW)
        del wrapped
        with octavo.full_state(model):
            octavo.prepare(model, overrides=msamp("O3"))
        wrapped = DistributedDataParallel(model)
        losses += train(wrapped, optimizer, FEW)
        found[name] = {"losses": losses, **whole(model)}
        found[f"{name} slots"] = session(model).bytes_by_role()
        with octavo.full_state(model):
            octavo.restore(model)
        found[f"{name} plain"] = model.state_dict()
    return found


def refusals_run():
    """Ranks that do not agree, and groups."""
    pair = dist.new_group([0, 1])
    model, optimizer, wrapped = made("O2", dist.get_rank() == 0 or None)
    train_one = lambda w, o: (backward(w, 0), o.step())  # noqa: E731
    found = {"on rank 0 alone": said(train_one, wrapped, optimizer)}
    model, optimizer = octavo.prepare(Net(), overrides=msamp("O2"), shard_optimizer_state=True)
    optimizer = octavo.join(model, adamw(model))
    found["no wrapper"] = said(train_one, model, optimizer)
    model, optimizer, wrapped = made("O2", True, seed=dist.get_rank())
    found["other seeds"] = said(train_one, wrapped, optimizer)
    model, optimizer, wrapped = made("O2", True, seed=dist.get_rank())
    found["join of other seeds"] = said(octavo.torch.ddp.join, wrapped)
    model, optimizer, wrapped = made("O2", True)
    octavo.torch.ddp.join(wrapped)
    found["joined"] = train(wrapped, optimizer, FEW) == trained("O2", None, FEW)["losses"]
    alone = dist.new_group([0]), dist.new_group([1])
    model = Net()
    model, optimizer = octavo.prepare(model, adamw(model), overrides=msamp("O2"), shard_optimizer_state=True)
    wrapped = DistributedDataParallel(model, process_group=alone[dist.get_rank()])
    found["another group"] = said(train_one, wrapped, optimizer)
    found["not in it"] = said(lambda: octavo.prepare(Net(), overrides=msamp("O2"), group=alone[1 - dist.get_rank()],
                                                     shard_optimizer_state=True))
    model, optimizer, wrapped = made("O3", True, group=pair)
    losses = train(wrapped, optimizer, FEW)
    found["a group"] = {"losses": losses, **whole(model)}
    found["a group, ddp"] = trained("O3", None, FEW)
    return found


def pairs_run():
    """On four ranks: pairs that share nothing, and all of them in many chunks."""
    pairs = dist.new_group([0, 2]), dist.new_group([1, 3])
    group = pairs[dist.get_rank() % 2]
    return {"ddp": trained("O3", None, FEW, group=group), "sharded": trained("O3", True, FEW, group=group),
            "chunks": chunks_run()}


def short_run():
    model, overrides, file = Net(), msamp("O3"), io.BytesIO()
    # [prepare]
    model, optimizer = octavo.prepare(model, adamw(model), overrides=overrides, shard_optimizer_state=True)
    wrapped = DistributedDataParallel(model)
    # [/prepare]
    losses = train(wrapped, optimizer, FEW)
    # [full]
    with octavo.full_state(model):
        torch.save({"model": model.state_dict(), "octavo": octavo.state_dict(model)}, file)
    # [/full]
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    return {"ddp": trained("O3", None, FEW), "read": said(model.state_dict), "report": octavo.report(model),
            "sharded": {"losses": losses, "weights": saved["model"], "octavo": saved["octavo"]}}


RUNS = {"short": short_run, "equal": equal_run, "options": options_run, "modules": modules_run, "overflow": overflow_run, "scaler": scaler_run,
        "ledger": ledger_run, "reads": reads_run, "moments": moments_run, "copies": copies_run, "export": export_run, "stages": stages_run,
        "refusals": refusals_run, "pairs": pairs_run}

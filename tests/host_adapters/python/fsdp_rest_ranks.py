"""What each rank of fsdp_rest_test.py runs: msamp keeps the weights of linears, fully_shard has the rest."""
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import msamp, session
from fsdp_parts import WIDTH, plain
from shard_state_ranks import said

STEPS, TOKENS, LENGTH, ROWS = 6, 40, 8, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """An embedding, norms and biases around linears."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)


def sharded(level="O2", seed=0):
    model, overrides = Net(seed), msamp(level)
    # [prepare]
    octavo.prepare(model, overrides=overrides, shard_optimizer_state=True)
    for part in (*model.blocks, model):
        fully_shard(part, ignored_params=octavo.kept_parameters(model))
    optimizer = octavo.join(model, adamw(model.parameters()))
    # [/prepare]
    return model, optimizer


class Both:
    """What `sharded` shows, under DistributedDataParallel: msamp steps the weights of linears, torch the rest."""

    def __init__(self, model):
        kept = octavo.kept_parameters(model)
        self.parts = [octavo.join(model, adamw(list(kept))), adamw([p for p in model.parameters() if p not in kept])]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


def replicated(level):
    model = Net()
    octavo.prepare(model, overrides=msamp(level))
    return model, Both(model), DistributedDataParallel(model)


def train(model, optimizer, steps, first=0, spoiled=None):
    losses = []
    for step in range(first, first + steps):
        tokens = torch.randint(0, TOKENS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(step))
        own = tokens.chunk(dist.get_world_size())[dist.get_rank()]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(own).flatten(0, 1), own.roll(1, 1).flatten())
        (loss * (float("inf") if step == spoiled and dist.get_rank() == 1 else 1.0)).backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def outcome(model, losses):
    with octavo.full_state(model):
        weights = {n: plain(t) for n, t in model.state_dict().items()}
    linears = {k: v for k, v in octavo.state_dict(model).items() if k.endswith("/weight") or k.startswith("session/")}
    return {"losses": losses, "weights": weights, "octavo": linears}


def equal_run():
    found = {}
    for level in ("O1", "O2", "O3"):
        model, optimizer, wrapped = replicated(level)
        ddp = outcome(model, train(wrapped, optimizer, STEPS))
        model, optimizer = sharded(level)
        found[level] = {"ddp": ddp, "fsdp": outcome(model, train(model, optimizer, STEPS))}
        s = session(model)
        moments = [t for slot, t in zip(s.slots, s.tensors) if slot.shard and s.weights[slot.owner].parameter is None]
        found[level]["let go"] = len(moments), sum(t.untyped_storage().nbytes() for t in moments)
        state = [v for p, of in optimizer.state.items() for v in of.values() if v.dim()]
        found[level]["torch's"] = len(state), {type(v).__name__ for v in state}
    return found


def overflow_run():
    model, optimizer, wrapped = replicated("O2")
    ddp = outcome(model, train(wrapped, optimizer, 4, spoiled=1))
    model, optimizer = sharded("O2")
    return {"ddp": ddp, "fsdp": outcome(model, train(model, optimizer, 4, spoiled=1)), "skipped": session(model).skipped_steps}


def state_of(model, optimizer):
    return {"model": octavo.sharded_state_dict(model), "octavo": octavo.Stateful(model),
            "optimizer": get_optimizer_state_dict(model, optimizer)}


def checkpoint_run():
    """A run that goes on, and a fresh model that loads it."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    model, optimizer = sharded("O3")
    train(model, optimizer, 3)
    dcp.save(state_of(model, optimizer), checkpoint_id=pathlib.Path(folder[0]))
    goes_on = outcome(model, train(model, optimizer, 3, 3))
    model, optimizer = sharded("O3", seed=7)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=pathlib.Path(folder[0]))
    model.load_state_dict(state["model"], strict=False)
    set_optimizer_state_dict(model, optimizer, state["optimizer"], options=StateDictOptions(strict=False))
    return {"goes on": goes_on, "loaded": outcome(model, train(model, optimizer, 3, 3))}


def refusals_run():
    """What is refused on several ranks alone: meshes of other ranks, a part that nobody averages."""
    found = {}

    def tried(shard, **options):
        model = Net()
        octavo.prepare(model, overrides=msamp("O2"), shard_optimizer_state=True, **options)
        shard(model, octavo.kept_parameters(model))
        return said(lambda: octavo.join(model, adamw(model.parameters())))

    rank, world = dist.get_rank(), dist.get_world_size()
    alone = [dist.new_group([r]) for r in range(world)][rank]
    found["other ranks"] = tried(lambda m, kept: fully_shard(m, ignored_params=kept), group=alone)
    mesh = init_device_mesh("cpu", (1, world), mesh_dim_names=("replicas", "shards"))
    found["two dimensions"] = tried(lambda m, kept: fully_shard(m, mesh=mesh, ignored_params=kept))
    found["without the root"] = tried(lambda m, kept: fully_shard(m.blocks[0], ignored_params=kept))
    model, optimizer = sharded()
    tokens = torch.zeros(1, LENGTH, dtype=torch.long)
    model(tokens).sum().backward()
    kept = octavo.kept_parameters(model)
    norms = [nn.utils.clip_grad_norm_([p for p in model.parameters() if (p in kept) == own], 1e-3) for own in (True, False)]
    found["norms"] = [plain(norm).item() for norm in norms]
    try:
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        found["norm of both"] = "no error"
    except RuntimeError as e:
        found["norm of both"] = str(e)
    found["accumulation"] = said(lambda: model(tokens).sum().backward())
    found["restore"] = said(lambda: octavo.restore(model))
    return found


RUNS = {"equal": equal_run, "overflow": overflow_run, "checkpoint": checkpoint_run, "refusals": refusals_run}

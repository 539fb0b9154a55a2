"""What each of four ranks of fsdp_mesh_test.py runs: HSDP, other meshes, and modules with weights of
other shapes."""
import functools
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import session, te
from fsdp_parts import WIDTH, Net, adamw, gathering, outcome, sharded, train
from stateful_test import parts

WORLD, STEPS, FEW = 4, 50, 5


def mesh_of(*sizes):
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes):])


def in_pairs(mesh):
    """A communication hook of DDP that adds in the order of HSDP: over a row of the mesh, then over the
    rows. A sum of two does not depend on their order."""
    rows, columns = mesh.get_group("shard"), mesh.get_group("replicate")

    def hook(state, bucket):
        sums = bucket.buffer()
        for group in (rows, columns):
            dist.all_reduce(sums, group=group)
        sums /= WORLD
        done = torch.futures.Future()
        done.set_result(sums)
        return done
    return hook


def hsdp_run():
    mesh = mesh_of(2, 2)
    model = Net()
    octavo.prepare(model, overrides=te())
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, in_pairs(mesh))
    found = {"ddp": outcome(wrapped, train(wrapped, adamw(model), STEPS))}
    for order in ("prepare first", "shard first"):
        model, optimizer = sharded(te(), order, mesh=mesh)
        found[order] = outcome(model, train(model, optimizer, STEPS))
    return found


def saved_run():
    """A checkpoint of all ranks in pairs, loaded on one mesh of four, while it is written in the
    background; the test loads it without ranks, too, and removes the folder."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    model, optimizer = sharded(te(), mesh=mesh_of(2, 2))
    train(model, optimizer, FEW)
    # Its thread would send on the training's group, in another order on each rank.
    writers = dist.new_group(backend="gloo")
    writing = dcp.async_save(parts(model, optimizer), checkpoint_id=folder[0], process_group=writers)
    saved = outcome(model, [])
    train(model, optimizer, FEW, FEW)
    writing.result()
    model, optimizer = sharded(te(), "shard first", seed=7, mesh=mesh_of(4))
    state = parts(model, optimizer)
    dcp.load(state, checkpoint_id=folder[0])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return {"folder": folder[0], "saved": saved, "another mesh": outcome(model, [])}


def smaller_run():
    """reshard_after_forward=2 of four: the shards between forward and backward are larger ones."""
    mesh = mesh_of(4)
    found = {}
    for name, options in (("ddp", {}), ("by two", {"reshard_after_forward": 2})):
        model, optimizer = sharded(te(), mesh=mesh, **options)
        found[name] = outcome(model, train(model, optimizer, FEW))
    return found


def two_models_run(*sizes):
    """Two models of two ranks each, whose data differ by a factor of 16: each has its own scales."""
    names = ("replicate", "shard")[-len(sizes):]
    mesh = init_device_mesh("cpu", (2, *sizes), mesh_dim_names=("model", *names))
    mine = mesh[names]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    octavo.prepare(model, overrides=te())
    fully_shard(model, mesh=mine)
    optimizer = octavo.join(model, adamw(model))
    g = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(8, WIDTH, generator=g) * (16 if mesh.get_coordinate()[0] else 1)
    model(x).square().mean().backward()
    optimizer.step()
    s = session(model)
    scale = next(s.tensors[slot.id] for slot in s.slots if slot.name == "x/scale")
    every = [None] * WORLD
    dist.all_gather_object(every, (float(scale.flatten()[0]), float(x.abs().max())))
    return every


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 64, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.middle(self.embedding(tokens)))


class Transposed(nn.Module):
    """transformers' Conv1D, whose weight is [K, N]."""

    def __init__(self):
        from transformers.pytorch_utils import Conv1D
        super().__init__()
        self.up = Conv1D(2 * WIDTH, WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, attn_implementation="eager"))
    plain_forward = model.forward
    model.forward = lambda tokens: plain_forward(input_ids=tokens).logits
    return model


MODULES = {"attention": (Attention, ("prepare first", "shard first")),
           "tied": (Tied, ("prepare first", "shard first")),
           "transposed": (Transposed, ("shard first",)),
           "experts": (mixtral, ("prepare first", "shard first"))}


def learn(model, optimizer):
    losses = []
    for step in range(FEW):
        g = torch.Generator().manual_seed(10 * step + dist.get_rank() % 2)
        tokens = torch.randint(0, 64, (2, 8), generator=g)
        x = torch.randn(2, 8, WIDTH, generator=g)
        optimizer.zero_grad()
        inner = getattr(model, "module", model)
        loss = model(x if isinstance(inner, (Attention, Transposed)) else tokens).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def modules_run():
    """Over pairs of ranks, where sums do not depend on an order; both pairs have the same data."""
    mesh = mesh_of(2, 2)["shard"]
    found = {}
    for name, (make, orders) in MODULES.items():
        torch.manual_seed(0)
        model = make()
        octavo.prepare(model, overrides=te())
        wrapped = DistributedDataParallel(model, process_group=mesh.get_group(), find_unused_parameters=name == "experts")
        runs = {"ddp": outcome(wrapped, learn(wrapped, adamw(model)))}
        for order in orders:
            torch.manual_seed(0)
            model = make()
            if order == "prepare first":
                octavo.prepare(model, overrides=te())
                fully_shard(model, mesh=mesh)
                optimizer = octavo.join(model, adamw(model))
            else:
                fully_shard(model, mesh=mesh)
                model, optimizer = octavo.prepare(model, adamw(model), overrides=te())
            runs[order] = outcome(model, learn(model, optimizer))
            runs[order]["sites"] = sorted(session(model).sites)
        found[name] = runs
    return found


def uneven_run():
    """Rows that do not divide by the ranks: head has 10 of them, so the last rank has one."""
    model, _ = sharded(te(), mesh=mesh_of(4))
    rows = [None] * WORLD
    dist.all_gather_object(rows, model.head.weight.to_local().shape[0])
    return rows


def values_run():
    """fsdp_gather="fp8" where values are gathered all the same, and where it is refused."""
    model, optimizer = sharded(te(), mesh=mesh_of(4))
    losses = train(model, optimizer, FEW)
    found = {"layers": session(model).gather.layers(), "fsdp": outcome(model, losses)}
    gathering("values")
    model, optimizer = sharded(te(), mesh=mesh_of(4))
    found["ddp"] = outcome(model, train(model, optimizer, FEW))
    gathering("fp8")
    model, optimizer = sharded(te(), mesh=mesh_of(4), reshard_after_forward=2)
    try:
        train(model, optimizer, 1)
    except octavo.UnsupportedError as e:
        found["by two"] = str(e)
    return found


RUNS = {"hsdp": hsdp_run, "smaller": smaller_run, "saved": saved_run, "two models": functools.partial(two_models_run, 2),
        "two models, HSDP": functools.partial(two_models_run, 2, 1), "modules": modules_run,
        "uneven": uneven_run, "values": values_run}

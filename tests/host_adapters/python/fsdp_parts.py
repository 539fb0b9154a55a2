"""What the programs of fsdp_test.py share: a model, how it is sharded, how it trains."""
import datetime
import faulthandler
import functools
import os

import torch
import torch._dynamo  # the first optimizer of each rank would import it, for seconds
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import session, te

FEW = 5
ORDERS = ("prepare first", "shard first")
WIDTH, CLASSES, ROWS = 128, 10, 32  # blocks of 128 fit, and 10 rows of a shard do not divide by 4


class Casts(nn.Linear):
    """A forward of its own with the values of torch's."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype), self.bias)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """FSDP wraps the blocks, the linear `head` itself, and the root with `stem`."""
    layer = nn.Linear  # the class of all linears

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.is_reentrant = False
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.__class__ = Net.layer

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.is_reentrant else block(x)
        return self.head(x)


LINEARS = ["stem", *(f"blocks.{i}.{name}" for i in range(2) for name in ("up", "down")), "head"]


def shard(model, mesh=None, **options):
    """As torch's documentation and torchtitan do it: from the inside out."""
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for block in (*model.blocks, model.head):
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def batch(step):
    """This rank's part of the batch of all ranks."""
    g = torch.Generator("cpu").manual_seed(step)
    x = torch.randn(ROWS, WIDTH, generator=g)
    target = torch.randint(0, CLASSES, (ROWS,), generator=g)
    rank, world = dist.get_rank(), dist.get_world_size()
    return x.chunk(world)[rank], target.chunk(world)[rank]


def backward(model, step, scale=1.0):
    x, target = batch(step)
    loss = nn.functional.cross_entropy(model(x).float(), target) * scale
    loss.backward()
    return loss.item()


def train(model, optimizer, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        losses.append(backward(model, step))
        optimizer.step()
    return losses


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def sharded(overrides, order="prepare first", seed=0, mesh=None, **options):
    """(model, optimizer), prepared and sharded in either order."""
    model = Net(seed)
    if order == "prepare first":
        # [prepare]
        octavo.prepare(model, overrides=overrides)
        shard(model, mesh, **options)
        optimizer = octavo.join(model, adamw(model))
        # [/prepare]
    else:
        shard(model, mesh, **options)
        model, optimizer = octavo.prepare(model, adamw(model), overrides=overrides)
    assert sorted(session(model).sites) == sorted(LINEARS)
    return model, optimizer


def plain(t):
    """The whole tensor of a shard, on each rank."""
    t = t.detach()
    return t.full_tensor() if hasattr(t, "full_tensor") else t.clone()


def ddp_model(recipe="delayed", seed=0, **options):
    model = Net(seed)
    octavo.prepare(model, overrides=te(recipe, **options))
    return DistributedDataParallel(model), adamw(model)


def outcome(model, losses):
    """What must be equal to the last bit."""
    state = {n.removeprefix("module."): plain(p) for n, p in model.named_parameters()}
    inner = getattr(model, "module", model)
    return {"losses": losses, "weights": state, "octavo": octavo.state_dict(inner)}


def cache_bytes(model, name):
    """The bytes of the storages of one weight's codes and their scales."""
    s = session(model)
    weight = s.sites[name].weight
    return sum(s.tensors[slot.id].untyped_storage().nbytes() for slot in s.caches[weight.id])


def bytes_of(t):
    return t.contiguous().view(torch.uint8)


def assert_equal(a, b):
    """Of two outcomes: to the last bit."""
    assert a["losses"] == b["losses"]
    for what in ("weights", "octavo"):
        assert a[what].keys() == b[what].keys() and len(a[what]) > 0
        for name, value in a[what].items():
            assert torch.equal(bytes_of(value), bytes_of(b[what][name])), name


def gathering(how):
    """Every octavo.prepare of this process has this `gather` from now on."""
    octavo.prepare = functools.partial(octavo.prepare, fsdp_gather=how)


def rank_main(rank, folder, world, runs, names, gather):
    faulthandler.enable()  # a rank that dies says where
    torch.set_num_threads(1)
    gathering(gather)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=200))
    torch.save({name: runs[name]() for name in names}, f"{folder}/{rank}")
    dist.barrier()  # nobody's connection ends while another rank still sends
    dist.destroy_process_group()
    os._exit(0)  # as in ddp_ranks.py: no thread of gloo outlives the interpreter


def ranks_of(tmp_path_factory, world, runs, names, gather="values"):
    """What each rank found in these runs. A fork saves each rank what torch takes to be imported; this process must have
    computed nothing yet. gather: of every octavo.prepare."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.start_processes(rank_main, (str(folder), world, runs, names, gather), nprocs=world,
                                          start_method="fork")
    return [torch.load(folder / str(rank), weights_only=False) for rank in range(world)]

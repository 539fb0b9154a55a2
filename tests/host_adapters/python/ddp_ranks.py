"""What each rank of ddp_test.py runs: every run gives back what the tests compare."""
import contextlib
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

import fake_device
import octavo
import on_cuda
import staged
from conftest import msamp, session, te
from octavo import _abi
from octavo.errors import StateError
from octavo.torch.ranks import ddp

WORLD, ROWS = 2, 64
SIZES = (32, 48, 64, 10)
FROM_1 = te("delayed", profile="te2-delayed-fused")  # whose first scales do not follow a rank's own rows


class Net(nn.Module):
    """Three linears; the one in `extra` runs only when asked for."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(k, n) for k, n in zip(SIZES, SIZES[1:]))
        self.extra = nn.Linear(64, 64, bias=False)
        self.never = nn.Linear(64, 64, bias=False)

    def forward(self, x, extra=False):
        x = nn.functional.gelu(self.layers[1](nn.functional.gelu(self.layers[0](x))))
        return self.layers[2](self.extra(x) if extra else x)


def batch(step):
    g = torch.Generator("cpu").manual_seed(step)
    x = torch.randn(ROWS, 32, generator=g, device="cpu")
    target = torch.randint(0, 10, (ROWS,), generator=g, device="cpu")
    return tuple(t.to(torch.get_default_device()) for t in (x, target))


def part(step, rank, world):
    return tuple(t.chunk(world)[rank] for t in batch(step))


def made(overrides, seed=0, sgd=None):
    model = Net(seed)
    optimizer = (torch.optim.SGD(model.parameters(), lr=sgd) if sgd
                 else torch.optim.AdamW(model.parameters(), lr=1e-3))
    return octavo.prepare(model, optimizer, None, overrides=overrides)


def plain(p):
    return p.grad.plain() if hasattr(p.grad, "plain") else p.grad.clone()


def gradients(model):
    with octavo.full_state(model):
        return {n: plain(p) for n, p in model.named_parameters() if p.grad is not None}


def backward(model, step, rank, world, **kwargs):
    x, target = part(step, rank, world)
    loss = nn.functional.cross_entropy(model(x, **kwargs), target, reduction="sum") / ROWS
    loss.backward()
    return loss.item()


def train(model, optimizer, steps, rank, world):
    losses, first = [], None
    for step in range(steps):
        optimizer.zero_grad()
        losses.append(backward(model, step, rank, world))
        first = first or gradients(model)
        optimizer.step()
    return losses, first


def te_run(rank, hook=None):
    # DDP sends rank 0's weights. It averages what one rank would add, hence the learning rate.
    model, optimizer = made(FROM_1, seed=rank, sgd=0.1 * WORLD)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    if hook is not None:
        wrapped.register_comm_hook(None, hook)
    losses, first = train(wrapped, optimizer, 6, rank, WORLD)
    return {"losses": losses, "first": {n[len("module."):]: g for n, g in first.items()},
            "state": octavo.state_dict(model)}


def hook_run(rank, overrides):
    """Elements that a communication hook saw, and those of the gradients that DDP may reduce."""
    model, _ = made(overrides)
    wrapped = ddp.join(DistributedDataParallel(model, find_unused_parameters=True))
    seen = []

    def hook(state, bucket):
        seen.append(bucket.buffer().numel())
        return default_hooks.allreduce_hook(None, bucket)

    wrapped.register_comm_hook(None, hook)
    backward(wrapped, 0, rank, WORLD)
    ignored = ddp.ignored_names(model, session(model))
    return sum(seen), sum(p.numel() for n, p in model.named_parameters() if n not in ignored)


TWO_SHOT = msamp("O2", one_shot_bytes=0)  # also small buckets in two exchanges, as large ones are


def msamp_model(seed=0, overrides=msamp("O2"), **options):
    model, optimizer = made(overrides, seed)
    return model, optimizer, ddp.join(DistributedDataParallel(model), **options)


def msamp_run(rank, overlap):
    model, optimizer, wrapped = msamp_model(overrides=TWO_SHOT, bucket_bytes=4 * 64 * 64, overlap=overlap)
    losses, first = train(wrapped, optimizer, 4, rank, WORLD)
    reducer = ddp.reducer_of(session(model))
    return {"losses": losses, "first": first, "state": octavo.state_dict(model),
            "early": reducer.early, "buckets": len(reducer.buckets), "wire": reducer.wire_bytes,
            "stages": [(s.collective, s.dtype, s.send_count, s.recv_count)
                       for b in reducer.buckets for s in b.stages],
            "calls": octavo.torch.ops.calls(session(model).number, _abi.VERB_REDUCE)}


def order_run(rank, overlap):
    """What torch's profiler saw of the second backward pass: [(name, start, end)] by start."""
    model, optimizer, wrapped = msamp_model(overrides=TWO_SHOT, bucket_bytes=1, overlap=overlap)
    train(wrapped, optimizer, 1, rank, WORLD)
    optimizer.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        backward(wrapped, 1, rank, WORLD)
    return sorted(((e.name, e.time_range.start, e.time_range.end) for e in profile.events()
                   if e.name.startswith(("octavo::", "c10d::"))), key=lambda event: event[1])


def mean_run(rank):
    """The gradient that this rank has, what all have, and the norms that clipping sees."""
    model, optimizer, wrapped = msamp_model(seed=rank)
    with wrapped.no_sync():
        backward(wrapped, 0, rank, WORLD)
    quiet = ddp.reducer_of(session(model)).wire_bytes
    local = gradients(model)
    optimizer.zero_grad()
    with wrapped.no_sync():
        backward(wrapped, 0, rank, WORLD)
    backward(wrapped, 1, rank, WORLD)
    accumulated = gradients(model)
    optimizer.zero_grad()
    backward(wrapped, 0, rank, WORLD)
    shared = gradients(model)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    return {"local": local, "shared": shared, "accumulated": accumulated, "norm": norm,
            "quiet": quiet}


def unused_run(rank):
    """`extra` runs on rank 1 alone, `never` nowhere."""
    model, optimizer, wrapped = msamp_model()
    before = [model.extra.weight.data_ptr(), session(model).read(model.extra.weight),
              session(model).read(model.never.weight)]
    backward(wrapped, 0, rank, WORLD, extra=rank == 1)
    extra = model.extra.weight.grad.plain()
    optimizer.step()
    return {"extra": extra, "never": model.never.weight.grad is None,
            "moved": not torch.equal(before[1], session(model).read(model.extra.weight)),
            "kept": torch.equal(before[2], session(model).read(model.never.weight)),
            "weight": session(model).read(model.extra.weight)}


def unequal_run(rank):
    model, optimizer = made(msamp("O2"), seed=rank)
    wrapped = DistributedDataParallel(model)
    with contextlib.suppress(StateError):
        backward(wrapped, 0, rank, WORLD)
        optimizer.step()
        return "no error"
    return "StateError"


def late_run(rank):
    """A layer that runs twice in the third step, when once was expected."""
    model, optimizer, wrapped = msamp_model(bucket_bytes=4 * 64 * 64)
    train(wrapped, optimizer, 2, rank, WORLD)
    optimizer.zero_grad()
    y = nn.functional.gelu(model.layers[0](part(2, rank, WORLD)[0]))
    try:
        model.layers[2](model.layers[1](y) + model.layers[1](2 * y)).sum().backward()
    except StateError as e:
        return str(e)
    return "no error"


def compiled_run(rank):
    model, optimizer = made(msamp("O2"))
    model.compile(backend="aot_eager")
    wrapped = ddp.join(DistributedDataParallel(model))
    norms = []
    for step in range(2):
        optimizer.zero_grad()
        backward(wrapped, step, rank, WORLD)
        norms.append(octavo.clip_grad_norm_(model, 0.1))
        optimizer.step()
    return {"norms": torch.stack(norms), "state": octavo.state_dict(model)}


def sharded_run(rank):
    """Weights and slots after three steps, with optimizer state on both ranks, and on one each."""
    found = {}
    for how in ("eager", "compiled"):
        for shards in (None, True):
            model = Net()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            model, optimizer = octavo.prepare(model, optimizer, overrides=msamp("O3"), shard_optimizer_state=shards)
            if how == "compiled":
                model.compile(backend="aot_eager")
            train(DistributedDataParallel(model), optimizer, 3, rank, WORLD)
            with octavo.full_state(model):
                state = {**octavo.state_dict(model), **{n: t.clone() for n, t in model.state_dict().items()}}
            found[how, shards] = {"state": state, "masters": session(model).bytes_by_role()[_abi.ROLE_MASTER_WEIGHT]}
    return found


def one_gpu_run(rank):
    """What octavo.prepare says where NCCL would find both ranks on one GPU: to rank 0, which comes first,
    to rank 1, to it on another GPU, and on the first once rank 0 has left that. The driver and the name
    of the backend are made up."""
    if torch.get_default_device().type != "fake_device":
        return None
    before, group = os.environ["OCTAVO_FAKE_GPU"], dist.group.WORLD
    names = dist.distributed_c10d._world.pg_backend_config
    config = names[group]

    def said(gpu, **options):
        os.environ["OCTAVO_FAKE_GPU"] = f"{before} uuid={gpu}"
        model = Net()
        try:
            octavo.prepare(model, overrides=te(), **options)
        except octavo.DeviceError as e:
            assert "octavo_session" not in model.__dict__ and type(model.extra) is nn.Linear
            return str(e)
        return "prepared"

    found = []
    names[group] = config.replace("fake_device:staged", "fake_device:nccl")
    for turn, gpu, options in ((0, 7, {}), (1, 7, {}), (1, 7, {"group": group}), (1, 8, {}), (0, 9, {}),
                               (1, 7, {})):
        if rank == turn:
            found.append(said(gpu, **options))
        dist.all_reduce(torch.zeros(1))  # wait for the other rank
    names[group] = config
    if rank == 1:
        found.append(said(9))  # a backend that needs no GPU for each
    os.environ["OCTAVO_FAKE_GPU"] = before
    return found


RUNS = {"te": te_run, "te hook": lambda rank: te_run(rank, default_hooks.allreduce_hook),
        "hook": lambda rank: [hook_run(rank, te("delayed")), hook_run(rank, msamp("O2"))],
        "msamp": lambda rank: msamp_run(rank, True),
        "blocking": lambda rank: msamp_run(rank, False),
        "order": lambda rank: [order_run(rank, True), order_run(rank, False)],
        "mean": mean_run, "unused": unused_run,
        "unequal": unequal_run, "late": late_run, "compiled": compiled_run,
        "sharded": sharded_run, "one gpu": one_gpu_run}


def rank_main(rank, folder, device):
    torch.set_num_threads(1)
    if device == "fake_device":
        fake_device.use()
    if device == "cuda":
        on_cuda.use(rank)
    dist.init_process_group(staged.backend(device), f"file://{folder}/meeting", rank=rank, world_size=WORLD,
                            timeout=datetime.timedelta(seconds=200))
    found = {name: run(rank) for name, run in RUNS.items()}
    torch.save(tree_map_only(torch.Tensor, torch.Tensor.cpu, found), f"{folder}/{rank}")
    dist.destroy_process_group()
    # DistributedDataParallel keeps gloo's threads alive. One that still frees a tensor while the
    # interpreter ends would abort the process.
    os._exit(0)

"""Usage patterns: torch.distributed, on one rank. What several ranks do is in ddp_test.py and
groups_test.py."""
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn import utils
from torch.nn.parallel import DistributedDataParallel

import octavo
import staged
from conftest import kind
from patterns import (PLAIN, STEPS, adamw, batch, compare, error, follows, learn, network, pattern,
                      same, start, values)

AREA = "torch.distributed, one rank"


@contextlib.contextmanager
def one_rank():
    """Without a network."""
    dist.init_process_group(staged.backend(kind()), store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def wrapped(wrap, **options):
    """Trains a prepared model in a wrapper as the plain one in it."""
    def loop(p):
        with one_rank():
            model, optimizer = start(p)
            return learn(model, optimizer, call=wrap(model), **options)
    return lambda prepare: compare(prepare, loop)


pattern(AREA, "DistributedDataParallel around the prepared model")(wrapped(DistributedDataParallel))
pattern(AREA, "DDP with static_graph=True and gradient_as_bucket_view=True")(wrapped(
    lambda m: DistributedDataParallel(m, static_graph=True, gradient_as_bucket_view=True)))
pattern(AREA, "DDP with find_unused_parameters=True")(wrapped(
    lambda m: DistributedDataParallel(m, find_unused_parameters=True)))
pattern(AREA, "DDP with clip_grad_norm_")(wrapped(
    DistributedDataParallel, between=lambda m: utils.clip_grad_norm_(m.parameters(), 0.05)))
pattern(AREA, "DDP around the prepared model, compiled")(wrapped(
    lambda m: torch.compile(DistributedDataParallel(m), backend="aot_eager")))


@pattern(AREA, "DataParallel around the prepared model")
def data_parallel(prepare):
    def loop(p):
        model, optimizer = start(p)
        return learn(model, optimizer, call=torch.nn.DataParallel(model))
    compare(prepare, loop)


def hooked(model):
    model = DistributedDataParallel(model)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return model


pattern(AREA, "DDP with a communication hook (bf16_compress_hook)")(wrapped(hooked))


@pattern(AREA, "DDP with no_sync() and accumulation")
def no_sync(prepare):
    def loop(p):
        with one_rank():
            model, optimizer = start(p)
            call, losses = DistributedDataParallel(model), []
            if p.overrides:
                octavo.torch.ddp.join(call)
            for _ in range(STEPS):
                optimizer.zero_grad()
                x, target = batch()
                with call.no_sync():
                    (error(call, x[:32], target[:32]) / 2).backward()
                loss = error(call, x[32:], target[32:])
                (loss / 2).backward()
                optimizer.step()
                losses.append(loss.item())
            return losses
    compare(prepare, loop)


@pattern(AREA, "DDP with Join for uneven inputs")
def join(prepare):
    def loop(p):
        with one_rank():
            model, optimizer = start(p)
            call = DistributedDataParallel(model)
            with Join([call]):
                return learn(model, optimizer, call=call)
    compare(prepare, loop)


def too_late(wrap):
    def run(prepare):
        with one_rank():
            model = wrap(network())
            model, optimizer = prepare(model, adamw(model))
            losses = learn(model, optimizer)
            assert losses[-1] < 0.9 * losses[0]
    return run


def sharded(model):
    fully_shard(model, mesh=init_device_mesh(kind(), (1,)))
    return model


pattern(AREA, "octavo.prepare of a DistributedDataParallel")(too_late(DistributedDataParallel))
pattern(AREA, "octavo.prepare of a DataParallel")(too_late(torch.nn.DataParallel))
pattern(AREA, "octavo.prepare after fully_shard (FSDP2)")(too_late(sharded))
pattern(AREA, "octavo.prepare after parallelize_module (tensor parallelism)")(too_late(
    lambda m: parallelize_module(m, init_device_mesh(kind(), (1,)), {"0": ColwiseParallel()})))


@pattern(AREA, "fully_shard (FSDP2) after octavo.prepare")
def fsdp2(prepare):
    with one_rank():
        model, _ = start(prepare, optimizer=None)
        sharded(model)
        losses = learn(model, adamw(model))
        assert losses[-1] < 0.9 * losses[0]


@pattern(AREA, "FullyShardedDataParallel (FSDP1) after octavo.prepare")
def fsdp1(prepare):
    with one_rank():
        model, _ = start(prepare, optimizer=None)
        call = FullyShardedDataParallel(model, device_id=torch.get_default_device())
        losses = learn(model, adamw(call), call=call)
        assert losses[-1] < 0.9 * losses[0]


@pattern(AREA, "ZeroRedundancyOptimizer")
def zero(prepare):
    def loop(p):
        with one_rank():
            model, optimizer = start(p, optimizer=lambda m: ZeroRedundancyOptimizer(
                m.parameters(), torch.optim.AdamW, lr=1e-2))
            return learn(model, optimizer, call=DistributedDataParallel(model))
    compare(prepare, loop)


@pattern(AREA, "DDP with octavo.prepare(shard_optimizer_state=True)")
def sharded_states(prepare):
    def loop(p):
        with one_rank():
            model, optimizer = start(p, shard_optimizer_state=True)
            return learn(model, optimizer, call=DistributedDataParallel(model))
    compare(prepare, loop)


@pattern(AREA, "octavo.full_state around a state_dict, loaded into a plain model")
def full_state(prepare):
    with one_rank():
        model, optimizer = start(prepare, shard_optimizer_state="msamp" in prepare.overrides.values())
        learn(model, optimizer, 5, call=DistributedDataParallel(model))
        with octavo.full_state(model):
            state = model.state_dict()
    plain = network()
    plain.load_state_dict(state)
    same(values(plain), values(model))


@pattern(AREA, "the state_dict of DDP (keys with module.), loaded into a plain model")
def ddp_state(prepare):
    with one_rank():
        model, optimizer = start(prepare)
        call = DistributedDataParallel(model)
        learn(model, optimizer, 5, call=call)
        state = call.state_dict()
    plain = network()
    plain.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    same(values(plain), values(model))


@pattern(AREA, "octavo.prepare(group=...)")
def group(prepare):
    with one_rank():
        options = {"group": dist.group.WORLD} if prepare.overrides else {}
        losses = learn(*start(prepare, **options))
    follows(losses, learn(*start(PLAIN)))


@pattern(AREA, "octavo.prepare of ddp.module, after wrapping")
def inner(prepare):
    with one_rank():
        call = DistributedDataParallel(network())
        model, optimizer = prepare(call.module, adamw(call.module))
        losses = learn(model, optimizer, call=call)
    plain, other = start(PLAIN)
    follows(losses, learn(plain, other))

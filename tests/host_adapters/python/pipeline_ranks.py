"""The program of pipeline_test.py: two stages of torch.distributed.pipelining, a session each."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import octavo
from conftest import msamp, te
from fsdp_parts import adamw

WORLD, PARTS, STEPS = 2, 4, 6
BACKENDS = {"delayed": te("delayed"), "mx": te("mx"), "O2": msamp("O2")}


def halves():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(64, 128), nn.GELU()), nn.Sequential(nn.Linear(128, 64), nn.LayerNorm(64))]


def batch(step):
    g = torch.Generator("cpu").manual_seed(step)
    return torch.randn(32, 64, generator=g), torch.randn(32, 64, generator=g)


def loss_of(y, target):
    return nn.functional.mse_loss(y, target)


def joined(model, overrides):
    return octavo.prepare(model, adamw(model), overrides=overrides)[1]


def state(model):
    return {n: p.detach().clone() for n, p in model.state_dict().items()}, octavo.state_dict(model)


def pipelined(overrides):
    """This rank's half, trained as one stage of two: (weights, octavo state)."""
    rank = dist.get_rank()
    model = halves()[rank]
    optimizer = joined(model, overrides)
    stage = PipelineStage(model, rank, WORLD, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, PARTS, loss_fn=loss_of)
    for step in range(STEPS):
        x, target = batch(step)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target)
        optimizer.step()
    return state(model)


def in_one_process(overrides):
    """The same half, trained together with the other one: each a session of its own."""
    models = halves()
    optimizers = [joined(model, overrides) for model in models]
    for step in range(STEPS):
        x, target = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        for x_part, part in zip(x.chunk(PARTS), target.chunk(PARTS)):
            loss_of(models[1](models[0](x_part)), part).backward()
        for p in (p for model in models for p in model.parameters()):
            p.grad.div_(PARTS)  # as the schedule does after its last backward
        for optimizer in optimizers:
            optimizer.step()
    return state(models[dist.get_rank()])


def both():
    return {name: (pipelined(overrides), in_one_process(overrides)) for name, overrides in BACKENDS.items()}


RUNS = {"both": both}

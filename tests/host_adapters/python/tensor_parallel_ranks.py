"""The programs of tensor_parallel_test.py, on two ranks."""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

import conftest
import octavo
from conftest import session
from fsdp_parts import adamw, plain

WORLD = 2
RECIPES = ("delayed", "current", "block", "mx", "rowwise")
STYLES = {"columns": ColwiseParallel, "rows": RowwiseParallel}
M, N, K = 64, 256, 512


def te(recipe):
    """In the default profile the first scales would follow a rank's own part."""
    return conftest.te(recipe, **({"profile": "te2-delayed-fused"} if recipe == "delayed" else {}))


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed))


def linear():
    layer = nn.Linear(K, N)
    with torch.no_grad():
        layer.weight.copy_(numbers(1, N, K) / 8)
        layer.bias.copy_(numbers(2, N))
    return nn.Sequential(layer)


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def one_layer(recipe, style=None, dtype=torch.float32):
    """y, dx, dw and db of a layer, whole."""
    model = linear().to(dtype)
    if style is not None:
        parallelize_module(model, mesh(), {"0": STYLES[style](
            input_layouts=Replicate(), output_layouts=Replicate())})
    octavo.prepare(model, overrides=te(recipe))
    x = numbers(3, M, K).to(dtype).requires_grad_()
    y = model(x)
    y.backward(numbers(4, M, N).to(dtype))
    return [plain(t) for t in (y, x.grad, model[0].weight.grad, model[0].bias.grad)]


def layers():
    return {(recipe, style): one_layer(recipe, style) for recipe in RECIPES for style in (None, *STYLES)}


def autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return {style: one_layer("delayed", style) for style in (None, *STYLES)}


class Block(nn.Module):
    """An MLP as sequence parallelism splits it: x [batch, sequence, width] is sharded outside of the linears."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


# [parallelize]
def parallelize(model):
    parallelize_module(model, mesh(), {
        "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1))})
    octavo.prepare(model, overrides=te("delayed"))
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
# [/parallelize]


def loss_of(model, step):
    x, target = numbers(10 + step, 4, 16, 64), numbers(50 + step, 4, 16, 64)
    is_parallel = any(isinstance(p, DTensor) for p in model.parameters())
    if is_parallel:
        x, target = (t.chunk(WORLD, 1)[dist.get_rank()] for t in (x, target))
    y = model(x)
    y = y.to_local() if isinstance(y, DTensor) else y
    return (y - target).square().sum() / (4 * 16 * 64)


def step(model, optimizer, number):
    """The loss of all ranks."""
    optimizer.zero_grad()
    loss = loss_of(model, number)
    loss.backward()
    norm = plain(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
    optimizer.step()
    total = loss.detach()
    if any(isinstance(p, DTensor) for p in model.parameters()):
        dist.all_reduce(total)
    return total.item(), norm.item()


def sequence():
    """{kind: losses and norms}, and the octavo state of the parallel one."""
    whole, shared = Block(), Block()
    octavo.prepare(whole, overrides=te("delayed"))
    by_one, by_two = adamw(whole), parallelize(shared)
    found = {"whole": [step(whole, by_one, i) for i in range(8)],
             "parallel": [step(shared, by_two, i) for i in range(8)]}
    return found | {"state": octavo.state_dict(shared), "sites": sorted(session(shared).sites)}


def without_octavo():
    """The same of the plain model."""
    model = Block()
    optimizer = adamw(model)
    return [step(model, optimizer, i) for i in range(8)]


def infinite_gradient():
    """Whether one rank's Inf keeps both from the step; and that the next one is taken."""
    model = Block()
    optimizer = parallelize(model)
    step(model, optimizer, 0)
    before = {n: plain(p) for n, p in model.named_parameters()}
    loss = loss_of(model, 1)
    optimizer.zero_grad()
    (loss * (float("inf") if dist.get_rank() == 1 else 1.0)).backward()
    optimizer.step()
    kept = all(torch.equal(plain(p), before[n]) for n, p in model.named_parameters())
    step(model, optimizer, 2)
    moved = any(not torch.equal(plain(p), before[n]) for n, p in model.named_parameters())
    return kept, moved, session(model).skipped_steps


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "octavo": octavo.Stateful(model), "optimizer": moments}


def resumed():
    """Losses after a checkpoint, and those of a fresh model that loads it."""
    folder = [None]
    if dist.get_rank() == 0:
        import tempfile
        folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    model = Block()
    optimizer = parallelize(model)
    for i in range(3):
        step(model, optimizer, i)
    dcp.save(state_of(model, optimizer), checkpoint_id=folder[0])
    goes_on = [step(model, optimizer, i) for i in range(3, 6)]
    fresh = Block(seed=1)
    other = parallelize(fresh)
    state = state_of(fresh, other)
    dcp.load(state, checkpoint_id=folder[0])
    set_state_dict(fresh, other, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return goes_on, [step(fresh, other, i) for i in range(3, 6)]


def compiled():
    """Losses without and with torch.compile."""
    found = []
    for compiles in (False, True):
        model = Block()
        optimizer = parallelize(model)
        if compiles:
            model.compile(backend="aot_eager")
        found.append([step(model, optimizer, i) for i in range(3)])
    return found


def assigned():
    """A state dict that is assigned takes the place of the parameters."""
    model, other = Block(), Block(seed=1)
    for each in (model, other):
        parallelize(each)
    model.load_state_dict(other.state_dict(), assign=True)
    with torch.no_grad():
        return loss_of(model, 0).item(), loss_of(other, 0).item()


RUNS = {f.__name__: f for f in (layers, autocast, sequence, without_octavo, infinite_gradient, resumed, compiled,
                                assigned)}

"""What each rank of shard_gradients_test.py runs: with optimizer state on one rank each, the mean of a gradient is on its
owner alone."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import session
from fsdp_parts import CLASSES, WIDTH, adamw, backward, batch
from octavo import _abi
from octavo.torch.ranks import ddp
from shard_state_ranks import FEW, Even, made, said, whole

# Buckets in two exchanges, as those of large models; in one; and of weights that share buckets or not.
EXCHANGES = {"two": {"one_shot_bytes": 0}, "one": {"one_shot_bytes": 2**40}}
BUCKETS = {"one": 25 << 20, "many": 1}


def both(run, **options):
    """What a run finds without and with sharding."""
    return {"ddp": run(None, **options), "sharded": run(True, **options)}


def clipped(shards, bucket_bytes=25 << 20, **options):
    """Losses, all norms that a loop sees, and what is left."""
    model, optimizer, wrapped = made("O3", shards, **options)
    ddp.join(wrapped, bucket_bytes=bucket_bytes)
    losses, norms = [], []
    for step in range(FEW):
        optimizer.zero_grad()
        losses.append(backward(wrapped, step))
        norms += [p.grad.norm().item() for p in model.parameters()]
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        norms += [p.grad.norm().item() for p in model.parameters()]
        optimizer.step()
        norms += [p.grad.norm().item() for p in model.parameters()]  # as loops that log do
    return {"losses": [*losses, *norms], **whole(model)}


def clipping_run():
    return {(exchange, bucket): both(clipped, bucket_bytes=size, **options)
            for exchange, options in EXCHANGES.items() for bucket, size in BUCKETS.items()}


def accumulated(shards):
    """Three batches a step, of which the last one is reduced."""
    model, optimizer, wrapped = made("O2", shards)
    losses = []
    for step in range(FEW):
        optimizer.zero_grad()
        with wrapped.no_sync():
            losses += [backward(wrapped, 3 * step), backward(wrapped, 3 * step + 1)]
        losses.append(backward(wrapped, 3 * step + 2))
        optimizer.step()
    return {"losses": losses, **whole(model)}


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = (nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES)) for _ in range(2))

    def forward(self, x, both):
        return self.one(x) + self.other(x) if both else self.one(x)


def retained(shards):
    """A second backward of one half, while the gradients of the other half wait for the step."""
    model = Halves()
    model, optimizer, wrapped = made("O2", shards, model=model)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    losses = []
    for step in range(FEW):
        optimizer.zero_grad()
        for part in (True, False):
            model.one.zero_grad()
            x, target = batch(step)
            loss = nn.functional.cross_entropy(wrapped(x, part), target)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return {"losses": losses, **whole(model)}


def loops_run():
    return {"accumulated": both(accumulated), "retained": both(retained)}


def reads(shards):
    """Gradients after one backward, inside of full_state and outside."""
    model, optimizer, wrapped = made("O3", shards)
    optimizer.zero_grad()
    backward(wrapped, 0)
    s = session(model)
    slots = {n: p for n, p in model.named_parameters() if s.weights_of(p)[0].id in s.gradient_slots}
    owner = {n: None if s.owners is None else s.owners.owner[s.weights_of(p)[0].id] for n, p in slots.items()}
    found = {"owner": owner, "outside": {n: said(p.grad.plain) for n, p in slots.items()},
             "sum": said(lambda: slots["stem.weight"].grad + 1), "of whom": owner["stem.weight"],
             "counts": counts(s), "added to": said(backward, wrapped, 1)}
    optimizer.zero_grad()
    backward(wrapped, 0)
    with octavo.full_state(model):
        found["gradients"] = {n: p.grad.plain() for n, p in slots.items()}
    backward(wrapped, 1)  # adds to what every rank has now
    with octavo.full_state(model):
        found["sums"] = {n: p.grad.plain() for n, p in slots.items()}
    return found


def counts(s):
    """What reductions counted, of all ranks."""
    names = ("reduce/saturated", "reduce/added")
    found = torch.stack([s.tensors[slot.id].view(()) for slot in s.slots if slot.name in names])
    dist.all_reduce(found)
    return found.tolist()


def reads_run():
    return {"ddp": reads_of_ddp(), "sharded": reads(True)}


def reads_of_ddp():
    model, optimizer, wrapped = made("O3", None)
    optimizer.zero_grad()
    backward(wrapped, 0)
    s = session(model)
    slots = {n: p for n, p in model.named_parameters() if s.weights_of(p)[0].id in s.gradient_slots}
    found = {"counts": counts(s), "gradients": {n: p.grad.plain() for n, p in slots.items()}}
    backward(wrapped, 1)
    return {**found, "sums": {n: p.grad.plain() for n, p in slots.items()}}


def wire_run():
    """The bytes that this rank sends for gradients in slots, in a step: {(exchange, shards): bytes}."""
    found = {}
    for exchange, options in EXCHANGES.items():
        for shards in (None, True):
            model, optimizer, wrapped = made("O2", shards, model=Even(), **options)
            for _ in range(2):
                before = 0 if ddp.reducer_of(session(model)) is None else ddp.reducer_of(session(model)).wire_bytes
                optimizer.zero_grad()
                wrapped(torch.ones(4, 64)).square().mean().backward()
                optimizer.step()
            reducer = ddp.reducer_of(session(model))
            found[exchange, bool(shards)] = reducer.wire_bytes - before
            roles = [s.role for s in session(model).slots if s.access[_abi.VERB_REDUCE] == _abi.ACCESS_UPDATE]
            assert _abi.ROLE_GRADIENT in roles
    return found


RUNS = {"clipping": clipping_run, "loops": loops_run, "reads": reads_run, "wire": wire_run}

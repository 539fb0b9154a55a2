"""What each of two ranks of fsdp_test.py runs: every run gives back what the tests compare."""
import contextlib
import functools

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import session, te
from fsdp_parts import (FEW, LINEARS, ORDERS, Casts, Net, adamw, backward, batch, cache_bytes, ddp_model, gathering,
                        outcome, plain, shard, sharded, train)
from fsdp_precision import precision_run, scaled_run
from octavo import _abi
from octavo.torch import ops

WORLD, STEPS = 2, 50
RECIPES = ("delayed", "current", "block", "mx")


def ddp_run(recipe="delayed", steps=FEW):
    wrapped, optimizer = ddp_model(recipe)
    return outcome(wrapped, train(wrapped, optimizer, steps))


def fsdp_run(recipe="delayed", order="prepare first", steps=FEW, **options):
    model, optimizer = sharded(te(recipe), order, **options)
    return outcome(model, train(model, optimizer, steps))


def equal_run(recipe, steps=STEPS):
    return {"ddp": ddp_run(recipe, steps), **{order: fsdp_run(recipe, order, steps) for order in ORDERS}}


def short_run():
    found = {"ddp": ddp_run(), "values": fsdp_run()}
    gathering("fp8")
    found["fp8"] = fsdp_run()
    Net.layer = Casts
    return {**found, **{f"own forward, fp8, {order}": fsdp_run(order=order) for order in ORDERS}}


def options_run():
    return {"ddp": ddp_run(), "kept": fsdp_run(reshard_after_forward=False),
            "freed": fsdp_run(reshard_after_forward=True),
            "offload": fsdp_run(offload_policy=CPUOffloadPolicy(pin_memory=False))}


def caches_run(**options):
    """Bytes of the codes of each weight at points of a step."""
    model, optimizer = sharded(te(), **options)
    seen = {"sharded": {n: cache_bytes(model, n) for n in LINEARS}}

    def look(point):
        seen[point] = {n: cache_bytes(model, n) for n in LINEARS}

    model.blocks[0].down.register_forward_hook(lambda *_: look("in block 0"))
    model.blocks[1].norm.register_full_backward_hook(lambda *_: look("in the backward of block 1"))
    x, target = batch(0)
    y = model(x)
    look("after forward")
    torch.nn.functional.cross_entropy(y, target).backward()
    look("after backward")
    optimizer.step()
    with torch.no_grad():
        model(x)
    model.reshard()
    look("after evaluation")
    return seen


def accumulate(model, optimizer, later):
    losses = []
    for step in range(FEW):
        optimizer.zero_grad()
        for part in range(3):
            with later(part < 2):
                losses.append(backward(model, 3 * step + part, 1 / 3))
        optimizer.step()
    return losses


def accumulation_run():
    wrapped, optimizer = ddp_model()
    found = {"ddp": outcome(wrapped, accumulate(
        wrapped, optimizer, lambda wait: wrapped.no_sync() if wait else contextlib.nullcontext()))}
    for name, keeps in (("freed", False), ("kept", True)):
        model, optimizer = sharded(te())

        @contextlib.contextmanager
        def later(wait):
            model.set_requires_gradient_sync(not wait)
            model.set_reshard_after_backward(not (wait and keeps))
            yield

        found[name] = outcome(model, accumulate(model, optimizer, later))
        found[name]["boundaries"] = ops.calls(session(model).number, _abi.VERB_END_STEP)
    return found


def checkpointing_run():
    found = {"ddp": ddp_run()}
    for name, reentrant in (("non-reentrant", False), ("reentrant", True)):
        model = Net()
        octavo.prepare(model, overrides=te())
        if reentrant:
            model.is_reentrant = True
        else:
            for i, block in enumerate(model.blocks):
                model.blocks[i] = checkpoint_wrapper(block, preserve_rng_state=False)
        shard(model)
        found[name] = outcome(model, train(model, octavo.join(model, adamw(model)), FEW))
        found[name]["weights"] = {n.replace("_checkpoint_wrapped_module.", ""): p
                                  for n, p in found[name]["weights"].items()}
    return found


def compiled_run():
    found = {"ddp": ddp_run()}
    for name, backend, order, whole in (
            ("blocks, eager", "eager", "prepare first", False),
            ("blocks, aot_eager", "aot_eager", "shard first", False),
            ("model, aot_eager", "aot_eager", "prepare first", True)):
        torch.compiler.reset()
        model, optimizer = sharded(te(), order)
        call = model
        if whole:
            call = torch.compile(model, backend=backend)
        else:
            for block in model.blocks:
                block.compile(backend=backend, fullgraph=True)
        found[name] = outcome(model, train(call, optimizer, FEW))
        found[name]["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return found


def meta_run():
    values = Net().state_dict()
    found = {"ddp": ddp_run()}

    def filled(model):
        model.to_empty(device="cpu")
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(model, {n: v.clone() for n, v in values.items()}, options=options)
        return model, octavo.join(model, adamw(model))

    for order in (*ORDERS, "swapped", "assigned", "never sharded"):
        with torch.device("meta"):
            model = Net()
        if order == "shard first":
            shard(model)
        octavo.prepare(model, overrides=te())
        held = sum(cache_bytes(model, n) for n in LINEARS)
        call = model
        if order in ("never sharded", "assigned"):
            if order == "assigned":
                model.load_state_dict({n: v.clone() for n, v in values.items()}, assign=True)
                optimizer = octavo.join(model, adamw(model))
            else:
                model, optimizer = filled(model)
            call = DistributedDataParallel(model)
        else:
            if order != "shard first":
                shard(model)
            torch.__future__.set_swap_module_params_on_conversion(order == "swapped")
            model, optimizer = filled(model)
            torch.__future__.set_swap_module_params_on_conversion(False)
        found[order] = outcome(model, train(call, optimizer, FEW))
        found[order]["held"] = held
    return found


def evaluation_run(**options):
    """Losses of evaluation between steps."""
    def evaluated(model, optimizer):
        losses = []
        for step in range(FEW):
            losses += train(model, optimizer, 1, step)
            model.eval()
            with torch.no_grad():
                x, target = batch(100)
                losses.append(torch.nn.functional.cross_entropy(model(x), target).item())
            model.train()
        if hasattr(model, "reshard"):
            model.reshard()  # the root stays gathered after an evaluation
        return losses
    found = {}
    for name, (model, optimizer) in (("ddp", ddp_model(**options)), ("fsdp", sharded(te(**options)))):
        found[name] = outcome(model, evaluated(model, optimizer))
    return found


def resumed_run():
    """The losses of five steps after a break, and without one."""
    model, optimizer = sharded(te())
    train(model, optimizer, FEW)
    state = {n: plain(p) for n, p in model.state_dict().items()}
    fp8 = octavo.state_dict(model)
    unbroken = outcome(model, train(model, torch.optim.SGD(model.parameters(), lr=0.1), FEW, FEW))
    model, _ = sharded(te(), "shard first", seed=7)
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    octavo.load_state_dict(model, fp8)
    resumed = outcome(model, train(model, torch.optim.SGD(model.parameters(), lr=0.1), FEW, FEW))
    return {"ddp": unbroken, "resumed": resumed}


def infinite_run():
    """A gradient with Inf on one rank is a step that no rank takes."""
    model, optimizer = sharded(te())
    train(model, optimizer, 2)
    before = outcome(model, [])["weights"]
    scale = float("inf") if dist.get_rank() == 1 else 1.0
    backward(model, 2, scale)
    optimizer.step()
    return {"before": before, "after": outcome(model, [])["weights"],
            "skipped": session(model).skipped_steps}


RUNS = {"short": short_run, **{f"equal {r}": functools.partial(equal_run, r) for r in RECIPES},
        "options": options_run, "caches": caches_run,
        "caches kept": functools.partial(caches_run, reshard_after_forward=False),
        "accumulation": accumulation_run, "checkpointing": checkpointing_run, "compiled": compiled_run,
        "precision": precision_run, "scaled": scaled_run, "meta": meta_run, "evaluation": evaluation_run,
        "resumed": resumed_run, "infinite": infinite_run}


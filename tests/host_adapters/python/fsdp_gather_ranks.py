"""What each of two ranks of fsdp_gather_test.py runs in addition to the runs of fsdp_test.py."""
import functools
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import session, te
from fsdp_parts import FEW, Net, adamw, backward, batch, gathering, outcome, sharded, train
from fsdp_ranks import RECIPES, RUNS as RUNS_OF_VALUES, equal_run, evaluation_run
from fsdp_wire import wire_run
from octavo import _abi
from octavo.torch import ops


def both(run):
    """What a run gives with each gather."""
    found = {}
    for gather in ("values", "fp8"):
        gathering(gather)
        found[gather] = run()
    return found


def layers_run():
    return {recipe: octavo.torch.session_of(sharded(te(recipe))[0]).gather.layers() for recipe in RECIPES}


def mixed_run():
    """Three recipes in one model, by rules for layers."""
    rules = {**te("delayed"), "layers.rule.0.match": "*.up", "layers.rule.0.fp8.te.recipe": "current",
             "layers.rule.1.match": "*.down", "layers.rule.1.fp8.te.recipe": "block"}
    model = Net(0)
    octavo.prepare(model, overrides=rules)
    wrapped, optimizer = DistributedDataParallel(model), adamw(model)
    found = {"ddp": outcome(wrapped, train(wrapped, optimizer, FEW))}
    for gather in ("values", "fp8"):
        gathering(gather)
        model, optimizer = sharded(rules)
        found[gather] = outcome(model, train(model, optimizer, FEW))
    return {**found, "layers": octavo.torch.session_of(model).gather.layers()}


def policy_run(dtype):
    model, optimizer = sharded(te(), mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32))
    return outcome(model, train(model, optimizer, FEW))


def by_hand_run(step):
    """An optimizer that is none of torch's. step(parameters, gradients)."""
    model, _ = sharded(te())
    losses = []
    for i in range(FEW):
        losses.append(backward(model, i))
        parameters = list(model.parameters())
        with torch.no_grad():
            step(model, parameters, [p.grad for p in parameters])
        model.zero_grad()
    found = outcome(model, losses)
    return {**found, "boundaries": ops.calls(session(model).number, _abi.VERB_END_STEP)}


def seen(model, parameters, gradients):
    for p, g in zip(parameters, gradients):
        p.sub_(g, alpha=0.1)


def unseen(model, parameters, gradients):
    """Foreach functions of shards move no version."""
    torch._foreach_sub_(parameters, gradients, alpha=0.1)
    octavo.step(model)


class Sometimes(nn.Module):
    """A layer that is gathered in each step, and used in every second one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.always, self.sometimes, self.step = nn.Linear(128, 128), nn.Linear(128, 128), 0

    def forward(self, x):
        x = self.always(x)
        self.step += 1
        return x + self.sometimes(x) if self.step % 2 else x


def unused_run():
    model = Sometimes()
    octavo.prepare(model, overrides=te())
    fully_shard(model)
    optimizer = octavo.join(model, adamw(model))
    losses = []
    for step in range(FEW):
        optimizer.zero_grad()
        loss = model(batch(step)[0]).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return outcome(model, losses)


def whole_run():
    """What other code sees of a weight that is gathered as codes, and of its shard."""
    model, optimizer = sharded(te())
    train(model, optimizer, 1)
    model.unshard()
    weight = model.stem.weight
    found = {"is NaN": bool(torch.isnan(weight).all()), "shape": tuple(weight.shape),
             "bytes": weight.untyped_storage().nbytes()}
    model.reshard()
    saved = io.BytesIO()
    torch.save(model.stem.weight.to_local(), saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=True)
    return {**found, "type": type(loaded).__name__,
            "equal": torch.equal(loaded, model.stem.weight.full_tensor().chunk(2)[dist.get_rank()])}


RUNS = {**RUNS_OF_VALUES, **{f"equal {r}": functools.partial(equal_run, r, FEW) for r in RECIPES},
        "layers": layers_run, "mixed": mixed_run, "wire": wire_run, "whole": whole_run,
        "bfloat16": functools.partial(both, functools.partial(policy_run, torch.bfloat16)),
        "float16": functools.partial(both, functools.partial(policy_run, torch.float16)),
        "seen": functools.partial(both, functools.partial(by_hand_run, seen)),
        "unseen": functools.partial(both, functools.partial(by_hand_run, unseen)),
        "unused": functools.partial(both, unused_run),
        "evaluation in FP8": functools.partial(evaluation_run, use_autocast_during_eval=True)}

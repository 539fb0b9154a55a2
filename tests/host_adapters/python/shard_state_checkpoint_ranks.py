"""What each rank of shard_state_checkpoint_test.py runs: checkpoints of 2 ranks, and of 4 that go on from them."""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_optimizer_state_dict, get_state_dict,
                                                     set_optimizer_state_dict, set_state_dict)

import octavo
from fsdp_parts import train
from shard_state_ranks import FEW, LEVELS, made, said, whole


# [save]
def state_of(model, optimizer):
    return {"model": octavo.sharded_state_dict(model), "octavo": octavo.Stateful(model),
            "optimizer": get_optimizer_state_dict(model, optimizer)}


def save(model, optimizer, folder):
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)


def load(model, optimizer, folder):
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"], strict=False)
    set_optimizer_state_dict(model, optimizer, state["optimizer"], options=StateDictOptions(strict=False))
# [/save]


def go_on(model, optimizer, wrapped):
    """The state, and what comes next."""
    return {**whole(model), "losses": train(wrapped, optimizer, FEW, FEW)}


def saving_run(folder):
    """Of each level, sharded and not: the state at the save, and the next losses."""
    found = {}
    for level in LEVELS:
        for name, shards in (("plain", None), ("sharded", True)):
            model, optimizer, wrapped = made(level, shards)
            train(wrapped, optimizer, FEW)
            save(model, optimizer, folder / f"{level} 2 {name}")
            found[level, name] = go_on(model, optimizer, wrapped)
        found[level, "same"] = loaded(level, True, folder / f"{level} 2 sharded")
    # torch's own functions, which read every weight, inside of full_state.
    model, optimizer, wrapped = made("O3", True)
    train(wrapped, optimizer, FEW)
    with octavo.full_state(model):
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "octavo": octavo.Stateful(model), "optimizer": moments},
                 checkpoint_id=folder / "whole")
    model, optimizer, wrapped = made("O3", True, seed=7)
    with octavo.full_state(model):
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "octavo": octavo.Stateful(model), "optimizer": moments}
        dcp.load(state, checkpoint_id=folder / "whole")
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    found["O3", "whole"] = go_on(model, optimizer, wrapped)
    return found


def loaded(level, shards, folder, **options):
    model, optimizer, wrapped = made(level, shards, seed=7, **options)
    load(model, optimizer, folder)
    return go_on(model, optimizer, wrapped)


def loading_run(folder):
    """On more ranks: sharded and not, from sharded and not; and a checkpoint of these."""
    found = {}
    for level in LEVELS:
        for saved, shards in (("sharded", True), ("sharded", None), ("plain", True)):
            found[level, saved, shards] = loaded(level, shards, folder / f"{level} 2 {saved}")
        model, optimizer, _ = made(level, True, seed=7)
        load(model, optimizer, folder / f"{level} 2 sharded")
        save(model, optimizer, folder / f"{level} 4 sharded")
    return found


def files_run(folder):
    """octavo.state_dict of a rank, and of all: what load_state_dict says to each."""
    model, optimizer, wrapped = made("O3", True)
    train(wrapped, optimizer, FEW)
    mine, found = octavo.state_dict(model), {}
    weights = {n: t.clone() for n, t in octavo.sharded_state_dict(model).items()}
    torch.save(mine, folder / f"{dist.get_rank()}.pt")
    dist.barrier()
    other_state = torch.load(folder / f"{1 - dist.get_rank()}.pt", weights_only=True)
    expected = go_on(model, optimizer, wrapped)
    other, its_optimizer, its_wrapped = made("O3", True, seed=7)
    before = whole(other)
    found["of the other rank"] = said(octavo.load_state_dict, other, other_state)
    damaged = {k: v.clone() for k, v in mine.items()}
    key = next(k for k in mine if k.endswith("/master_weight"))
    damaged[key].view(torch.uint8).view(-1)[0] ^= 1
    found["damaged"] = said(octavo.load_state_dict, other, damaged)
    plain, _, _ = made("O3", None)
    found["into a model that is not sharded"] = said(octavo.load_state_dict, plain, mine)
    found["unchanged"] = before, whole(other)
    other.load_state_dict(weights, strict=False)
    octavo.load_state_dict(other, mine)
    found["own"] = go_on(other, its_optimizer, its_wrapped), expected
    again, its_optimizer, its_wrapped = made("O3", True, seed=7)
    again.load_state_dict(expected["weights"])
    octavo.load_state_dict(again, expected["octavo"])
    found["whole"] = go_on(again, its_optimizer, its_wrapped), expected
    # In 16 bits, whose values are not those of the master.
    half, its_optimizer, its_wrapped = made("O3", True, dtype=torch.bfloat16)
    x = torch.ones(2, 128, dtype=torch.bfloat16)
    its_wrapped(x).square().mean().backward()
    its_optimizer.step()
    saved = whole(half)
    half.load_state_dict(saved["weights"])
    found["bfloat16"] = said(its_wrapped, x)
    octavo.load_state_dict(half, saved["octavo"])
    found["bfloat16 whole"] = whole(half), saved
    return found

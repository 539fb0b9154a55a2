"""FSDP2 that goes on where it was stopped: torchrun --nproc-per-node 2 --max-restarts 3 restart.py --folder out

Every rank that is lost ends the others within the timeout, torchrun starts all of them again, and they start from the last
whole checkpoint. The result is bit-identical to a run without a break.
"""
import argparse
import datetime
import os
import pathlib

import octavo
import tiny_gpt
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("restart_out"))
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a rank waits for the others")
    return parser.parse_args()


def made():
    model = tiny_gpt.Gpt()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3), tiny_gpt.CONFIG)


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "octavo": octavo.Stateful(model), "optimizer": moments}


def save(model, optimizer, step, folder):
    dcp.save(state_of(model, optimizer), checkpoint_id=folder / f"step-{step}")


def load(model, optimizer, folder):
    """Loads the last whole checkpoint, whose .metadata is written last. Returns its step, 0 without one."""
    whole = [int(path.parent.name.removeprefix("step-")) for path in folder.glob("step-*/.metadata")]
    if not whole:
        return 0
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder / f"step-{max(whole)}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return max(whole)


def join_ranks(timeout):
    """torchrun keeps its store when it restarts the ranks. A prefix keeps them from the addresses of those before."""
    store, rank, world = next(dist.rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt {attempt}", store), rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=timeout))


def train(options):
    """Returns the model and the losses of the steps that this process ran."""
    join_ranks(options.timeout)
    rank, losses = dist.get_rank(), []
    model, optimizer = made()
    begin = load(model, optimizer, options.folder)
    for step in range(begin, options.steps):
        optimizer.zero_grad()
        loss = model(tiny_gpt.text(8, seed=step * dist.get_world_size() + rank))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % options.every == 0:
            save(model, optimizer, step + 1, options.folder)
    if rank == 0:
        print(f"steps {begin} to {options.steps}, last loss {losses[-1] if losses else float('nan'):.4f}")
    return model, losses


def main():
    train(arguments())
    dist.destroy_process_group()


if __name__ == "__main__":
    # [exits]
    with octavo.exits():
        main()
    # [/exits]

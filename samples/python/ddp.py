"""DistributedDataParallel: torchrun --nproc-per-node 2 ddp.py"""
import pathlib
import sys

import octavo
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


def main():
    steps = tiny_gpt.arguments().steps
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = octavo.prepare(model, optimizer, tiny_gpt.CONFIG)
    wrapped = DistributedDataParallel(model)
    for step, tokens in enumerate(tiny_gpt.batches(steps, rows=8, seed=rank)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = wrapped(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    if rank == 0:
        print(octavo.report(model))
        print(f"last loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

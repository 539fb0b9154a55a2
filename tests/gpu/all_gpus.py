"""A rank on every GPU, over NCCL: te and msamp keep equal states, and learn.

  python3 all_gpus.py                             as many ranks as there are GPUs
  python3 all_gpus.py --device cpu --world 2      ranks on the CPU, over gloo: a test of this program

Each rank has a part of the batch, as in DistributedDataParallel. On one GPU there is one rank, and the
last line says so. Exit code 1: states differ, or a loss did not fall.
"""
import argparse
import datetime
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import octavo
from octavo.torch.ranks import ddp

ROWS, STEPS, SIZES = 64, 8, (256, 512, 512, 64)
BACKENDS = {"te": {"fp8.backend": "te", "fp8.te.recipe": "delayed"},
            "msamp": {"fp8.backend": "msamp", "fp8.msamp.opt_level": "O2"}}


def train(overrides, device, rank):
    """The state after some steps, and first and last loss of this rank."""
    torch.manual_seed(rank)  # DistributedDataParallel sends the weights of rank 0
    layers = [part for k, n in zip(SIZES, SIZES[1:]) for part in (nn.Linear(k, n), nn.GELU())]
    model = nn.Sequential(*layers[:-1]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    overrides = {**overrides, "layers.min_gain": "off"}
    model, optimizer = octavo.prepare(model, optimizer, overrides=overrides)
    wrapped = ddp.join(DistributedDataParallel(model))
    data = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(ROWS, SIZES[0], generator=data).to(device)
    target = torch.randint(0, SIZES[-1], (ROWS,), generator=data).to(device)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return octavo.state_dict(model), losses[0], losses[-1]


def differing(state, world):
    """Names of what another rank has otherwise, compared as sums over the bytes of each tensor."""
    names = []
    for name, value in sorted(state.items()):
        if not torch.is_tensor(value):
            continue
        bits = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).long()
        places = torch.arange(1, bits.numel() + 1)
        mine = [int(bits.sum()), int((bits * (places % 65521)).sum())]
        every = [None] * world
        dist.all_gather_object(every, mine)
        names += [name] if any(one != mine for one in every) else []
    return names


def rank_main(rank, device, world, folder):
    if device == "cuda":
        torch.cuda.set_device(rank)
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", f"file://{folder}/meeting", rank=rank,
                            world_size=world, timeout=datetime.timedelta(seconds=200))
    wrong = []
    for backend, overrides in BACKENDS.items():
        state, first, last = train(overrides, f"cuda:{rank}" if device == "cuda" else "cpu", rank)
        unequal = differing(state, world)
        wrong += [f"{backend}: {name} differs between ranks" for name in unequal]
        wrong += [] if last < first else [f"{backend}: the loss of rank {rank} went from {first:.4f} to {last:.4f}"]
        if rank == 0:
            print(f"{backend}: {world} ranks, loss {first:.4f} to {last:.4f}, {len(state)} entries of state",
                  flush=True)
    dist.destroy_process_group()
    if wrong:
        print("\n".join(wrong), flush=True)
    # DistributedDataParallel keeps gloo's threads alive. One that still frees a tensor while the interpreter
    # ends would abort the process.
    os._exit(1 if wrong else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--world", type=int)
    arguments = parser.parse_args()
    world = arguments.world or torch.cuda.device_count()
    if world == 0:
        print("skipped: torch finds no GPU here")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (arguments.device, world, folder), nprocs=world)
    if world == 1:
        print("one rank alone: nothing crossed a link between GPUs")
    return 0


if __name__ == "__main__":
    sys.exit(main())

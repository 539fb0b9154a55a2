"""Faults of one rank in a training of several, seeded: what the others learn, and whether a restart has the bits of a
run without a break. The program is samples/python/restart.py.

What plays a fault waits most of the time, for timeouts. So it is a generator, of which `in_lanes` runs several at once.
"""
import argparse
import dataclasses
import functools
import os
import random
import re
import resource
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

import octavo
import rank_network
from conftest import msamp
from fsdp_parts import assert_equal, plain
from torchrun import start

import restart  # of SAMPLES
import tiny_gpt

STEPS, EVERY = 4, 2
LATE = 4.0  # seconds after the timeout: 2 where a run has the machine for itself, and two runs share two cores here
TIMEOUT = 4.0  # more than a rank that is well may need for a step on a machine that does other things, too
HOW = {"fsdp": {}, "gather": {"fsdp_gather": "fp8"}, "ddp": {},
       "sharded": {"overrides": msamp("O2"), "shard_optimizer_state": True}}
# kind -> the exit codes of the other ranks; none: the run ends well
KINDS = {"killed": 75, "killed saving": 75, "stopped": 75, "late": 75, "short of data": 75, "disk full": 74, "slow": 0,
         "link down": 75}
OWN = {"killed": -signal.SIGKILL, "killed saving": -signal.SIGKILL, "stopped": None, "late": 75, "short of data": 0,
       "disk full": 74, "slow": 0, "link down": 75}


@dataclasses.dataclass
class Fault:
    kind: str
    how: str
    world: int
    rank: int
    step: int     # of the optimizer, from 1
    inside: bool  # before Octavo's own collective of this step; else after it

    def __str__(self):
        when = "in" if self.inside else "after"
        return f"{self.kind}, {self.how}, rank {self.rank} of {self.world} {when} step {self.step}"


def drawn(seed, count):
    """Every kind in turn, in places that the seed draws."""
    draw, kinds = random.Random(seed), list(KINDS)
    for i in range(count):
        kind = kinds[(seed + i) % len(kinds)]
        world = 2 if kind == "link down" else draw.choice((2, 2, 3, 4))
        yield Fault(kind, draw.choice(list(HOW)), world, draw.randrange(world), draw.randrange(1, STEPS),
                    draw.random() < 0.5)


def made(how):
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if how in ("ddp", "sharded"):
        model, optimizer = octavo.prepare(model, optimizer, tiny_gpt.CONFIG, **HOW[how])
        # Else DDP forms other buckets after its first step. The order of a sum of three depends on them, and so would
        # the bits of a process that begins later.
        return DistributedDataParallel(model, find_unused_parameters=True), optimizer
    octavo.prepare(model, None, tiny_gpt.CONFIG, **HOW[how])
    for block in model.blocks:
        restart.fully_shard(block)
    restart.fully_shard(model)
    return model, octavo.join(model, torch.optim.AdamW(model.parameters(), lr=3e-3))


def _strike(fault, folder):
    """What happens to this process."""
    (folder / "struck").write_text(repr(time.monotonic()))
    if fault.kind.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind in ("slow", "late"):
        time.sleep(TIMEOUT / 2 if fault.kind == "slow" else TIMEOUT + 3)
    elif fault.kind == "link down":
        rank_network.take_down()
    elif fault.kind == "short of data":
        os._exit(0)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def _arm(fault, folder):
    seen = []

    def count(*_):
        seen.append(1)
        if len(seen) == fault.step and fault.kind != "killed saving":
            _strike(fault, folder)

    handle = register_optimizer_step_pre_hook(count)
    if fault.inside:  # Octavo's hook comes first otherwise
        torch_optimizer._global_optimizer_pre_hooks.move_to_end(handle.id, last=False)
    if fault.kind == "killed saving":
        write = FileSystemWriter.write_data

        def write_data(self, *arguments):
            if len(seen) >= fault.step:
                _strike(fault, folder)
            return write(self, *arguments)

        FileSystemWriter.write_data = write_data


def _rank_main(folder, how, fault):
    restart.made = functools.partial(made, how)
    if how == "sharded":  # of which each rank has the moments of its own parameters
        restart.set_state_dict = functools.partial(restart.set_state_dict, options=StateDictOptions(strict=False))
    if fault is not None and int(os.environ["RANK"]) == fault.rank:
        _arm(fault, folder)
    with octavo.exits():
        options = argparse.Namespace(steps=STEPS, every=EVERY, folder=folder / "saved", timeout=TIMEOUT)
        model, losses = restart.train(options)
        inner = getattr(model, "module", model)
        torch.save({"losses": losses, "weights": {n: plain(p) for n, p in inner.named_parameters()},
                    "octavo": octavo.state_dict(inner)}, folder / f"{os.environ['RANK']}.pt")
        dist.barrier()


def run(folder, how, world, fault=None):
    """Returns {rank: (exit code, when it ended)}; a rank that is stopped, or hangs 3 s longer than it may, is killed: None."""
    folder.mkdir(parents=True, exist_ok=True)
    main = functools.partial(_rank_main, folder, how, fault)
    is_linked = fault is not None and fault.kind == "link down"
    alive = rank_network.start_linked(main, folder) if is_linked else start(main, folder, world)
    ended, end = {}, time.monotonic() + 60
    yield
    while alive and time.monotonic() < end:
        for pid in list(alive):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended[alive.pop(pid)] = os.waitstatus_to_exitcode(status), time.monotonic()
        if fault is not None and (folder / "struck").exists():
            text = (folder / "struck").read_text()
            if text:
                end = min(end, float(text) + 2 * TIMEOUT + 8)
            if set(alive.values()) == {fault.rank} and fault.kind == "stopped":
                break
        yield
    for pid, rank in alive.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ended[rank] = None, time.monotonic()
    return ended


def unbroken(folder, how, world):
    """Returns the outcome of each rank of a run without a fault, which the first one that asks for it makes."""
    if not folder.exists():
        ended = yield from run(folder, how, world)
        (folder / "ended").write_text(" ".join(str(code) for code, _ in ended.values()))
    while not (folder / "ended").exists():
        yield
    assert set((folder / "ended").read_text().split()) == {"0"}, log(folder, 0)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


def log(folder, rank):
    return (folder / f"{rank}.log").read_text()


def play(fault, folder, references):
    """Plays a fault and, where `references` is a folder, the restart after it, and checks both. Returns what the other
    ranks said, and the seconds until the last of them ended."""
    ended = yield from run(folder, fault.how, fault.world, fault)
    assert (folder / "struck").exists(), f"{fault}: the run ended before it: {ended}\n{log(folder, 0)[-3000:]}"
    struck = float((folder / "struck").read_text())
    others = [rank for rank in range(fault.world) if rank != fault.rank]
    for rank in others:
        code, when = ended[rank]
        assert code == KINDS[fault.kind], f"{fault}: rank {rank} ended with {code}\n{log(folder, rank)[-3000:]}"
        assert KINDS[fault.kind] != 75 or when - struck < TIMEOUT + LATE, f"{fault}: rank {rank}, {when - struck:.1f} s"
    assert ended[fault.rank][0] == OWN[fault.kind], f"{fault}: {ended}\n{log(folder, fault.rank)[-3000:]}"
    texts = [log(folder, rank) for rank in others]
    if fault.inside and KINDS[fault.kind] == 75 and fault.kind != "killed saving":
        said = re.compile(r"octavo\.errors\.DeviceError: all_(reduce|gather) of [^,]+, "
                          rf"in step {fault.step} of this process: expected .* within its timeout of {TIMEOUT:g} s")
        for text in texts:
            assert said.search(text), f"{fault}\n{text}"
    if references is None:
        return texts, max(ended[rank][1] - struck for rank in others)
    if KINDS[fault.kind]:
        whole = {path.parent.name for path in (folder / "saved").glob("step-*/.metadata")}
        assert f"step-{STEPS}" not in whole, fault
        again = yield from run(folder, fault.how, fault.world)
        assert {code for code, _ in again.values()} == {0}, f"{fault}: {log(folder, 0)}"
    unbroken_ranks = yield from unbroken(references / f"{fault.how}-{fault.world}", fault.how, fault.world)
    for rank, expected in enumerate(unbroken_ranks):
        found = torch.load(folder / f"{rank}.pt", weights_only=False)
        if KINDS[fault.kind]:
            begin = max((int(name.removeprefix("step-")) for name in whole), default=0)
            assert len(found["losses"]) == STEPS - begin, fault
            expected = {**expected, "losses": expected["losses"][begin:]}
        assert_equal(found, expected)
    return texts, max((ended[rank][1] - struck for rank in others), default=0.0)


def in_lanes(jobs, lanes):
    """Runs generators, `lanes` of them at once: {name: what it returned, or its AssertionError}. jobs: {name: generator}."""
    waiting, running, found = list(jobs.items()), [], {}
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.pop(0))
        for name, job in list(running):
            try:
                next(job)
                continue
            except StopIteration as end:
                found[name] = end.value
            except AssertionError as error:
                found[name] = error
            running.remove((name, job))
        time.sleep(0.01)
    return found

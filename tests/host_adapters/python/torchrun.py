"""Ranks as torchrun starts them, in forked processes: for frameworks that make their process group themselves.

A fork saves each rank what the frameworks take to be imported. The process that forks must have computed nothing yet.
"""
import contextlib
import faulthandler
import io
import os
import pathlib
import re
import runpy
import signal
import socket
import sys
import time
import traceback

import torch
import torch._dynamo  # the first optimizer of each rank would import it, for seconds
import torch.distributed as dist

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"
sys.path.append(str(SAMPLES))  # tiny_gpt


def apart(group):
    """Makes the packages of a group importable that tests/environment/install.sh keeps apart."""
    folder = pathlib.Path(sys.prefix, "apart", group)
    if folder.is_dir():
        sys.path.append(str(folder))


_held = []


def _port():
    """A port that the system gives to nobody else while this program runs: bound, but not listening. The ranks' store
    sets SO_REUSEADDR, and binds it too."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    return held.getsockname()[1]


def _rank_main(main, folder, rank, world, port):
    code = 1
    try:
        log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = open(log, "w", buffering=1)
        faulthandler.enable(sys.stderr)  # a rank that dies says where
        torch.set_num_threads(1)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # no thread of gloo outlives the interpreter


def start(main, folder, world):
    """Forks the ranks, each of which calls main() and writes to <folder>/<rank>.log: {pid: rank}."""
    port, pids = _port(), {}
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            _rank_main(main, folder, rank, world, port)
        pids[pid] = rank
    return pids


def _found(run, folder):
    torch.save(run(folder), folder / f"{os.environ['RANK']}.pt")
    if dist.is_initialized():
        dist.barrier()  # nobody's connection ends while another rank still sends


def ranks_of(run, folder, world=2, seconds=200):
    """What run(folder) returned on each rank. Fails with the last lines of a rank that failed, and after `seconds`."""
    folder, ended = pathlib.Path(folder), None
    alive = start(lambda: _found(run, folder), folder, world)
    end = time.monotonic() + seconds
    while alive and ended is None:
        for pid in list(alive):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                rank = alive.pop(pid)
                ended = (rank, os.waitstatus_to_exitcode(status)) if status else None
                break
        else:
            if time.monotonic() > end:
                ended = (next(iter(alive.values())), f"no end after {seconds} s")
            time.sleep(0.02)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if ended is not None:
        rank, code = ended
        raise AssertionError(f"rank {rank}: {code}\n{(folder / f'{rank}.log').read_text()[-4000:]}")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


@contextlib.contextmanager
def sharding_on_cpus():
    """Accelerate shards on devices that are not CPUs alone; on CPUs it makes DistributedDataParallel, whatever plugin
    it was given. In here CPUs count as such devices."""
    import accelerate
    from accelerate.utils import DistributedType
    state = accelerate.state.PartialState
    made = state.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        if state._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            state._shared_state["distributed_type"] = DistributedType.MULTI_GPU

    state.__init__ = init
    try:
        yield
    finally:
        state.__init__ = made
        os.environ.pop("ACCELERATE_USE_FSDP", None)


def printed(name, place, folder, steps):
    """What this rank prints in a sample. place: "." or "plain"."""
    text, before = io.StringIO(), sys.argv
    sys.argv = [name, "--steps", str(steps), "--folder", str(folder / place / "out")]
    try:
        with contextlib.redirect_stdout(text):
            runpy.run_path(str(SAMPLES / place / f"{name}.py"), run_name="__main__")
    finally:
        sys.argv = before
    return text.getvalue()


def sample(name, folder, steps=4):
    """What this rank prints in a sample and in its plain version: [losses of the plain one, losses, text]."""
    texts = [printed(name, place, folder, steps) for place in ("plain", ".")]
    return [*([float(v) for v in re.findall(r"\bloss (\d+\.\d+)", text)] for text in texts), texts[1]]


def assert_sample(ranks, layers, gather=None):
    """Of what `sample` gave on each rank: it trained in this many FP8 layers, with losses near those without Octavo."""
    plain, fp8, text = ranks[0]
    assert len(plain) == len(fp8) > 0
    assert abs(fp8[-1] - plain[-1]) < 0.02 * plain[-1], (plain, fp8)
    assert len(set(re.findall(r"^ +(\S+) .*\bfp8\b", text, re.M))) == layers, text
    assert ("weight: codes" in text) == (gather == "fp8"), text

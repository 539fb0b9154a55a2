"""Two ranks in network namespaces of their own, with one link between them that either can take down."""
import ctypes
import functools
import os
import shutil
import subprocess

from torchrun import start

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def missing():
    """Why such ranks cannot be made here, or None."""
    if shutil.which("ip") is None:
        return "the program ip (iproute2) is not installed"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespace can be made: {tried.stderr.strip()}"


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


def _linked(main, ready, go):
    libc, rank = ctypes.CDLL(None, use_errno=True), os.environ["RANK"]
    if libc.unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(ready, b"1")
    os.read(go, 1)
    _ip("address", "add", f"10.231.0.{int(rank) + 1}/24", "dev", f"rank{rank}")
    for name in ("lo", f"rank{rank}"):
        _ip("link", "set", name, "up")
    os.environ.update(MASTER_ADDR="10.231.0.1", GLOO_SOCKET_IFNAME=f"rank{rank}")
    main()


def start_linked(main, folder):
    """As torchrun.start, of two ranks."""
    ready, go = os.pipe(), os.pipe()
    pids = start(functools.partial(_linked, main, ready[1], go[0]), folder, 2)
    seen = 0
    while seen < 2:
        seen += len(os.read(ready[0], 2))
    of = {rank: str(pid) for pid, rank in pids.items()}
    _ip("link", "add", "rank0", "netns", of[0], "type", "veth", "peer", "name", "rank1", "netns", of[1])
    os.write(go[1], b"11")
    for end in (*ready, *go):
        os.close(end)
    return pids


def take_down():
    """The link of this rank."""
    _ip("link", "set", f"rank{os.environ['RANK']}", "down")

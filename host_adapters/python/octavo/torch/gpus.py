"""What ranks need before they communicate: a backend for the device of the model, and with NCCL a GPU
for each.

NCCL compares GPUs itself, in the first collective, which is often the one by which
DistributedDataParallel begins; its message names neither the ranks nor what to do. So a rank claims
its GPU in the store of the group as soon as it prepares a model. A claim waits for no other rank.
"""
import weakref

import torch
import torch.distributed as dist

from ..errors import DeviceError, UnsupportedError
from . import ops
from .groups import is_distributed

_claims = weakref.WeakKeyDictionary()  # group -> the key of the GPU that this rank claimed last


def check(session, group=None):
    """Raises UnsupportedError unless the group, by default that of all ranks, can carry tensors of
    the session's device, and DeviceError if another rank of it has claimed the same GPU for NCCL.
    Nothing on the CPU, and without another rank."""
    if session.device.type == "cpu" or not is_distributed(group):
        return
    named, group = group, group or dist.group.WORLD
    backends = _backends(group)
    backend = backends.get(session.device.type)
    if backend is None and named is not None:
        raise UnsupportedError(
            f"the process group: expected a backend for tensors on {session.device}, where the model is, "
            f"found {_shown(backends)}; {_remedy(session.device.type)}")
    if backend == "nccl":
        _claim(session, group)


def _backends(group):
    """{type of device: backend}."""
    config = dist.get_backend_config(group)
    return dict(part.split(":") for part in config.split(",") if ":" in part)


def _shown(backends):
    return ", ".join(f"{backend} for {kind}" for kind, backend in backends.items()) or "none"


def _remedy(kind):
    if kind == "cuda" and not dist.is_nccl_available():
        return (f"torch {torch.__version__} is built without NCCL: install a torch for CUDA on Linux, or "
                'call torch.distributed.init_process_group("gloo")')
    backend = "nccl" if kind == "cuda" else "<backend>"
    return f'call torch.distributed.init_process_group("cpu:gloo,{kind}:{backend}")'


def _claim(session, group):
    gpu = ops.gpu(session.number)
    if not gpu:
        return  # no driver says it, so NCCL will
    store, rank = dist.distributed_c10d._get_process_group_store(group), dist.get_rank(group)
    key = f"octavo/gpu/{gpu}"
    before = _claims.pop(group, key)
    if before != key:
        store.delete_key(before)
    owner = int(store.compare_set(key, "", str(rank)))
    if owner != rank:
        raise DeviceError(
            f"the ranks: expected a GPU for each, as NCCL needs, found ranks {owner} and {rank} on one "
            f"({session.device}, UUID {gpu}); call torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) "
            "before the model is made, start at most one process for each GPU, or name the ranks that "
            "train together in octavo.prepare(group=)")
    _claims[group] = key

"""The ranks that train together: which ones, whether they train the same thing on devices that can communicate, and
collectives that name what they wait for."""
import hashlib
import weakref
import zlib

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import DeviceError, StateError, UnsupportedError
from ...library import version
from .. import ops
from ..models import holder_of, is_a, modules_alive
from ..slots import is_released
from . import tensor_parallel


# The collectives of torch.distributed, with errors of this package.


def deadline_of(group, device):
    """How long a collective of a group waits, as a timedelta; None where its backend does not say. device: of the
    tensors."""
    try:
        return (group or dist.group.WORLD)._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        return None


def collective(session, what, call, *arguments, group=None, **options):
    """Calls a collective of a session, or waits for one. what: its purpose, for the error. group: also given to the
    call, unless it waits. Raises DeviceError when a rank of the group does not answer within the group's timeout,
    where torch raises a RuntimeError in the words of its transport."""
    try:
        return call(*arguments, **options) if group is None else call(*arguments, group=group, **options)
    except RuntimeError as e:
        deadline = deadline_of(group or session.group, session.device)
        within = "its timeout" if deadline is None else f"its timeout of {deadline.total_seconds():g} s"
        step = ops.calls(session.number, _abi.VERB_END_STEP) + 1
        raise DeviceError(
            f"{what}, in step {step} of this process: expected an answer of every rank of the group within {within}, "
            f"found: {e}; a rank has ended or hangs: see what it printed last, then start every rank again from a "
            "checkpoint") from e


# Which ranks a session communicates with.
#
# It is one group: that of octavo.prepare(group=), of the mesh that fully_shard uses, or of the
# DistributedDataParallel around the model.
# Without either, and with fp8.te.reduce_amax = false, a session does not communicate.


def note_wrapper(session, wrapper):
    """Remembers the DistributedDataParallel around the model of a session."""
    session.wrapper = weakref.ref(wrapper)


def is_initialized():
    """Whether torch.distributed runs."""
    return dist.is_available() and dist.is_initialized()


def is_distributed(group=None):
    """Whether it runs with more than one rank."""
    return is_initialized() and dist.get_world_size(group) > 1


def wrapper_around(model):
    """The DistributedDataParallel of this process around a model: a search of some milliseconds."""
    return _around(model, modules_alive(), _is_wrapper)


def _around(model, modules, is_one):
    """The first of these modules that is one, and contains a model; None without one."""
    return next((m for m in modules if is_one(m) and any(part is model for part in m.modules())), None)


def _is_wrapper(module):
    return isinstance(module, torch.nn.parallel.DistributedDataParallel)


def _is_engine(module):
    return is_a(module, "DeepSpeedEngine")


def note_active_wrapper(model, args):
    """A forward pre-hook of a prepared model: it runs inside of DDP's forward."""
    if torch.compiler.is_compiling():
        return
    wrapper = torch.nn.parallel.DistributedDataParallel._active_ddp_module
    session = model.__dict__.get("octavo_session")
    if wrapper is not None and session is not None and _known(session) is not wrapper:
        note_wrapper(session, wrapper)


def _known(session):
    return None if session.wrapper is None else session.wrapper()


def wrapper_of(session):
    """The DistributedDataParallel around the model of a session, or None.

    Eager forwards note it. For compiled ones, which run no hooks, this searches the process: before
    the first boundary, and then whenever the number of boundaries has doubled.
    """
    found = _known(session)
    if found is not None or session.is_sharded or session.step_state.following:  # these are in none
        return found
    count = ops.calls(session.number, _abi.VERB_END_STEP)
    if count < session.next_wrapper_search:
        return None
    session.next_wrapper_search = 2 * count or 1
    model, modules = holder_of(session), modules_alive()
    found = _around(model, modules, _is_wrapper)
    if found is not None:
        note_wrapper(session, found)
    elif session.group is None and _around(model, modules, _is_engine) is not None:
        # octavo.deepspeed would know its group and its steps.
        raise StateError("the model: expected an engine of octavo.deepspeed.initialize, found one of deepspeed.initialize, "
                         "whose ranks would not combine their scales; call the former with the plain model")
    return found


def _of_meshes(session):
    """The process group of all ranks that train a sharded model together: the ranks of its mesh. With meshes inside of a
    larger one, as for experts, the largest. Raises StateError for meshes that overlap in another way."""
    meshes = {}
    for w in session.weights:
        if w.is_sharded:
            mesh = w.parameter.device_mesh
            meshes[tuple(sorted(mesh.mesh.flatten().tolist()))] = mesh
    ranks = max(meshes, key=len)
    if any(not set(other) <= set(ranks) for other in meshes):
        raise StateError("the model: expected one mesh that contains the meshes of all fully_shard calls, "
                         f"found ranks {' and '.join(map(str, sorted(meshes)[:2]))}; name the ranks that "
                         "train together in octavo.prepare(group=)")
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD
    mesh = meshes[ranks]
    if mesh.ndim == 1:
        return mesh.get_group()
    # Without a timeout of its own it would wait for half an hour, whatever the program chose.
    return dist.new_group(list(ranks), use_local_synchronization=True,
                          timeout=deadline_of(mesh.get_group(0), session.device))


def own_group(group, device):
    """A group of the same ranks whose collectives wait for no other ones, as those that DDP's reducer and its hooks start, on
    each rank at another time. A collective."""
    # Without a timeout of its own it would wait for half an hour, whatever the program chose.
    return dist.new_group(dist.get_process_group_ranks(group), use_local_synchronization=True,
                          backend=dist.get_backend_config(group), timeout=deadline_of(group, device))


def _found_group(session):
    if session.is_sharded:
        return _of_meshes(session)
    mesh, wrapper = tensor_parallel.mesh_of(session), wrapper_of(session)
    if mesh is None:
        return None if wrapper is None else wrapper.process_group
    return mesh.get_group() if wrapper is None else _of_both(mesh.get_group(), wrapper.process_group, session.device)


def _of_both(shares, replicas, device):
    """The ranks that share weights and the replicas of each: all that train together. A collective on them."""
    found = [None] * dist.get_world_size(replicas)
    dist.all_gather_object(found, dist.get_process_group_ranks(shares), group=replicas)
    ranks = sorted(set().union(*found))
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD
    return dist.new_group(ranks, use_local_synchronization=True, timeout=deadline_of(shares, device))


def group_of(session):
    """The process group of a session; None if it does not communicate."""
    if session.is_silent or not is_initialized():
        return None
    if session.group is None:
        session.group = _found_group(session)
        if session.group is None:
            return None
    return session.group if dist.get_world_size(session.group) > 1 else None


# What ranks need before they communicate: a backend for the device of the model, and with NCCL a GPU
# for each.
#
# NCCL compares GPUs itself, in the first collective, which is often the one by which
# DistributedDataParallel begins; its message names neither the ranks nor what to do. So a rank claims
# its GPU in the store of the group as soon as it prepares a model. A claim waits for no other rank.

_claims = weakref.WeakKeyDictionary()  # group -> the key of the GPU that this rank claimed last


def check_gpus(session, group=None):
    """Raises UnsupportedError unless the group, by default of all ranks, can carry tensors of the session's device, and
    DeviceError if another rank of it has claimed the same GPU for NCCL. Does nothing on the CPU, or without another rank."""
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


# Whether the ranks of a group train the same thing: compared once, before they communicate.

# What each number of a digest stands for, with the remedy.
_PARTS = (("the version of octavo", "install the same version everywhere"),
          ("the backend or its plugin file", "install the same plugin everywhere"),
          ("the options of the backend", "use one octavo.toml"),
          ("shard_optimizer_state of octavo.prepare", "give it on every rank, or on none"),
          ("the layers (names)", "build the same model on every rank"),
          ("the layers (shapes and dtypes)", "build the same model on every rank"),
          ("the weights in slots", "use the same seed on every rank before creating the model, or "
           "call octavo.torch.ddp.join(model) after wrapping it"))


def _number(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def _values(session):
    """A checksum of the slots that must be equal on every rank before the first step. Of a sharded optimizer
    state, each rank has separate slots."""
    own = set() if session.owners is None else session.owners.whole
    value = 0
    for slot, tensor in zip(session.slots, session.tensors):
        is_here = tensor is not None and tensor.numel() and not is_released(tensor)
        if is_here and slot.flags & _abi.SLOT_CHECKPOINT and slot.id not in own:
            value = zlib.crc32(tensor.cpu().contiguous().view(torch.uint8).numpy(), value)
    return value


def _in_fp8(session):
    return [(name, w) for name, w in session.linears if session.verdicts[name].accepted]


def digest_of(session, with_values):
    """One int64 for each of _PARTS."""
    options = [sorted((k, repr(v)) for k, v in session.run.options().items()), sorted(session.run.layer_options().items())]
    shapes = sorted((name, *w.shape, str(w.parameter.dtype)) for name, w in _in_fp8(session))
    names = [name for name, *_ in shapes]
    return [_number(version()), _number(session.run.identity()), _number(repr(options)),
            int(session.owners is not None), _number(repr(names)), _number(repr(shapes)), _values(session) if with_values else 0]


def compare_ranks(session, group, with_values=True):
    """Raises StateError on every rank of the group unless all digests are equal, and before that what
    check_gpus raises: this is the first collective of a session."""
    check_gpus(session, group)
    mine = torch.tensor([len(_in_fp8(session)), *digest_of(session, with_values)], device=session.device)
    world = dist.get_world_size(group)
    every = [torch.empty_like(mine) for _ in range(world)]
    collective(session, "all_gather of checksums of the model", dist.all_gather, every, mine, group=group)
    for rank, other in enumerate(every):
        for i, (what, remedy) in enumerate(_PARTS):
            if other[1 + i] != every[0][1 + i]:
                raise StateError(
                    f"the ranks: expected {what} of rank 0 on every rank, found others on rank {rank} "
                    f"({int(every[0][0])} and {int(other[0])} FP8 layers); {remedy}")

"""Which ranks a session communicates with.

It is one group: that of octavo.prepare(group=), of the mesh that fully_shard uses, or of the
DistributedDataParallel around the model.
Without either, and with fp8.te.reduce_amax = false, a session does not communicate.
"""
import weakref

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import StateError
from . import ops, tensor_parallel
from .collective import deadline_of
from .foreign import is_a
from .prepared import holder_of, modules_alive


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
    """The first of these modules that is one, and contains a model; None if there is none."""
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
    if found is not None or session.is_sharded or session.steppers:  # these are in none
        return found
    count = ops.calls(session.number, _abi.VERB_END_STEP)
    if count < session.search_at:
        return None
    session.search_at = 2 * count or 1
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
    """The process group of all ranks that train a sharded model together: those of its mesh. With
    meshes inside of a larger one, as for experts, the largest. Raises StateError for meshes that
    overlap in another way."""
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
    """A group of the same ranks whose collectives wait for no other ones, as those of DDP's reducer and of its hooks are,
    which each rank may begin in between at another time. A collective."""
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
    """The ranks that share weights and the replicas of each: all that train together. A collective of theirs."""
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

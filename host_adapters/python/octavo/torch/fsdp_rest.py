"""fully_shard of what a backend leaves in the model: with msamp, the weights of linears stay in slots, whose optimizer
state is on one rank each, and FSDP shards the rest (embeddings, norms, biases), which torch's own optimizer steps.
"""
import torch.distributed as dist

from ..errors import UnsupportedError
from .caches import release_slots
from .foreign import is_dtensor, is_fsdp_shard
from .prepared import session_of


def kept_parameters(model):
    """The parameters of a prepared model whose values the backend keeps in slots, as a set: fully_shard takes it as
    ignored_params. Empty for te, which leaves all weights in the model. Raises StateError for a model that was not
    prepared.

        octavo.prepare(model, overrides={"fp8.backend": "msamp"}, shard_optimizer_state=True)
        fully_shard(model, ignored_params=octavo.kept_parameters(model))
        optimizer = octavo.join(model, torch.optim.AdamW(model.parameters()))
    """
    return set(session_of(model).owned_parameters())


def adopt(session, model, optimizer):
    """Before the backend's Adam takes an optimizer: whether fully_shard has the rest of the model, whose slots are then
    let go. Raises UnsupportedError for what cannot be averaged over the ranks of the session."""
    shards = [(n, p) for n, p in model.named_parameters() if is_dtensor(p)]
    if not shards or session.owners is None:
        return False  # fsdp.check_rest has the words
    kept, owners = {id(p) for p in session.owned_parameters()}, session.owners
    ranks = dist.get_process_group_ranks(owners.group)
    for name, p in model.named_parameters():
        if id(p) in kept or not p.requires_grad and not is_dtensor(p):
            continue
        if not is_dtensor(p):
            raise UnsupportedError(
                f"{name}: expected a parameter that fully_shard shards, since its gradient is in no slot and nobody else "
                "averages it, found a plain one; call fully_shard(model, ignored_params=octavo.kept_parameters(model)) "
                "for the model itself, too")
        found = p.device_mesh.mesh.flatten().tolist()
        if not is_fsdp_shard(p) or p.device_mesh.ndim != 1 or found != ranks:
            raise UnsupportedError(
                f"{name}: expected shards of fully_shard on a mesh of one dimension with ranks {ranks}, which share the "
                f"optimizer state out, found placements {tuple(p.placements)} on ranks {found} of {p.device_mesh.ndim} "
                "dimensions; give both the same ranks, by octavo.prepare(group=) or fully_shard(mesh=)")
    session.let_go()
    gone = {w.id for w in session.weights if w.parameter is None}
    release_slots(session, [s for s in session.slots if owners.lets_go(s, gone)])
    owners.let_go(session, gone)
    return True


class Rest:
    """The optimizer of what fully_shard has, as a part of the backend's Adam, which has its groups and its state."""

    def __init__(self, source):
        groups = [{**g, "params": [p for p in g["params"] if is_dtensor(p)]} for g in source.param_groups]
        self._inner = type(source)(groups)
        self._inner.octavo_is_part = True  # its steps are those of the whole: see steps

    def step(self, whole):
        self._inner.state = whole.state
        for own, group in zip(self._inner.param_groups, whole.param_groups):
            own.update((k, v) for k, v in group.items() if k != "params")
        found_inf = getattr(whole, "found_inf", None)
        if found_inf is None or not bool(found_inf):
            self._inner.step()

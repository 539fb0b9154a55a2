"""Optimizer state on one rank each: octavo.prepare(shard_optimizer_state=True)."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import InvalidError, StateError, UnsupportedError
from ...stages import ALL_GATHER, NONE
from ..models import is_prepared, session_of
from ..slots import hold_slots, is_released, release_slots
from ..weights.parameter import SlotParameter
from .groups import collective


# Gradients whose mean is on one rank: with octavo.prepare(shard_optimizer_state=True) the owner of a parameter alone
# steps it, so the last exchange of octavo.gradients/1 goes to it alone.
#
# The other ranks keep in the slot what they added themselves, which is no gradient of the training: a read of it is an
# error. They get its sum of squares, so every rank finds the norms and the factor of clipping that it would find without.


class OwnedGradients:
    """Part of owners.Owners, whose `owner` it is given: {parameter: its rank}."""

    def __init__(self, session, owner, rank):
        self.owner, self.rank = owner, rank
        self.squares = {}  # the parameters whose mean their owners alone have: the sum of its squares, float32 [1]
        self._slots, others = {}, set()
        for s in session.slots:
            if s.owner_kind == _abi.OWNER_PARAMETER and s.role == _abi.ROLE_GRADIENT and s.owner in owner:
                scale = [] if s.scale_slot == _abi.NONE else [s.scale_slot]
                self._slots.setdefault(s.owner, []).extend([s.id, *scale])
        kept = {i for ids in self._slots.values() for i in ids}
        for s in session.slots:
            writes = s.access[_abi.VERB_REDUCE] in (_abi.ACCESS_WRITE, _abi.ACCESS_UPDATE)
            if writes and s.owner_kind == _abi.OWNER_PARAMETER and s.id not in kept:
                others.add(s.owner)  # a reduction writes more than the gradient, and every rank needs that
        self._roots = {i: r for i, r in owner.items() if i in self._slots and i not in others}
        self._counts = [s.id for s in session.slots if s.access[_abi.VERB_REDUCE] == _abi.ACCESS_ACCUMULATE
                        and s.combine == _abi.COMBINE_SUM]

    def copied(self, owner):
        copy = object.__new__(OwnedGradients)
        copy.__dict__.update(self.__dict__, owner=owner, squares=dict(self.squares))
        return copy

    # Reducing --------------------------------------------------------------------------------------

    def root(self, weight):
        """The only rank that gets the mean of a Weight's gradient; None: all of them do."""
        return self._roots.get(weight.id)

    @staticmethod
    def ends_at_root(stages):
        """Whether a plan ends in an exchange that gives every rank the same, and a stage that stores it."""
        return len(stages) > 1 and stages[-1].collective == NONE and stages[-2].collective == ALL_GATHER

    def run_last(self, session, world, run):
        """The last stage, which without an owner all ranks run alike, runs here for all: what it counts, counts
        for each."""
        counts = [session.tensors[i] for i in self._counts]
        before = [t.clone() for t in counts]
        run()
        for t, old in zip(counts, before):
            t.add_(t - old, alpha=world - 1)

    def note(self, session, weights, group):
        """The means of these Weights are with their owners now: tells all ranks the sums of squares."""
        if not weights:
            return
        sums = torch.zeros(len(weights), dtype=torch.float32, device=session.device)
        for i, w in enumerate(weights):
            if self.owner[w.id] == self.rank:
                sums[i] = session.sum_of_squares([w])[0]
        collective(session, "all_reduce of norms of gradients", dist.all_reduce, sums, group=group)
        self.squares.update((w.id, sums[i:i + 1]) for i, w in enumerate(weights))

    # What a gradient is, afterwards ------------------------------------------------------------------

    def is_elsewhere(self, weight):
        """Whether only another rank has the gradient of this Weight."""
        return weight.id in self.squares and self.owner[weight.id] != self.rank

    def is_anew(self, weight):
        """Its slot is cleared or overwritten."""
        self.squares.pop(weight.id, None)

    def expect_anew(self, weight):
        """Raises StateError, on every rank, where a backward would add to a mean that one rank has."""
        if weight.id in self.squares:
            raise StateError(
                f"{weight.name}: expected a gradient that zero_grad has dropped, since its mean is only on rank "
                f"{self.owner[weight.id]} (shard_optimizer_state), found one that a backward would add to; call "
                "zero_grad after each step, and accumulate inside of no_sync() of DistributedDataParallel, or enter "
                "octavo.full_state(model) once before the backward")

    def sum_of_squares(self, weight):
        """float32 [1], or None where the slot itself has it."""
        return self.squares.get(weight.id)

    def parts(self, session, weights, world):
        """For each rank, the tensors with the gradients that only it has, of these Weights or (None) of all."""
        parts, ids = [[] for _ in range(world)], self.squares if weights is None else [w.id for w in weights]
        for i in sorted(ids):
            if i in self.squares:
                parts[self.owner[i]] += [session.tensors[s] for s in self._slots[i]]
        return parts


# A slot with OCTAVO_SHARD_WHOLE (octavo/slots.h) has memory on the owner of its parameter alone. Which rank
# that is, liboctavo says. The owner gets the mean of the gradient (OwnedGradients), steps the parameter, and
# then publishes what its step wrote to other slots and to torch's own weight.

CHUNK = 25 << 20  # bytes of each rank that travel together


def group_for(shard, group):
    """The process group that shares the states out, None if nobody asked for it. group: of octavo.prepare.
    Raises StateError without torch.distributed, and InvalidError for a group of other ranks."""
    if not shard:
        return None
    if not (dist.is_available() and dist.is_initialized()):
        raise StateError("shard_optimizer_state: expected ranks that share the states out, found no process group; call "
                         "torch.distributed.init_process_group before octavo.prepare, or leave it out")
    found = group if group is not None else dist.group.WORLD
    if dist.get_rank(found) < 0:
        raise InvalidError(f"group: expected one that has this process, rank {dist.get_rank()}, found ranks "
                           f"{dist.get_process_group_ranks(found)}; call octavo.prepare only on these")
    return found


class Owners:
    """The rank that holds the WHOLE slots of each parameter of a session. Raises UnsupportedError for a backend
    without such slots."""

    def __init__(self, session, group, is_named):
        self.whole = {s.id for s in session.slots if s.shard == _abi.SHARD_WHOLE}
        if not self.whole or not session.run.has("optimizer"):
            raise UnsupportedError(
                "shard_optimizer_state: expected a backend that keeps optimizer states in slots, found "
                f"{session.run.backend or session.run.precision}, where they are torch's; leave it out and shard "
                'with fully_shard or ZeroRedundancyOptimizer, or set fp8.backend = "msamp"')
        self.group = group
        self.is_named = is_named  # by the user or fully_shard: else it must be that of DistributedDataParallel
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        owners = session.run.owners(self.rank, self.world)
        self.owner = {s.owner: owners[s.owner] for s in session.slots if s.id in self.whole}
        self.gradients = OwnedGradients(session, self.owner, self.rank)
        self._ids = {}  # (parameter, role): its WHOLE slots
        for s in session.slots:
            if s.id in self.whole:
                self._ids.setdefault((s.owner, s.role), []).append(s.id)
        self.is_gathering = False  # inside of octavo.full_state

    def __deepcopy__(self, memo):
        copied = object.__new__(Owners)
        copied.__dict__.update(self.__dict__, is_gathering=False, gradients=self.gradients.copied(self.owner))
        return copied

    def __reduce__(self):
        raise StateError("a model whose optimizer state is sharded: expected octavo.full_state(model) around code that "
                         "pickles it, found none; enter it on every rank, or save octavo.state_dict of each rank")

    def keeps(self, slot):
        """Whether this rank has a slot."""
        return slot.id not in self.whole or self.owner[slot.owner] == self.rank

    def steps(self, weight):
        """Whether this rank steps a Weight. One without WHOLE slots is stepped on every rank."""
        return self.owner.get(weight.id, self.rank) == self.rank

    def lets_go(self, slot, parameters):
        """Whether a slot is one of the optimizer state of these parameters (ids)."""
        return slot.id in self.whole and slot.owner in parameters

    def let_go(self, session, parameters):
        """fully_shard has these parameters (ids) and averages what is in no slot, over the same ranks."""
        self.whole -= {s.id for s in session.slots if self.lets_go(s, parameters)}
        self._ids = {key: ids for key, ids in self._ids.items() if key[0] not in parameters}
        for i in parameters:
            self.owner.pop(i, None)
        self.is_named = True

    def share(self):
        """Its part of octavo.report."""
        mine = sum(owner == self.rank for owner in self.owner.values())
        return {"rank": self.rank, "ranks": self.world, "parameters": mine, "of": len(self.owner)}

    def publish(self, session, weights):
        """Sends what steps of these Weights wrote from their owners to all ranks. The same Weights on every
        rank, whether or not this step had gradients for them."""
        weights, parts = {w.id: w for w in weights}, [[] for _ in range(self.world)]
        for s in session.slots:
            if self._is_published(s) and s.owner in weights:
                tensor = session.tensors[s.id]
                parts[self.owner[s.owner]].append(
                    session.native(weights[s.owner], s.role) if tensor is None else tensor)
        exchange(session, "exchange of stepped weights", self.group, parts)

    def _is_published(self, slot):
        return (slot.owner_kind == _abi.OWNER_PARAMETER and slot.owner in self.owner and slot.id not in self.whole
                and slot.access[_abi.VERB_OPTIMIZER_STEP] in (_abi.ACCESS_WRITE, _abi.ACCESS_UPDATE))

    def fill(self, session, to):
        """Gives WHOLE slots memory and values on one rank of the group, or on every one (None), and all ranks the
        gradients that one of them has."""
        parts = self.gradients.parts(session, None, self.world)
        for slot in session.slots:
            if slot.id in self.whole:
                parts[self.owner[slot.owner]].append(session.tensors[slot.id])
        if to in (None, self.rank):
            hold_slots(session, [s for s in session.slots if s.id in self.whole])
        exchange(session, "octavo.full_state", self.group, parts)
        self.gradients.squares.clear()

    def spread(self, session, weights):
        """Gives all ranks those gradients of these Weights that one of them has. The same Weights on every rank."""
        if any(w.id in self.gradients.squares for w in weights):
            exchange(session, "exchange of gradients", self.group, self.gradients.parts(session, weights, self.world))
            for w in weights:
                self.gradients.is_anew(w)

    def release(self, session):
        """Frees what other ranks own."""
        release_slots(session, [s for s in session.slots if not self.keeps(s)])

    def missing(self, session, weights, role):
        """The first of these Weights whose slot of a role this rank does not hold; None if it holds all."""
        if role == _abi.ROLE_GRADIENT:
            return next((w for w in weights if self.gradients.is_elsewhere(w)), None)
        return next((w for w in weights for i in self._ids.get((w.id, role), ()) if is_released(session.tensors[i])), None)

    def label(self):
        return f"rank {self.rank} of {self.world}"

    def has_role(self, weights, role):
        """Whether a role of these Weights is only on their owners."""
        return any((w.id, role) in self._ids for w in weights)

    def holds_all(self, session):
        """Whether this rank has every slot, as inside of octavo.full_state."""
        return not any(is_released(session.tensors[i]) for i in self.whole)

    def check_step(self):
        if self.is_gathering:
            raise StateError("optimizer: expected a step outside of octavo.full_state, found one inside of it, where "
                             "copies of the optimizer state would stay behind; leave it first")

    def check_wrapper(self, wrapper):
        """Raises StateError unless the DistributedDataParallel around the model has these ranks."""
        if wrapper is None and not self.is_named and self.world > 1:
            raise StateError(
                "shard_optimizer_state: expected DistributedDataParallel around the model, which averages the gradients "
                "that are not in slots, found none; wrap the model, or average them yourself and name the ranks in "
                "octavo.prepare(group=)")
        if wrapper is not None:
            self.check_group(wrapper.process_group)

    def check_group(self, group):
        """The same for another group of the training."""
        here, found = dist.get_process_group_ranks(self.group), dist.get_process_group_ranks(group)
        if found != here:
            raise StateError(f"shard_optimizer_state: expected one group of ranks, {here}, which share the states out, "
                             f"found gradients averaged over ranks {found}; name the latter in octavo.prepare(group=)")


def exchange(session, what, group, parts):
    """Every rank gets what each rank has. parts: for each rank of the group its tensors, equal in number and
    size on every rank; here they are filled, but for those without memory. Collectives of whole chunks; where
    few ranks have more than the others, only these send."""
    rank, world = dist.get_rank(group), len(parts)
    sizes = [sum(t.numel() * t.element_size() for t in own) for own in parts]
    for first in range(0, max(sizes) if world > 1 else 0, CHUNK):
        senders = [r for r in range(world) if sizes[r] > first]
        width = min(CHUNK, max(sizes) - first)
        sent = torch.empty(width, dtype=torch.uint8, device=session.device)
        for piece, place in _pieces(parts[rank], first, width):
            sent[place].copy_(piece)
        if 2 * len(senders) > world:
            received = torch.empty(world, width, dtype=torch.uint8, device=session.device)
            collective(session, what, dist.all_gather_into_tensor, received.view(-1), sent, group=group)
        else:
            received = {r: sent if r == rank else torch.empty_like(sent) for r in senders}
            for r in senders:
                collective(session, what, dist.broadcast, received[r], dist.get_global_rank(group, r), group=group)
        for r in senders:
            if r != rank:
                for piece, place in _pieces(parts[r], first, width):
                    piece.copy_(received[r][place])


def _pieces(tensors, first, width):
    """[(bytes of a tensor, their place in a chunk)] of the bytes from `first` of all these tensors, one after
    the other. Those without memory are left out."""
    found, at = [], 0
    for t in tensors:
        size = t.numel() * t.element_size()
        begin, end = max(first, at), min(first + width, at + size)
        if begin < end and not is_released(t):
            flat = t.view(-1).view(torch.uint8)
            found.append((flat[begin - at:end - at], slice(begin - first, end - first)))
        at += size
    return found


# The whole state of a model whose optimizer state is sharded, and the part of it that a rank holds.


@contextlib.contextmanager
def full_state(model: torch.nn.Module, to: int | None = None) -> Iterator[torch.nn.Module]:
    """Inside, every rank holds the whole optimizer state: what a model without shard_optimizer_state can do works.

    That is model.state_dict(), octavo.state_dict, copy.deepcopy, torch.save(model) and octavo.restore. Steps do not. Changes of
    weights have to be the same on every rank, so with `to` there may be none. A collective: enter it on every rank, between
    steps. Values that were read inside are copies afterwards. Does nothing for a model whose optimizer state is not sharded.

    Args:
        model: A prepared model.
        to: The only rank of the group that gets the state; None: every rank.

    Raises:
        DeviceError: A rank does not answer within the timeout of the group.

    Example:
        >>> with octavo.full_state(model):
        ...     torch.save(model.state_dict(), path)
    """
    session = session_of(model)
    owners = session.owners
    if owners is None or owners.is_gathering:
        yield model
        return
    if to is not None and to not in range(owners.world):
        raise InvalidError(f"to: expected a rank of the group, 0 to {owners.world - 1}, or None, found {to!r}")
    session.settle_all()
    owners.is_gathering = True
    try:
        owners.fill(session, to)
        yield model
    finally:
        owners.is_gathering = False
        if not session.is_closed:
            session.settle_all()
            owners.release(session)
            for p in session.owned_parameters():  # also on their owners, for copies that are alike on every rank
                if p.octavo_copy.is_real(p) and session.shares_master(p):
                    p.octavo_copy.drop(p)


def expect_whole(model, where, why):
    """Raises UnsupportedError for a prepared model whose optimizer state is sharded. where, why: of the error."""
    if is_prepared(model) and session_of(model).owners is not None:
        raise UnsupportedError(
            f"{where}: expected optimizer state that is whole on every rank, since {why}, found a model of "
            "octavo.prepare(shard_optimizer_state=True); leave it out, or train with octavo.accelerate.Accelerator or "
            "your own loop")


def sharded_state_dict(model: torch.nn.Module) -> dict[str, Any]:
    """The entries of model.state_dict() whose values this rank holds, each by its name: all of them, but for weights whose master
    another rank holds. No collective.

    With torch.distributed.checkpoint, which looks for an entry on every rank, it saves each weight once. dcp.load fills it.
    model.load_state_dict(..., strict=False) takes it, and Stateful the rest.

    Args:
        model: A prepared model.

    Returns:
        {name: tensor}.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> dcp.save({"model": octavo.sharded_state_dict(model), "octavo": octavo.Stateful(model)}, checkpoint_id=path)
    """
    session = session_of(model)
    session.settle_all()
    return {name: value.detach() if isinstance(value, torch.Tensor) else value
            for name, value in model.state_dict(keep_vars=True).items()
            if not isinstance(value, SlotParameter) or session.can_read(value)}

"""Gradients whose mean is on one rank: with octavo.prepare(shard_optimizer_state=True) the owner of a parameter alone
steps it, so the last exchange of octavo.gradients/1 goes to it alone.

The other ranks keep in the slot what they added themselves, which is no gradient of the training: a read of it is an
error. They get its sum of squares, so every rank finds the norms and the factor of clipping that it would find without.
"""
import torch
import torch.distributed as dist

from .. import _abi
from ..errors import StateError
from ..stages import ALL_GATHER, NONE
from .collective import collective


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
        """The rank that alone gets the mean of a Weight's gradient; None: all of them do."""
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
        """Whether another rank alone has the gradient of this Weight."""
        return weight.id in self.squares and self.owner[weight.id] != self.rank

    def is_anew(self, weight):
        """Its slot is cleared or overwritten."""
        self.squares.pop(weight.id, None)

    def expect_anew(self, weight):
        """Raises StateError, on every rank, where a backward would add to a mean that one rank has."""
        if weight.id in self.squares:
            raise StateError(
                f"{weight.name}: expected a gradient that zero_grad has dropped, since its mean is on rank "
                f"{self.owner[weight.id]} alone (shard_optimizer_state), found one that a backward would add to; call "
                "zero_grad after each step, and accumulate inside of no_sync() of DistributedDataParallel, or enter "
                "octavo.full_state(model) once before the backward")

    def sum_of_squares(self, weight):
        """float32 [1], or None where the slot itself says it."""
        return self.squares.get(weight.id)

    def parts(self, session, weights, world):
        """For each rank, the tensors with the gradients that it alone has, of these Weights or (None) of all."""
        parts, ids = [[] for _ in range(world)], self.squares if weights is None else [w.id for w in weights]
        for i in sorted(ids):
            if i in self.squares:
                parts[self.owner[i]] += [session.tensors[s] for s in self._slots[i]]
        return parts

"""Parameters and gradients that a session keeps in slots: reading, writing, stepping."""
import torch

from ... import _abi
from ...errors import InvalidError, StateError
from .. import ops
from ..models import local
from ..ranks import fsdp
from ..slots import BACKWARD, CODES, FORWARD, HOST, MOVED, REPLAYS, TO_END, is_released
from . import parameter
from .gradient import SlotGradient, absorb, apply_factor, is_plain

_MOMENTS = {_abi.ROLE_EXP_AVG, _abi.ROLE_EXP_AVG_SQ, _abi.ROLE_COUNTER}


class Stored:
    """The part of Session that moves values between slots and torch's tensors."""

    # Weights in slots ------------------------------------------------------------------------------

    def weights_of(self, parameter):
        """The Weights of a torch parameter; [] for an unknown one."""
        return self._by_parameter.get(id(parameter), [])

    def of_linears(self):
        """The Weights of each torch parameter that linears multiply by: [[Weight]]."""
        found = {id(site.weight.parameter): site.weight.parameter for site in self.sites.values()}
        return [self.weights_of(p) for p in found.values()]

    def let_go(self):
        """Of parameters that no linear multiplies by, when fully_shard replaces them all."""
        kept = {id(weights[0].parameter) for weights in self.of_linears()}
        for w in self._candidates:
            if id(w.parameter) not in kept:
                self._by_parameter.pop(id(w.parameter), None)
                w.parameter = w.value = None

    def has_any(self, parameters):
        """Whether one of these torch parameters belongs to this session. Raises StateError for one
        that fully_shard has replaced."""
        if self.is_sharded:
            fsdp.before_step(self, parameters)
        return any(id(p) in self._by_parameter for p in parameters)

    def owned_parameters(self):
        """The torch parameters whose values the backend keeps in slots."""
        return [ws[0].parameter for ws in self._by_parameter.values() if not ws[0].is_native]

    def replace(self, weight, new):
        """Uses another torch parameter instead of a weight's."""
        ws = self._by_parameter.pop(id(weight.parameter), [weight])
        for w in ws:
            w.parameter, w.value = new, new if w.parallel is None else local(new)
        self._by_parameter[id(new)] = ws

    def trains(self, p):
        """The linears of a weight in slots follow requires_grad of its parameter."""
        for site in self.sites.values():
            if site.weight.parameter is p:
                site.anchor.requires_grad_(p.requires_grad)

    @torch.no_grad()
    def read(self, p, role=_abi.ROLE_MASTER_WEIGHT):
        """The plain values of a role (_abi.ROLE_...), in the shape and dtype of the parameter. A
        weight without a master is its own. Raises StateError for values that another rank holds."""
        if not self.can_read(p, role):
            missing = self.owners.missing(self, self.weights_of(p), role)
            raise StateError(
                f"{missing.name}: expected a read on rank {self.owners.owner[missing.id]}, which holds these values since "
                f"the optimizer state is sharded, found one on rank {self.owners.rank}; read it inside of "
                "octavo.full_state(model), which every rank enters, or "
                + ("take its norm, which every rank has" if role == _abi.ROLE_GRADIENT
                   else "save octavo.sharded_state_dict(model)"))
        out = torch.empty(p.shape, dtype=p.dtype, device=p.device)
        for w in self.weights_of(p):
            plain = torch.empty(w.shape, dtype=p.dtype, device=p.device)
            ops.run("read_parameter", self.number, w.id, role, plain)
            w.of(out).copy_(plain)
        return out

    @torch.no_grad()
    def write(self, p, values, role=_abi.ROLE_WEIGHT):
        """Writes plain values, in the shape of the parameter, to the slots of a role. The backend
        chooses the scales."""
        for w in self.weights_of(p):
            plain = w.of(values.detach().to(p.dtype)).contiguous()
            ops.run("write_parameter", self.number, w.id, role, plain)

    def can_read(self, p, role=_abi.ROLE_MASTER_WEIGHT):
        """Whether this rank holds the values of a role."""
        return self.owners is None or self.owners.missing(self, self.weights_of(p), role) is None

    def shares_master(self, p):
        """Whether only one rank holds its master weight."""
        return self.owners is not None and self.owners.has_role(self.weights_of(p), _abi.ROLE_MASTER_WEIGHT)

    @torch.no_grad()
    def settle(self, p):
        """Writes to the slots what other code wrote to the parameter."""
        if isinstance(p, parameter.SlotParameter):
            p.octavo_copy.settle(p)

    @torch.no_grad()
    def before_forward(self, weight):
        """A forward is about to multiply by a weight whose flag HOST is set."""
        p = weight.parameter
        self.flags.clear(weight.id, HOST)
        try:
            self.settle(p)
            apply_factor(p)
        except BaseException:
            self.flags.set(weight.id, HOST)
            raise
        if isinstance(p, parameter.SlotParameter) and p.octavo_copy.is_real(p):
            self.flags.set(weight.id, HOST)

    def settle_all(self):
        for p in self.owned_parameters():
            self.settle(p)

    # Gradients in slots ----------------------------------------------------------------------------

    def clear_gradient(self, weight):
        self.gradient_slots[weight.id].zero_()
        self.gradient_is_anew(weight)

    def gradient_is_anew(self, weight):
        """Its slot has another content than the last reduction left."""
        if self.owners is not None:
            self.owners.gradients.is_anew(weight)

    def shares_gradient(self, weights):
        """Whether only one rank has the gradient of one of these Weights."""
        return self.owners is not None and any(w.id in self.owners.gradients.squares for w in weights)

    def has_graph_gradient(self, weight):
        """Whether a compiled graph has added to the gradient slot since it was cleared, or may have,
        in a replay of a CUDA graph. The op records this, because a traced graph must not write to
        objects that outlive it."""
        return bool(self.flags.gradients[weight.id])

    def graph_gradient(self, p):
        """The gradient that compiled graphs added to the slots of a parameter, or None."""
        found = [w for w in self.weights_of(p) if self.has_graph_gradient(w)]
        if not found:
            return None
        gradient = SlotGradient(self, self.weights_of(p))
        gradient.begun.update(w.id for w in found)
        return gradient

    def drop_graph_gradient(self, p):
        """Clears what compiled graphs added to the slots of a parameter."""
        for w in self.weights_of(p):
            if self.has_graph_gradient(w):
                self.clear_gradient(w)
                self.flags.gradients[w.id] &= REPLAYS

    def absorb_gradients(self):
        """Moves gradients that torch's own use of weights gave to the slots. Returns the Weights
        that have one."""
        found = []
        for p in self.owned_parameters():
            if is_plain(p):
                absorb(self, p)
                found += self.weights_of(p)
        return found

    def gradient_sum(self, weights):
        """The sum of squares of the gradients of these weights, float32 [1], also where other ranks have them."""
        if not self.shares_gradient(weights):
            return self.sum_of_squares(weights)
        total = torch.zeros(1, dtype=torch.float32, device=self.device)
        for w in weights:  # one after the other, as the backend adds them
            found = self.owners.gradients.sum_of_squares(w)
            total = total + (self.sum_of_squares([w]) if found is None else found)
        return total

    def sum_of_squares(self, weights):
        """The same for the slots of this rank."""
        out = torch.zeros(1, dtype=torch.float32, device=self.device)
        ops.run("sum_of_squares", self.number, [w.id for w in weights], out,
                *self._natives(weights))
        return out

    def optimizer_step(self, ids, hyper, skip=None, among=()):
        """One step of octavo.optimizer/2 for these parameters, which this rank steps. hyper: float32
        [len(ids), 8], see octavo/draft/optimizer.h; skip: float32 [1] or None, not 0: nothing changes.
        among: the Weights that all ranks step together, with shard_optimizer_state."""
        self.settle_all()  # what was written since the forward counts
        weights = [self.weights[i] for i in ids]
        for w in among if self.owners is not None else weights:  # also where the rest of this is interrupted
            self.flags.set(w.id, CODES | MOVED)
            if not w.is_native:
                w.parameter.octavo_copy.is_behind = True
        if ids:
            ops.run("optimizer_step", self.number, ids, list(range(len(ids))), hyper, skip,
                    *self._natives(weights))
        if self.owners is not None:
            self.owners.publish(self, among)
            weights = among
        for w in weights:
            torch.autograd.graph.increment_version(w.parameter)
            self.flags.set(w.id, CODES)
            if not w.is_native:
                w.parameter.octavo_copy.follow(w.parameter)

    def clear_moments(self, parameters):
        """Starts the moments of these torch parameters anew, for another optimizer."""
        ids = {w.id for p in parameters for w in self.weights_of(p)}
        slots = [s for s in self.slots if s.owner_kind == _abi.OWNER_PARAMETER and s.owner in ids]
        names = {(s.owner, s.name) for s in slots if s.role in _MOMENTS}
        for s in slots:
            # A moment's scale has its name with a suffix.
            named = any(o == s.owner and (s.name == n or s.name.startswith(n + "/")) for o, n in names)
            if named and not is_released(self.tensors[s.id]):
                self.tensors[s.id].fill_(s.initial)

    def _natives(self, weights):
        """(weights, gradients): torch's own tensors that a step of these Weights takes."""
        found = []
        for role in (_abi.ROLE_WEIGHT, _abi.ROLE_GRADIENT):
            found.append([self.native(w, role) for w in weights if (w.id, role) in self._stepped])
        return found

    @staticmethod
    def native(w, role):
        """Torch's own tensor, as a step of this Weight takes it."""
        if role == _abi.ROLE_GRADIENT:
            return w.of(w.parameter.grad).contiguous()
        own = w.of(w.parameter.detach())
        if not own.is_contiguous():
            raise InvalidError(f"{w.name}: expected row-major memory, found strides "
                               f"{w.parameter.stride()}; call contiguous() on it before "
                               "octavo.prepare")
        return own

    def codes_are_stale(self, why=CODES):
        """The next forward of each weight quantizes it."""
        for w in self.weights:
            self.flags.set(w.id, why)
        if self.gather is not None:
            self.gather.stale()

    def slots_changed(self):
        """After something wrote the slots themselves: torch's copies and the codes follow, and calls before it, such as an
        interrupted step, do not count."""
        self.codes_are_stale()
        since = self.flags.since
        since[FORWARD] = since[BACKWARD] = since[TO_END] = 0
        self.step_state.end()
        for p in self.owned_parameters():
            p.octavo_copy.follow(p)

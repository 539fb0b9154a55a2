"""The FP8 state of a model: the open run, its slots as torch tensors, and its numbers for the ops.

A session holds every tensor that the backend described. It can be copied and pickled, as the text
of the configuration, the description of the model, and the slots. Opened in another process it is bit-identical.
"""
import weakref

import torch

from .. import _abi
from ..errors import InvalidError, StateError, UnsupportedError
from ..session_run import Run
from . import device, ops
from .device import check_cublas
from .models import local, note_closed, note_open
from .ranks import ddp
from .ranks.fsdp import Gather
from .ranks.groups import group_of
from .slots import (BACKWARD, CAPTURED, CODES, FORWARD, MOVED, REPLAYS, Flags, Site, caches_by_weight, is_cache,
                    is_released, waits_for_gather)
from .steps import StepState
from .telemetry import Watch
from .weights import parameter
from .weights.stored import Stored


class Session(Stored):
    """Opens a run for a model and allocates its slots.

    config: a Config; weights: a Weight for every parameter to describe to the backend; linears:
    [(name, Weight)]; owners_of(session): an owners.Owners or None. The model does not change. `verdicts`
    has a Verdict per linear; a declined linear has no site in `sites`. Raises OctavoError; no run is open then.
    """

    def __init__(self, config, weights, linears, owners_of=lambda session: None):
        self.config = config
        self.linears = linears
        self.left_out = {}        # linears that were never added: name -> reason
        self.functional = ()      # what octavo.prepare got, as skip
        self.skip = ()
        self._start()
        self._candidates = weights
        self._open()
        try:
            self.owners = owners_of(self)
        except BaseException:
            self.run.close()
            raise
        self.tensors = [self._allocate(slot) for slot in self.slots]
        self._bind()

    def _start(self, skipped_steps=0):
        """The state that a copy does not take over."""
        self.step_state = StepState(skipped_steps)
        self.group = None         # the process group that the user gave
        self.reduction_group = None  # a group of the same ranks for gradients in slots alone, under DDP
        self.owners = None        # owners.Owners, with shard_optimizer_state
        self.holder = None        # weak reference to the model that octavo.prepare returned
        self.wrapper = None       # weak reference to the DistributedDataParallel around it
        self.next_wrapper_search = 0  # groups.wrapper_of: the number of boundaries of its next search
        self.telemetry = None     # telemetry.Telemetry
        self.watch = None         # telemetry.Watch
        self.is_sharded = False   # by fully_shard
        self.gather = None        # ranks.fsdp.Gather, if fully_shard gathers codes
        self.has_moved_parameters = False  # parameters may have been replaced since fsdp.follow
        self.replaced_parameters = None   # the parameters that fully_shard replaced, as keys

    def _open(self):
        ops.library()
        self.device = device.device_of(self._candidates)
        self.run = device.open(self.device, self.config, lambda config, there: Run(
            config, ops.library().octavo_torch_host(), ops.take_diagnostics, there))
        try:
            device.check(self.device, self.run.device)
            check_cublas(self.run)
            self._describe()
        except BaseException:
            self.run.close()
            raise

    def _describe(self):
        self.weights, self.verdicts, accepted = [], {}, []
        for w in self._candidates:
            rows, cols = w.of(torch.empty(w.held, device="meta")).shape
            w.shape = (rows, cols)
            if w.is_frozen is None:
                w.is_frozen = not w.parameter.requires_grad
            flags = (_abi.PARAMETER_LINEAR_WEIGHT if w.is_linear else 0) | (
                _abi.PARAMETER_FROZEN if w.is_frozen else 0)
            id, verdict = self.run.add_parameter(w.name, rows, cols, ops.DTYPES[w.parameter.dtype],
                                                 flags)
            w.id = id if verdict.accepted else _abi.NONE
            w.verdict = verdict
            if verdict.accepted:
                self.weights.append(w)
        for name, w in self.linears:
            if w.id == _abi.NONE:
                self.verdicts[name] = w.verdict
                continue
            id, self.verdicts[name] = self.run.add_linear(name, w.id)
            if self.verdicts[name].accepted:
                accepted.append((id, name, w))
        self._accepted = accepted
        if self.run.backend:
            self.run.seal()
        self.slots = self.run.slots()

    def _allocate(self, slot):
        if slot.flags & _abi.SLOT_NATIVE:
            return None
        dtype = ops.TORCH_DTYPES.get(slot.dtype, torch.uint8)
        made = torch.full((slot.rows, slot.cols), slot.initial, dtype=dtype, device=self.device)
        if waits_for_gather(self, slot) or self.owners is not None and not self.owners.keeps(slot):
            made.untyped_storage().resize_(0)
        return made

    def _bind(self, gradients=b""):
        """Registers the run; the tensors exist already. gradients: the initial Flags.gradients."""
        of_parameters = _abi.OWNER_PARAMETER
        for slot in self.slots:
            if slot.role == _abi.ROLE_WEIGHT and slot.owner_kind == of_parameters:
                self.weights[slot.owner].is_native = bool(slot.flags & _abi.SLOT_NATIVE)
        self._by_parameter = {}
        for w in self.weights:
            self._by_parameter.setdefault(id(w.parameter), []).append(w)
            w.value = None if w.is_elsewhere else local(w.parameter)
        self.flags = Flags(len(self.weights), gradients)
        plans = [self.run.plan(id) for id, _, _ in self._accepted]
        self.gradient_slots = {
            s.owner: self.tensors[s.id] for s in self.slots if s.role == _abi.ROLE_GRADIENT
            and s.owner_kind == of_parameters and self.tensors[s.id] is not None}
        # Weights and gradients of torch that optimizer steps of the backend take.
        self._stepped = {(s.owner, s.role) for s in self.slots
                         if s.owner_kind == of_parameters and s.flags & _abi.SLOT_NATIVE
                         and s.access[_abi.VERB_OPTIMIZER_STEP] != _abi.ACCESS_NONE}
        callbacks = self._callbacks()
        self.number = ops.register(self.run, self.weights, [(n, w) for _, n, w in self._accepted],
                                   plans, self.tensors, self.flags, callbacks, self.device)
        self._release = weakref.finalize(self, _close, self.number, self.run, self.flags, callbacks)
        # Each keeps its session: modules keep them, so that a model that is dropped is freed without the collector.
        self.unplaced = {name: Site(self, id, name, w) for id, name, w in self._accepted}
        self.sites = weakref.WeakValueDictionary(self.unplaced)
        self.needs_own_optimizer = bool(self.gradient_slots) or any(
            not w.is_native for w in self.weights)
        self.nonfinite = next((self.tensors[s.id] for s in self.slots
                               if s.role == _abi.ROLE_NONFINITE), None)
        self.caches = caches_by_weight(self.slots)
        self.watch = Watch(self)
        self.reduced = [(s, self.tensors[s.id]) for s in self.slots
                        if s.flags & _abi.SLOT_REDUCE]
        # The user wants no communication: Inf is then a matter of the gradients, as in torch.
        self.is_silent = self.run.options().get("reduce_amax") is False
        note_open(self)

    def _callbacks(self):
        """The functions that ops call on this session: (COMBINE, SETTLE)."""
        own = weakref.ref(self)
        return (ops.COMBINE(lambda _: ops.answer(lambda: own().combine())),
                ops.SETTLE(lambda _, id: ops.answer(lambda: own().before_forward(own().weights[id]))))

    def expect_weights_in_model(self, where, needed_by, instead):
        """Raises UnsupportedError for a backend that keeps weights or gradients in slots. where: the start of the error's
        text; needed_by: the feature that cannot work then; instead: the other remedy than te."""
        if self.needs_own_optimizer:
            raise UnsupportedError(
                f"{where}: expected a backend that leaves weights in the model, as {needed_by} needs, found "
                f'{self.run.backend}; set fp8.backend = "te", or {instead}')

    def steps(self, weight):
        """Whether this rank steps a Weight: every rank, or only its owner."""
        return self.owners is None or self.owners.steps(weight)

    def holds_all(self):
        """Whether this rank has every slot."""
        return self.owners is None or self.owners.holds_all(self)

    def recipe_of(self, name):
        """The recipe of a linear, as "te/delayed"; only the backend for one without recipes."""
        options = {**self.run.options(), **self.run.layer_options().get(name, {})}
        return "/".join(filter(None, (self.run.backend, options.get("recipe") or options.get("opt_level"))))

    def linear_name(self, id):
        return self._accepted[id][1]

    # Pickling and copying ------------------------------------------------------------------------

    def __getstate__(self):
        self.settle_all()
        return {"config": self.config.frozen(), "weights": self._candidates,
                "linears": self.linears, "left_out": self.left_out, "functional": self.functional,
                "skip": self.skip,
                "owners": None if self.holds_all() else self.owners,
                # Codes that the next forward makes again depend on the kernels, also in shape and order.
                "tensors": [None if t is None or is_cache(s) or self.owners is not None and is_released(t)
                            else t for s, t in zip(self.slots, self.tensors)],
                "skipped_steps": self.skipped_steps,
                "gather": None if self.gather is None else self.gather.values,
                "gradients": bytes(g & ~REPLAYS for g in self.flags.gradients)}

    def __setstate__(self, state):
        self.config, self._candidates = state["config"], state["weights"]
        self.linears, self.left_out = state["linears"], state["left_out"]
        self.functional, self.skip = state["functional"], state["skip"]
        self._start(state["skipped_steps"])
        if state["gather"] is not None:
            self.gather = Gather(self, state["gather"])
        self._open()
        self.owners = state.get("owners")
        self.group = None if self.owners is None else self.owners.group
        self.tensors = [self._allocate(s) if t is None else t for s, t in zip(self.slots, state["tensors"])]
        mine = [None if s.flags & _abi.SLOT_NATIVE else (s.rows, s.cols) for s in self.slots]
        theirs = [None if t is None else tuple(t.shape) for t in self.tensors]
        if mine != theirs:
            raise InvalidError("the saved model: expected the slots of this version's backend "
                               f"{self.run.backend}, found others; use octavo.state_dict() to "
                               "move between versions")
        self._bind(state["gradients"])
        for p in self.owned_parameters():
            if not isinstance(p, parameter.SlotParameter):
                parameter.adopt(self, p)

    # Steps ---------------------------------------------------------------------------------------

    def refresh(self):
        """The next forward of each linear quantizes its weight."""
        self._check_open()
        self.codes_are_stale(CODES | MOVED)
        for p in self.owned_parameters():
            p.octavo_copy.is_suspect = True

    def has_run(self):
        """Whether a forward has recorded anything since the last boundary, or may have, in a replay
        of a CUDA graph."""
        since = self.flags.since
        return bool(since[FORWARD] or since[BACKWARD] or since[CAPTURED])

    def has_called(self):
        """Whether any forward has called the backend."""
        return ops.calls(self.number, _abi.VERB_FORWARD) > 0

    def is_combining(self):
        """Whether the ranks combine what casts record."""
        return bool(self.reduced) and group_of(self) is not None

    def combine(self):
        """Combines the maxima and counts of all ranks, so that they derive equal scales."""
        ddp.reduce_slots(self)

    def drop_records(self, where=None):
        """Discards what casts recorded in this step, so that end_step changes no scale. where: a bool tensor, whether to do
        it; None: always."""
        for _, tensor in self.reduced:
            tensor.zero_() if where is None else tensor.masked_fill_(where, 0)

    @property
    def skipped_steps(self):
        """How many steps met Inf or NaN and were left out. Waits for the device, if it counted."""
        return self.step_state.skipped

    def end_step(self):
        """Derives the next scales and clears the accumulators. The next forwards quantize the
        weights with them. Raises StateError after close."""
        self._check_open()
        ops.run("end_step", self.number)

    @property
    def is_closed(self):
        return self.run.handle is None

    def _check_open(self):
        if self.is_closed:
            raise StateError("this model's session is closed; call octavo.prepare on a new model")

    def close(self):
        """Frees the run; the model cannot run afterwards. Idempotent."""
        note_closed(self)
        self._release()

    def bytes_by_role(self):
        """The bytes allocated for slots: {role: bytes}."""
        out = {}
        for slot, tensor in zip(self.slots, self.tensors):
            if tensor is not None:
                out[slot.role] = out.get(slot.role, 0) + tensor.untyped_storage().nbytes()
        return out


def _close(number, run, *kept):
    """kept: what the op library has the addresses of."""
    ops.release(number)
    run.close()

"""The FP8 state of a model: the open run, its slots as torch tensors, and all slot lists.

A session holds every tensor that the backend described. It can be copied and pickled, as the text
of the configuration, the description of the model, and the slots. Opening it in another process
gives the same bits.
"""
import ctypes
import weakref

import torch

from .. import _abi
from ..errors import DeviceError, InvalidError, StateError
from ..run import Config, Run, Verdict
from . import ops
from .converted import placeholder
from .gradient import SlotGradient
from .slots import Lists, Site


class Session:
    """Opens a run for a model and allocates its slots.

    config: a Config; weights: a Weight for every parameter to describe to the backend; linears:
    [(name, Weight)]. The model does not change. `verdicts` has a Verdict per linear; a declined
    linear has no site in `sites`. Raises OctavoError; no run is open then.
    """

    def __init__(self, config, weights, linears):
        self.config = config
        self.weights = []
        self.linears = linears
        self.verdicts = {}
        self.sites = {}
        self.left_out = {}        # linears that were never added: name -> reason
        self.skipped_steps = 0
        self._candidates = weights
        self._resumed = False
        self._open()
        self.tensors = [self._allocate(slot) for slot in self.slots]
        self._bind()

    def _open(self):
        ops.library()
        device = self._device()
        self.run = Run(self.config, ops.library().octavo_torch_host(), ops.take_diagnostics, device)
        try:
            self._describe()
        except BaseException:
            self.run.close()
            raise

    def _device(self):
        devices = {w.parameter.device for w in self._candidates}
        if any(d.type != "cpu" for d in devices):
            found = ", ".join(sorted(map(str, devices)))
            raise DeviceError(f"the model: expected every parameter on the CPU, found {found}; this "
                              "build of octavo has CPU kernels only: call model.cpu() first")
        return _abi.DEVICE_AUTO

    def _describe(self):
        self.weights, self.verdicts, accepted = [], {}, []
        for w in self._candidates:
            rows, cols = w.of(w.parameter.detach()).shape
            w.shape = (rows, cols)
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
        return torch.full((slot.rows, slot.cols), slot.initial, dtype=dtype)

    def _bind(self, noted=b""):
        """Registers the run and builds every slot list; the tensors exist already. noted: the
        initial value of _graph_gradients."""
        for slot in self.slots:
            if slot.role == _abi.ROLE_WEIGHT and slot.owner_kind == _abi.OWNER_PARAMETER:
                self.weights[slot.owner].is_native = bool(slot.flags & _abi.SLOT_NATIVE)
        plans = [self.run.plan(id) for id, _, _ in self._accepted]
        shapes = [ops.LinearShape(w.shape[0], w.shape[1], ops.DTYPES[w.parameter.dtype], w.id)
                  for _, _, w in self._accepted]
        self._graph_gradients = (ctypes.c_uint8 * len(self.weights))(*noted)
        for w in self.weights:
            w.graph_gradients = self._graph_gradients
        self.number = ops.register(self.run, shapes, plans, self._graph_gradients)
        self._release = weakref.finalize(self, _close, self.number, self.run,
                                         self._graph_gradients)
        self.sites = {name: Site(self, id, name, w) for id, name, w in self._accepted}
        self._by_parameter = {}
        for w in self.weights:
            self._by_parameter.setdefault(id(w.parameter), []).append(w)
        for p in self.owned_parameters():
            if any(p.stride()) and p.grad is None and self._resumed:
                p.data = placeholder(p)  # a copy of a placeholder has its own memory
        of_parameters = _abi.OWNER_PARAMETER
        self._quantize = [Lists(self, _abi.VERB_QUANTIZE_WEIGHT, of_parameters, w.id)
                          for w in self.weights]
        self.optimizer_lists = [Lists(self, _abi.VERB_OPTIMIZER_STEP, of_parameters, w.id)
                                for w in self.weights]
        self._gradients = {s.owner: self.tensors[s.id] for s in self.slots
                           if s.role == _abi.ROLE_GRADIENT and self.tensors[s.id] is not None
                           and s.owner_kind == of_parameters}
        self.needs_own_optimizer = bool(self._gradients) or any(
            not w.is_native for w in self.weights)
        self._end_step = Lists(self, _abi.VERB_END_STEP, _abi.OWNER_SESSION, 0)
        self.nonfinite = next((self.tensors[s.id] for s in self.slots
                               if s.role == _abi.ROLE_NONFINITE), None)
        self.reduced = [(s, self.tensors[s.id]) for s in self.slots
                        if s.flags & _abi.SLOT_REDUCE]

    def linear_name(self, id):
        return self._accepted[id][1]

    def uses(self, owner_kind, owner):
        return self.run.uses(owner_kind, owner)

    # Pickling and copying ------------------------------------------------------------------------

    def __getstate__(self):
        return {"config": self.config.frozen(), "weights": self._candidates,
                "linears": self.linears, "left_out": self.left_out, "tensors": self.tensors,
                "skipped_steps": self.skipped_steps,
                "graph_gradients": bytes(self._graph_gradients)}

    def __setstate__(self, state):
        self.config, self._candidates = state["config"], state["weights"]
        self.linears, self.left_out = state["linears"], state["left_out"]
        self.skipped_steps = state["skipped_steps"]
        self._resumed = True
        self._open()
        self.tensors = state["tensors"]
        mine = [None if s.flags & _abi.SLOT_NATIVE else (s.rows, s.cols) for s in self.slots]
        theirs = [None if t is None else tuple(t.shape) for t in self.tensors]
        if mine != theirs:
            raise InvalidError("the saved model: expected the slots of this version's backend "
                               f"{self.run.backend}, found others; use octavo.state_dict() to "
                               "move between versions")
        self._bind(state["graph_gradients"])

    # Weights and gradients in slots ----------------------------------------------------------------

    def weights_of(self, parameter):
        """The Weights of a torch parameter; [] for an unknown one."""
        return self._by_parameter.get(id(parameter), [])

    def owned_parameters(self):
        """The torch parameters whose values the backend keeps in slots."""
        return [ws[0].parameter for ws in self._by_parameter.values() if not ws[0].is_native]

    def read(self, parameter, role=_abi.ROLE_WEIGHT):
        """The plain values of a role (_abi.ROLE_...), in the shape and dtype of the parameter."""
        out = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        for w in self.weights_of(parameter):
            plain = torch.empty(w.shape, dtype=parameter.dtype, device=parameter.device)
            lists = self.optimizer_lists[w.id]
            torch.ops.octavo.read_parameter(self.number, w.id, role, plain, lists.read,
                                            lists.accumulate, lists.update)
            w.of(out).copy_(plain)
        return out

    def write(self, parameter, values, role=_abi.ROLE_WEIGHT):
        """Writes plain values, in the shape of the parameter, to the slots of a role. The backend
        chooses the scales."""
        for w in self.weights_of(parameter):
            lists = self.optimizer_lists[w.id]
            torch.ops.octavo.write_parameter(self.number, w.id, role,
                                             w.of(values.detach()).contiguous(), lists.read,
                                             lists.accumulate, lists.update)
            w.version = -1

    def clear_gradient(self, weight):
        self._gradients[weight.id].zero_()

    def clear_compiled_gradients(self):
        """Clears what compiled graphs added to gradient slots."""
        for w in self.weights:
            if w.compiled:
                self.clear_gradient(w)
                self._graph_gradients[w.id] = 0

    def show_compiled_gradients(self):
        """Makes gradients of compiled graphs visible as p.grad."""
        for p in {id(w.parameter): w.parameter for w in self.weights if w.compiled}.values():
            p.grad = SlotGradient(self, self.weights_of(p))
            p.grad.begun.update(w.id for w in p.grad.weights if w.compiled)

    def gradient_sum(self, weights):
        """The sum of squares of the gradients of these weights, float32 [1]."""
        out = torch.zeros(1, dtype=torch.float32)
        ids, read, accumulate, update = self._joined(weights)
        torch.ops.octavo.sum_of_squares(self.number, ids, out, read, accumulate, update)
        return out

    def optimizer_step(self, ids, hyper):
        """One step of octavo.optimizer/1 for these parameters. hyper: float32 [len(ids), 8], see
        octavo/optimizer.h."""
        ids, read, accumulate, update = self._joined([self.weights[i] for i in ids])
        torch.ops.octavo.optimizer_step(self.number, ids, list(range(len(ids))), hyper,
                                        self.nonfinite, read, accumulate, update)
        for i in ids:
            torch.autograd.graph.increment_version(self.weights[i].parameter)

    def _joined(self, weights):
        ids, read, accumulate, update = [], [], [], []
        for w in weights:
            lists = self.optimizer_lists[w.id].fill()
            ids.append(w.id)
            read += lists.read
            accumulate += lists.accumulate
            update += lists.update
        return ids, read, accumulate, update

    # Steps ---------------------------------------------------------------------------------------

    def quantize(self, weight):
        """Updates the backend's cache of one weight. Eager code only."""
        lists = self._quantize[weight.id]
        if not lists.is_empty:
            lists.fill()
            torch.ops.octavo.quantize_weight(self.number, weight.id, lists.read, lists.accumulate,
                                             lists.update)
        weight.version = weight.parameter._version

    def quantize_all(self):
        """Quantizes every weight: after a step, and after parameters were loaded or written. Raises
        StateError after close."""
        self._check_open()
        for w in self.weights:
            self.quantize(w)

    def drop_records(self):
        """Discards what casts recorded in this step, so that end_step changes no scale."""
        for _, tensor in self.reduced:
            tensor.zero_()

    def end_step(self):
        """Derives the next scales, clears the accumulators and quantizes every weight. Raises
        StateError after close."""
        self._check_open()
        if not self._end_step.is_empty:
            lists = self._end_step.fill()
            torch.ops.octavo.end_step(self.number, lists.read, lists.accumulate, lists.update)
        self.quantize_all()

    def _check_open(self):
        if self.run.handle is None:
            raise StateError("this model's session is closed; call octavo.prepare on a new model")

    def close(self):
        """Frees the run; the model cannot run afterwards. Idempotent."""
        self._release()

    def bytes_by_role(self):
        """The bytes allocated for slots: {role: bytes}."""
        out = {}
        for slot, tensor in zip(self.slots, self.tensors):
            if tensor is not None:
                out[slot.role] = out.get(slot.role, 0) + tensor.untyped_storage().nbytes()
        return out


def _close(number, run, graph_gradients):
    """graph_gradients: kept alive until here, because the op library has its address."""
    ops.release(number)
    run.close()

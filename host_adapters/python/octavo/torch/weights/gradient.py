"""Gradients in slots, as p.grad.

The backend accumulates the gradient of a weight in its own format. `SlotGradient` represents it for
torch's tools: clip_grad_norm_ reads its norm and scales it, zero_grad drops it. Any other read
gives plain float values. Adding to it and copying into it rounds to the backend's format, and so does an op
whose schema cannot be trusted to name what it writes, such as a collective. Any other write raises
UnsupportedError, also one to a view of a gradient.
"""
import weakref

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from ... import _abi
from ...errors import StateError, UnsupportedError
from .. import ops
from ..slots import BACKWARD, HOST, MARKED

aten = torch.ops.aten
_plainly = torch._C.DisableTorchFunctionSubclass
_NORMS = {aten.linalg_vector_norm.default, aten.norm.Scalar}
_SCALINGS = {aten.mul_.Tensor: torch.mul, aten.mul_.Scalar: torch.mul,
             aten.div_.Tensor: torch.div, aten.div_.Scalar: torch.div}
_LISTS = {aten._foreach_zero_.default: aten.zero_.default,
          aten._foreach_mul_.Tensor: aten.mul_.Tensor, aten._foreach_mul_.Scalar: aten.mul_.Scalar}
_DECLARING = {"aten", "prims"}  # namespaces whose schemas name every argument that an op writes
_RECEIVING = {"recv_", "recv_any_source_"}  # of c10d: the peer may wait for what this rank sends later
ONE = torch.ones((), device="cpu")


class _Readable(torch.Tensor):
    """A tensor that torch reads through plain(), a copy: an op that would write only to the copy is refused."""

    def tolist(self):
        return self.plain().tolist()

    def numpy(self, *, force=False):
        values = self.plain().numpy(force=force)
        values.flags.writeable = False
        return values

    def data_ptr(self):
        raise UnsupportedError(_refusal("data_ptr, an address of values that it does not have"))

    def __dlpack__(self, *args, **kwargs):
        raise UnsupportedError(_refusal("__dlpack__, which shares memory that it does not have"))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if _writes(func, args, kwargs):
            raise UnsupportedError(_refusal(name))
        if func.namespace not in _DECLARING:
            return _passed_on(func, name, args, kwargs)
        found = func(*tree_map_only(_Readable, lambda r: r.plain(), args),
                     **tree_map_only(_Readable, lambda r: r.plain(), kwargs))
        if any(r.alias_info is not None for r in func._schema.returns):
            return tree_map_only(torch.Tensor, GradientView, found)
        return found


class GradientView(_Readable):
    """A view of a gradient in slots, such as p.grad.view(-1) and p.grad[0]: its values at that time."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, strides=values.stride(), dtype=values.dtype,
                                                   device=values.device)

    def __init__(self, values):
        self._values = values

    def plain(self):
        return self._values

    def __repr__(self, *, tensor_contents=None):
        return f"GradientView({self._values})"

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self._values.clone())

    def __reduce_ex__(self, protocol):
        return self._values.clone().__reduce_ex__(protocol)


class SlotGradient(_Readable):
    """p.grad of a parameter whose gradient is in slots. `factor` (float32 scalar; 1 is shared, so it
    is replaced, never written) multiplies the stored values; the optimizer applies it. It keeps neither the session nor
    its parameter alive: the parameter holds it in C++, where the collector sees no cycle."""

    @staticmethod
    def __new__(cls, session, weights):
        p = weights[0].parameter
        return torch.Tensor._make_wrapper_subclass(cls, p.shape, dtype=p.dtype, device=p.device)

    def __init__(self, session, weights):
        self._session = weakref.ref(session)
        self._ids = [w.id for w in weights]
        self.begun = set()  # ids of the weights with a gradient since the last zero_grad
        self.factor = ONE

    @property
    def session(self):
        session = self._session()
        if session is None:
            raise StateError("a gradient in FP8 slots: expected the model that it is of, found that the model is gone; read "
                             "values = p.grad.plain() while there is one")
        return session

    @property
    def weights(self):
        weights = self.session.weights
        return [weights[i] for i in self._ids]

    def complete(self):
        """Clears the slots of parts that no backward reached, such as experts without tokens."""
        for w in self.weights:
            if w.id not in self.begun:
                self.session.clear_gradient(w)
                self.begun.add(w.id)

    def plain(self):
        """The values in the dtype and shape of the parameter, including the factor."""
        self.complete()
        p = self.weights[0].parameter
        return self.session.read(p, _abi.ROLE_GRADIENT) * self.factor.to(p.dtype)

    def store(self, values):
        """Replaces the gradient by plain values, which are rounded to the backend's format."""
        self.begun.clear()  # a write that is interrupted leaves zeros, not values with another factor
        self.factor = ONE
        self.session.write(self.weights[0].parameter, values, _abi.ROLE_GRADIENT)
        for w in self.weights:
            self.session.gradient_is_anew(w)
        self.begun.update(self._ids)
        return self

    def scale(self, factor):
        """Sets the factor. The next forward applies it to the slots, before a backward adds to them;
        an optimizer's step in between takes it exactly."""
        self.factor = factor
        for w in self.weights:
            self.session.flags.set(w.id, HOST)
        return self

    def apply_factor(self):
        if self.factor is not ONE and not self.session.shares_gradient(self.weights):
            self.store(self.plain())

    @property
    def data(self):
        return self

    @data.setter
    def data(self, values):
        self.store(values)

    def norm_2(self):
        """The l2 norm, a float32 scalar, computed from the stored format."""
        self.complete()
        found = self.session.gradient_sum(self.weights).sqrt().reshape(()) * self.factor.abs()
        met = self.session.nonfinite  # a slot holds no NaN; its norm, which programs look at, does
        return found if met is None else torch.where(met.reshape(()) > MARKED, float("nan"), found)

    def __repr__(self, *, tensor_contents=None):
        return f"SlotGradient(shape={tuple(self.shape)}, factor={self.factor.item()})"

    def __deepcopy__(self, memo):
        """Plain values: the copy of a session has separate slots."""
        return memo.setdefault(id(self), self.plain())

    def __reduce_ex__(self, protocol):
        return self.plain().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, SlotGradient):
            if func in (aten.detach.default, aten.alias.default):
                return first
            if func in _NORMS and (len(args) < 2 or args[1] == 2) and len(args) < 3:
                norm = first.norm_2()
                dtype = kwargs.get("dtype")
                return norm.to(dtype or first.dtype)
            if func in _SCALINGS and not isinstance(args[1], SlotGradient):
                other = torch.as_tensor(args[1])
                if other.numel() == 1:
                    return first.scale(_SCALINGS[func](first.factor, other.reshape(()).float()))
            if func is aten.zero_.default:
                for w in first.weights:
                    first.session.clear_gradient(w)
                first.factor = ONE
                return first
            if func is aten.add_.Tensor:
                return first.store(first.plain() + tree_map_only(
                    SlotGradient, SlotGradient.plain, args[1]) * kwargs.get("alpha", 1))
            if func is aten.copy_.default:
                return first.store(tree_map_only(SlotGradient, SlotGradient.plain, args[1]))
        if func in _LISTS:
            for g in first:
                _LISTS[func](g, *args[1:])
            return None
        return super().__torch_dispatch__(func, types, args, kwargs)


def _refusal(name):
    if name.startswith("_amp_"):
        return ("a gradient in FP8 slots: expected no GradScaler, found one; its loss scale is not "
                "needed: use bfloat16 autocast")
    if name.startswith("_fused_"):
        return (f"a gradient in FP8 slots: expected the backend's optimizer, found torch's {name}; pass "
                "the optimizer to octavo.prepare, which replaces it")
    return (f"a gradient in FP8 slots: expected a factor, zero_, add_ or copy_ on the whole of it, found {name}; "
            "change a copy and put it back: values = p.grad.plain(), then p.grad.copy_(values)")


def _writes(func, args, kwargs):
    """Whether an operation changes an argument that is a gradient in slots or a view of one."""
    for at, declared in enumerate(func._schema.arguments):
        if declared.alias_info is not None and declared.alias_info.is_write:
            given = args[at] if at < len(args) else kwargs.get(declared.name)
            if any(isinstance(t, _Readable) for t in tree_leaves(given)):
                return True
    return False


def _passed_on(func, name, args, kwargs):
    """The result of an op that may write where its schema does not say so. Its writes go to the slots, also by the collectives
    of torch.distributed, which this waits for."""
    if name in _RECEIVING:
        raise UnsupportedError(_refusal(name))
    handed = {}

    def hand_over(readable):
        if id(readable) not in handed:
            values = readable.plain()
            handed[id(readable)] = readable, values, values.clone()
        return handed[id(readable)][1]
    found = func(*tree_map_only(_Readable, hand_over, args), **tree_map_only(_Readable, hand_over, kwargs))
    if func.namespace == "c10d" and name != "send":  # which writes nothing, and may wait for its peer
        for work in tree_leaves(found):
            if isinstance(work, torch.ScriptObject):
                work.wait()
    for readable, values, before in handed.values():
        if torch.equal(values, before):
            continue
        if not isinstance(readable, SlotGradient):
            raise UnsupportedError(_refusal(f"{func.namespace}::{name}, which wrote to a view of it"))
        readable.store(values)
    return found


def begin(session, weight):
    """The flags of linear_backward for a weight whose gradient is in a slot.

    The first gradient after zero_grad overwrites the slot; later ones add to it. A compiled graph
    cannot inspect p.grad, so its gradients always add. The op records this, and what drops
    p.grad clears them.
    """
    if torch.compiler.is_compiling():
        return ops.OF_GRAPH
    gradient = absorb(session, weight.parameter)
    if gradient is None:
        gradient = _new(session, weight.parameter)
        gradient.begun.update(w.id for w in gradient.weights if session.has_graph_gradient(w))
    if weight.id in gradient.begun:
        if session.owners is not None:
            session.owners.gradients.expect_anew(weight)
        gradient.apply_factor()  # where the forward came before it
        return 0
    if session.flags.since[BACKWARD] and len(gradient.begun) == 0:
        _forget_dropped(session, weight.parameter)
    session.gradient_is_anew(weight)
    return _abi.BACKWARD_OVERWRITE


def began(weight):
    """The slot has this step's gradient now, not an earlier one: a backward that is interrupted before leaves zeros."""
    gradient = _held(weight.parameter)
    if isinstance(gradient, SlotGradient):
        gradient.begun.add(weight.id)


def _forget_dropped(session, p):
    """A backward starts where gradients were dropped without a step: the flag that casts set before is dropped with them. On
    the CPU; on other devices looking would wait."""
    met = session.nonfinite
    if met is not None and met.device.type == "cpu" and met.item() > MARKED and not any(
            _held(other) is not None for other in session.owned_parameters() if other is not p):
        session.drop_records()


def _new(session, p):
    with _plainly():
        gradient = p.grad = SlotGradient(session, session.weights_of(p))
    return gradient


def _held(p):
    """p.grad as torch has it, without the handling of attributes of a parameter in slots."""
    with _plainly():
        return p.grad


def apply_factor(p):
    """Scales the slots by the factor of p.grad."""
    gradient = _held(p)
    if isinstance(gradient, SlotGradient):
        gradient.apply_factor()


def is_plain(p):
    """Whether p.grad is one that torch's own use of the weight gave."""
    return not isinstance(_held(p), (SlotGradient, type(None)))


def absorb(session, p):
    """p.grad as a SlotGradient: a plain one moves to the slots. None without one."""
    values = _held(p)
    if values is None or isinstance(values, SlotGradient):
        return values
    return _new(session, p).store(values)

"""Parameters whose values the backend keeps in slots.

Linears compute from the slots, so the torch parameter needs no memory: it has the shape, dtype and
name of the weight over one element. Anything else that uses the parameter gets real values.
The first use reads the slots into memory of torch, and from then on this copy and the slots follow
each other: a step of the backend's optimizer updates the copy in place, and a write to the copy is
written to the slots before the next forward needs them. A step frees a copy that nothing holds.
"""
import sys
import weakref

import torch

from ..errors import DeviceError, StateError, UnsupportedError
from .slots import HOST

_T = torch.Tensor
_disabled = torch._C.DisableTorchFunctionSubclass
_use_count = torch._C._storage_Use_Count

# Functions that need no values.
_METADATA = {getattr(_T, name).__get__ for name in (
    "shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "is_cuda",
    "is_cpu", "is_sparse", "is_meta", "is_quantized", "is_nested", "is_mkldnn", "retains_grad",
    "grad_fn", "_version", "names", "itemsize", "nbytes", "output_nr", "is_xpu", "is_mps",
    "is_mtia", "is_sparse_csr", "_base", "_backward_hooks", "_post_accumulate_grad_hooks", "name")
    if hasattr(_T, name)}
_METADATA.add(_T._backward_hooks.__set__)
_METADATA |= {getattr(_T, name) for name in (
    "size", "dim", "numel", "nelement", "ndimension", "element_size", "is_floating_point",
    "is_complex", "is_signed", "storage_offset", "get_device",
    "_is_view", "__len__", "is_same_size",
    "is_shared", "has_names", "__hash__", "is_inference", "new_empty", "new_zeros", "new_ones",
    "new_full", "new_tensor") if hasattr(_T, name)}
_METADATA |= {torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like,
              torch.rand_like, torch.randn_like, torch.is_floating_point, torch.is_complex,
              torch.numel, torch.result_type, torch.is_same_size}
_GET_DATA, _SET_DATA = _T.data.__get__, _T.data.__set__
_GET_GRADIENT, _SET_GRADIENT = _T.grad.__get__, _T.grad.__set__
_HOOKS = {_T.register_hook, _T.register_post_accumulate_grad_hook}
_REQUIRES_GRAD = {_T.requires_grad.__set__, _T.requires_grad_}
_ESCAPES = {_GET_DATA, _T.data_ptr, _T.untyped_storage, _T.storage, _T.numpy, _T.__dlpack__}


def raw(p):
    """The memory of a parameter as a plain tensor, which autograd does not follow."""
    with _disabled():
        return p.data


def set_raw(p, data):
    with _disabled():
        p.data = data


def version(p):
    with _disabled():
        return p._version


def placeholder(p):
    """A tensor with the shape and dtype of the parameter over one NaN."""
    with _disabled():
        return torch.full((), float("nan"), dtype=p.dtype, device=p.device).expand(p.shape)


class Copy:
    """The copy in torch's memory of one parameter in slots."""

    def __init__(self, session, parameter):
        self._session = weakref.ref(session)
        self._ids = [w.id for w in session.weights_of(parameter)]
        self.is_real = False
        self.seen = 0            # the version that the slots have
        self.is_suspect = False  # raw memory was handed out: writes leave no trace

    def session(self):
        session = self._session()
        if session is None or session.is_closed:
            raise StateError("this parameter's values were in slots of a session that is closed; call "
                             "octavo.restore before the model goes, or read its state_dict")
        return session

    def graph_gradient(self, p):
        session = self._session()
        return None if session is None or session.is_closed else session.graph_gradient(p)

    def drop_graph_gradient(self, p):
        session = self._session()
        if session is not None and not session.is_closed:
            session.drop_graph_gradient(p)

    def _flag(self, on):
        flags = self.session().flags
        for id in self._ids:
            (flags.set if on else flags.clear)(id, HOST)

    def make_real(self, p):
        """Reads the slots into memory of torch, unless it is there."""
        if self.is_real:
            return
        set_raw(p, self.session().read(p))
        self.is_real, self.seen = True, version(p)
        self._flag(True)

    def replace(self, p, data):
        """p.data = data, also by model.to(...)."""
        here = self.session().device
        if data.device != here:
            raise DeviceError(
                f"a weight in slots: expected values on {here}, where the model was prepared, found "
                f"them on {data.device}; call octavo.restore(model), move it and prepare it again")
        set_raw(p, data)
        self.is_real, self.is_suspect, self.seen = True, True, -1
        self._flag(True)

    def settle(self, p):
        """Writes to the slots what was written to the copy."""
        if not self.is_real:
            return
        now = version(p)
        if now == self.seen and not self.is_suspect:
            return
        session, values = self.session(), raw(p)
        if not torch.equal(session.read(p), values):
            session.write(p, values)
            values.copy_(session.read(p))
        self.seen = now
        self.is_suspect = self.is_suspect and _holders(values) > 0

    def follow(self, p):
        """After a step: gives the memory back, or updates it where something holds it."""
        if not self.is_real:
            return
        values = raw(p)
        if _holders(values) > 0 or not p.requires_grad:
            values.copy_(self.session().read(p))
            self.seen = version(p)
            return
        del values
        self.drop(p)

    def drop(self, p):
        """Gives the memory back. A graph that saved the values for its backward is told by their
        version."""
        torch.autograd.graph.increment_version(p)
        set_raw(p, placeholder(p))
        self.is_real = self.is_suspect = False
        self._flag(False)


def _holders(values):
    """How many tensors but the parameter and `values` refer to this memory."""
    return _use_count(values.untyped_storage()._cdata) - _ALONE


def _alone():
    p = torch.nn.Parameter(torch.zeros(2))
    values = p.data
    return _use_count(values.untyped_storage()._cdata)


_ALONE = _alone()


class SlotParameter(torch.nn.Parameter):
    """A torch.nn.Parameter whose values are in slots. It behaves as any other: see above."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _METADATA:
            with _disabled():
                return func(*args, **kwargs)
        if func == _GET_GRADIENT:
            with _disabled():
                found = func(*args)
                if found is None:
                    found = args[0].octavo_copy.graph_gradient(args[0])
                    if found is not None:
                        args[0].grad = found  # which keeps its factor
            return found
        if func == _SET_GRADIENT:
            if args[1] is None:
                args[0].octavo_copy.drop_graph_gradient(args[0])
            with _disabled():
                return func(*args)
        if func in _HOOKS or func is torch.autograd.grad:
            raise UnsupportedError(
                "a weight in slots: expected code that reads p.grad after backward(), found "
                f"{func.__name__}, which its gradient never passes; use te, or exclude the layer with "
                "the filter of octavo.prepare")
        if func is _T.is_contiguous:
            return True
        if func is _T.stride:
            return torch.empty(args[0].shape, device="meta").stride(*args[1:], **kwargs)
        if func == _SET_DATA:
            return args[0].octavo_copy.replace(args[0], args[1])
        if func in _REQUIRES_GRAD:
            with _disabled():
                out = func(*args, **kwargs)
            args[0].octavo_copy.session().trains(args[0])
            return out
        for p in _parameters(args) + _parameters(kwargs.values()):
            p.octavo_copy.make_real(p)
            if func in _ESCAPES:
                p.octavo_copy.is_suspect = True
        with _disabled():
            return func(*args, **kwargs)

    def detach(self):
        """As in torch. Raises UnsupportedError inside of torch.nn.Parameter(weight), which cannot
        take another class of parameter."""
        if sys._getframe(1).f_code is torch.nn.Parameter.__new__.__code__:
            raise UnsupportedError(
                "a weight in slots: expected code that uses the parameter, found code that makes "
                "another one of it, such as a parametrization; call octavo.restore(model) before it, "
                "exclude the layer with the filter of octavo.prepare, or pass weight.data")
        return super().detach()

    def __deepcopy__(self, memo):
        """A plain parameter with the values; the copy of the session takes it into its slots."""
        if id(self) not in memo:
            values = self.octavo_copy.session().read(self) if not self.octavo_copy.is_real else (
                raw(self).clone())
            memo[id(self)] = torch.nn.Parameter(values, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return torch.nn.Parameter(self.detach().clone(), self.requires_grad).__reduce_ex__(protocol)


def _parameters(values):
    found = []
    for value in values:
        if isinstance(value, SlotParameter):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _parameters(value)
    return found


def adopt(session, p):
    """Makes it a parameter whose values are in the slots of a session already."""
    p.__class__ = SlotParameter
    p.octavo_copy = Copy(session, p)
    set_raw(p, placeholder(p))


def take(session, p):
    """Moves the values of a parameter to its slots. Returns them, for give_back. Raises
    UnsupportedError for a parameter with hooks, which its gradient would not pass."""
    if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
        raise UnsupportedError(
            f"{session.weights_of(p)[0].name}: expected a weight without hooks, because its gradient "
            "goes to slots, found some; use te, remove the hooks, or exclude the layer with the filter")
    values = p.data
    session.write(p, values)
    adopt(session, p)
    return values


def give_back(p, values):
    """Makes it a plain parameter with these values."""
    set_raw(p, values)
    p.__class__ = torch.nn.Parameter
    del p.octavo_copy

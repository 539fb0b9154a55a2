"""Parameters whose values the backend keeps in slots.

Linears compute from the slots, so the torch parameter needs no memory: it has the shape, dtype and
name of the weight over one element. Anything else that uses the parameter gets real values.
The first use reads the slots into memory of torch, and from then on this copy and the slots follow
each other: a step of the backend's optimizer updates the copy in place, and a write to the copy is
written to the slots before the next forward needs them. A step frees a copy that nothing holds.
"""
import sys

import torch

from ..errors import UnsupportedError
from .prepared import holder_of
from .weight_copy import Copy, placeholder, raw, set_raw

_T = torch.Tensor
_disabled = torch._C.DisableTorchFunctionSubclass

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
              torch.numel, torch.result_type, torch.is_same_size, torch._has_compatible_shallow_copy_type}
_GET_DATA, _SET_DATA = _T.data.__get__, _T.data.__set__
_GET_GRADIENT, _SET_GRADIENT = _T.grad.__get__, _T.grad.__set__
_HOOKS = {_T.register_hook, _T.register_post_accumulate_grad_hook}
_REQUIRES_GRAD = {_T.requires_grad.__set__, _T.requires_grad_}
# Methods that write every element of their first argument and read none of it.
_OVERWRITES = {_T.copy_, _T.fill_, _T.zero_, _T.normal_, _T.uniform_}


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
        if func is _T.share_memory_:
            raise UnsupportedError(
                f"{args[0].octavo_copy.name}: expected a weight of this process alone, found share_memory_: its values are in "
                'slots, and a copy that processes shared would not be what linears multiply by; set fp8.backend = "te", call '
                "share_memory() before octavo.prepare and train with octavo in one process, or pass each process a copy")
        if func is _T.is_contiguous:
            return True
        if func is _T.stride:
            return torch.empty(args[0].shape, device="meta").stride(*args[1:], **kwargs)
        if func is _T.to and _is_there(*args, **kwargs):
            return args[0]
        if func == _SET_DATA:
            if args[1] is args[0] and not args[0].octavo_copy.is_real(args[0]):
                return None  # Module.to, which has changed nothing
            return args[0].octavo_copy.replace(args[0], args[1])
        if func in _REQUIRES_GRAD:
            with _disabled():
                out = func(*args, **kwargs)
            args[0].octavo_copy.session().trains(args[0])
            return out
        is_blank = (func in _OVERWRITES and isinstance(args[0], SlotParameter)
                    and args[0].octavo_copy.make_blank(args[0]))
        try:
            held = [p.octavo_copy.make_real(p) for p in _parameters(args) + _parameters(kwargs.values())]  # until it is done
            with _disabled():
                return func(*args, **kwargs)
        except BaseException:
            if is_blank:
                args[0].octavo_copy.drop(args[0])
            raise

    def set_(self, *args, **kwargs):
        """As in torch, which does not pass this one to __torch_function__."""
        self.octavo_copy.make_real(self)
        return super().set_(*args, **kwargs)

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
            session = self.octavo_copy.session()
            if self.octavo_copy.is_real(self):
                values = raw(self).clone()
            elif not session.can_read(self) and (id(session) in memo or id(holder_of(session)) in memo):
                values = placeholder(self)  # the copy of the session has it in slots
            else:
                values = session.read(self)
            memo[id(self)] = torch.nn.Parameter(values, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return torch.nn.Parameter(self.detach().clone(), self.requires_grad).__reduce_ex__(protocol)


def _is_there(p, *args, **kwargs):
    """Whether p.to(*args, **kwargs) asks for what p is. torch takes "cpu:0" for another device than "cpu"."""
    with _disabled():
        out = torch.empty(0, dtype=p.dtype, device=p.device).to(*args, **kwargs)
        return (out.dtype, out.device) == (p.dtype, p.device) and not kwargs.get("copy")


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
    p.octavo_copy = Copy(session, p)
    p.__class__ = SlotParameter
    set_raw(p, p.octavo_copy.absent)


def take(session, p):
    """Moves the values of a parameter to its slots. Returns them, for give_back. Raises
    UnsupportedError for a parameter with hooks, which its gradient would not pass."""
    if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
        raise UnsupportedError(
            f"{session.weights_of(p)[0].name}: expected a weight without hooks, because its gradient "
            "goes to slots, found some; use te, remove the hooks, or exclude the layer with the filter")
    values = p.data
    session.write(p, values)
    try:
        adopt(session, p)
    except BaseException:  # without memory for its placeholder
        if isinstance(p, SlotParameter):
            give_back(p, values)
        raise
    return values


def give_back(p, values):
    """Makes it a plain parameter with these values."""
    set_raw(p, values)
    p.__class__ = torch.nn.Parameter
    del p.octavo_copy

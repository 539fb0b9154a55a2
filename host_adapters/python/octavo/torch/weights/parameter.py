"""Parameters whose values the backend keeps in slots.

Linears compute from the slots, so the torch parameter needs no memory: it has the shape, dtype and
name of the weight over one element. Anything else that uses the parameter gets real values.
The first use reads the slots into torch's memory, and from then on this copy and the slots follow each other: a step of the
backend's optimizer updates the copy in place, and a write to the copy is written to the slots before the next forward needs
them. A step frees a copy that nothing holds.
"""
import sys
import weakref

import torch

from ...errors import DeviceError, InvalidError, StateError, UnsupportedError
from ..models import holder_of
from ..slots import HOST


# The copy in torch's memory of a weight in slots, for code other than linears.

_disabled = torch._C.DisableTorchFunctionSubclass
_use_count = torch._C._storage_Use_Count


_UNREADABLE = ("a weight in slots: expected code that reads or writes it by torch's functions, found code that requests its "
               "memory, such as a collective of torch.distributed; give it p.data, where values are found and kept")


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
    """A tensor with the shape and dtype of the parameter over one element. Code that requests its memory without asking the
    class of the parameter, as the collectives of torch.distributed do, gets a RuntimeError."""
    with _disabled():
        made = torch.empty((), dtype=p.dtype, device=p.device)
    torch._C._set_storage_data_ptr_access_error_msg(made.untyped_storage()._cdata, _UNREADABLE)
    return made.expand(p.shape)


class Copy:
    """The copy in torch's memory of one parameter in slots. A signal's handler may come between any two lines and use the
    parameter, or end the call: whether there is a copy is what memory the parameter has, which changes at once."""

    def __init__(self, session, parameter):
        self._session = weakref.ref(session)
        self._ids = [w.id for w in session.weights_of(parameter)]
        self.name, self._kind = session.weights_of(parameter)[0].name, (parameter.shape, parameter.dtype)
        self.absent = placeholder(parameter)  # its memory while there is no copy
        self._absent = self.absent.untyped_storage()._cdata
        self.seen = 0            # the version that the slots have
        self.is_suspect = False  # other code used it since the last comparison, or holds it: a write may leave no trace
        self.is_behind = False   # a step may have changed the slots since

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

    def _here(self, p):
        """The copy's memory; None without one. To ask is_real first leaves a handler time to give it back."""
        values = raw(p)
        return None if values.untyped_storage()._cdata == self._absent else values

    def is_real(self, p):
        return self._here(p) is not None

    def _flag(self):
        """The next forward asks settle."""
        flags = self.session().flags
        for id in self._ids:
            flags.set(id, HOST)

    def make_real(self, p):
        """Other code uses it. Reads the slots into torch's memory, unless it is there. Returns that memory: while the
        caller holds it, a step in a handler writes to it instead of giving it back."""
        values = None
        while values is None:
            if self.is_behind:
                self.follow(p)
            if not self.is_real(p):
                set_raw(p, self.session().read(p))
                self.seen = version(p)
            values = self._here(p)
        self.is_suspect = True
        self._flag()
        return values

    def make_blank(self, p):
        """Gives it memory for values that overwrite all of it, where the slots cannot be read. Returns whether it did."""
        is_blank = not self.is_real(p) and not self.session().can_read(p)
        if is_blank:
            set_raw(p, torch.full(p.shape, float("nan"), dtype=p.dtype, device=p.device))
            self.seen = -1
            self._flag()
        return is_blank

    def _expect_alike(self, values):
        if (values.shape, values.dtype) != self._kind:
            shape, dtype = self._kind
            raise InvalidError(
                f"{self.name}: expected {tuple(shape)} of {dtype}, as at octavo.prepare, found values of "
                f"{tuple(values.shape)} of {values.dtype} in its place; call octavo.restore(model), change it and prepare it "
                "again")

    def replace(self, p, data):
        """p.data = data, also by model.to(...)."""
        here = self.session().device
        if data.device != here:
            raise DeviceError(
                f"a weight in slots: expected values on {here}, where the model was prepared, found "
                f"them on {data.device}; call octavo.restore(model), move it and prepare it again")
        self._expect_alike(data)
        set_raw(p, data)
        self.is_suspect, self.is_behind, self.seen = True, False, -1
        self._flag()

    def _values(self, p):
        values = self._here(p)
        if values is None:
            return None
        self._expect_alike(values)
        last = values.storage_offset() + sum((n - 1) * step for n, step in zip(values.shape, values.stride()))
        if values.numel() and values.untyped_storage().nbytes() < (last + 1) * values.itemsize:
            raise StateError(f"{self.name}: expected its values, found memory that was released, as by "
                             "untyped_storage().resize_; give it memory again, or assign p.data")
        return values

    def settle(self, p):
        """Writes to the slots what was written to the copy."""
        if self.is_behind:
            self.follow(p)
        if not self.is_real(p):
            return
        now = version(p)
        if now == self.seen and not self.is_suspect:
            return
        session, values = self.session(), self._values(p)
        if values is None:
            return
        if not session.can_read(p):
            # The owner keeps its master where the values equal those that it reads. Of float32 they are exact, so
            # the codes that this rank makes of them are the owner's in either case.
            if values.dtype != torch.float32:
                raise StateError(
                    f"{session.weights_of(p)[0].name}: expected a write inside of octavo.full_state(model), since the "
                    f"parameter is {values.dtype} and another rank holds its master (shard_optimizer_state), found one "
                    "outside; enter it on every rank, or load the state of octavo.state_dict afterwards")
            session.write(p, values)
            del values
            return self._let_go(p, session)
        if not torch.equal(session.read(p), values):
            session.write(p, values)
            values.copy_(session.read(p))
        self.seen = now
        self.is_suspect = self.is_suspect and _holders(values) > 0

    def follow(self, p):
        """After a step: gives the memory back, or updates it where something holds it."""
        values = self._values(p)
        if values is None:
            self.is_behind = False
            return
        session = self.session()
        if not session.can_read(p):
            del values
            self.is_behind = False
            return self._let_go(p, session)
        if _holders(values) > 0 or not p.requires_grad:
            values.copy_(session.read(p))
            self.seen, self.is_behind = version(p), False
            return
        del values
        self.drop(p)
        self.is_behind = False

    def _let_go(self, p, session):
        """Gives back memory that this rank cannot update. Raises StateError where something else holds it."""
        if _holders(raw(p)) > 0:
            raise StateError(
                f"{session.weights_of(p)[0].name}: expected a weight that only its parameter refers to, since another rank "
                "holds its master (shard_optimizer_state) and this one cannot keep a copy current, found another "
                "reference to its memory; write only with weight.copy_(values), or inside of octavo.full_state(model)")
        self.drop(p)

    def drop(self, p):
        """Gives the memory back. A graph that saved the values for its backward detects it by their version."""
        torch.autograd.graph.increment_version(p)
        set_raw(p, self.absent)
        self.is_suspect = False


def _holders(values):
    """How many tensors but the parameter and `values` refer to this memory."""
    return _use_count(values.untyped_storage()._cdata) - _ALONE


def _alone():
    p = torch.nn.Parameter(torch.zeros(2))
    values = p.data
    return _use_count(values.untyped_storage()._cdata)


_ALONE = _alone()


_T = torch.Tensor

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
                "module_filter of octavo.prepare")
        if func is _T.share_memory_:
            raise UnsupportedError(
                f"{args[0].octavo_copy.name}: expected a weight of only this process, found share_memory_: its values are in "
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
                "exclude the layer with module_filter of octavo.prepare, or pass weight.data")
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
    """Whether p.to(*args, **kwargs) would return p itself. torch takes "cpu:0" for another device than "cpu"."""
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
            "goes to slots, found some; use te, remove the hooks, or exclude the layer with skip or module_filter")
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

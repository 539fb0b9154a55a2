"""The copy in torch's memory of a weight in slots, for code other than linears: see parameter.py."""
import weakref

import torch

from ..errors import DeviceError, InvalidError, StateError
from .slots import HOST

_disabled = torch._C.DisableTorchFunctionSubclass
_use_count = torch._C._storage_Use_Count


_UNREADABLE = ("a weight in slots: expected code that reads or writes it by torch's functions, found code that asks for its "
               "memory, such as a collective of torch.distributed; give it p.data, in which values are found and kept")


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
    """A tensor with the shape and dtype of the parameter over one element. Code that asks for its memory without asking
    the class of the parameter, as the collectives of torch.distributed do, gets a RuntimeError."""
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
        """The copy's memory; None: there is none. To ask is_real first leaves a handler time to give it back."""
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
        """Other code uses it. Reads the slots into memory of torch, unless it is there. Returns that memory: while the
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
        """Gives it memory for values that overwrite all of it, where those of the slots cannot be read. Returns
        whether it did."""
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
                "reference to its memory; write with weight.copy_(values) alone, or inside of octavo.full_state(model)")
        self.drop(p)

    def drop(self, p):
        """Gives the memory back. A graph that saved the values for its backward is told by their
        version."""
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

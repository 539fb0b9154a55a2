"""Sessions without a framework: a run of a configuration that is open on this machine.

A `Run` owns a handle of liboctavo. Its methods return copies as plain Python values, which remain
valid after the run is closed.
"""
from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
import threading
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

from . import _abi
from .configuration import Config, Configuration, path_of
from .errors import InvalidError, UnsupportedError, error
from .library import liboctavo


class CtypesHost:
    """A host table that collects diagnostics, for calls without torch."""

    def __init__(self):
        self._texts = []
        self._diagnose = _abi.DIAGNOSE(self._on_diagnostic)
        self._get_extension = _abi.GET_EXTENSION(lambda ctx, name: None)
        self.table = _abi.Host(ctypes.sizeof(_abi.Host), _abi.KIND_HOST, _abi.ABI_MAJOR,
                               _abi.ABI_MINOR, None, self._diagnose, self._get_extension)
        self.address = ctypes.addressof(self.table)

    def _on_diagnostic(self, _, diagnostic):
        d = diagnostic.contents
        if d.severity >= _abi.SEVERITY_WARNING:
            self._texts.append(f"{d.domain}: {d.text}")

    def take(self):
        """Returns and clears the collected messages, one per line."""
        texts, self._texts = self._texts, []
        return "\n".join(texts)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether an object runs through the backend, and why."""
    accepted: bool
    text: str
    evidence: str
    remedy: str

    def __str__(self):
        return self.text + (f" ({self.evidence})" if self.evidence else "")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A tensor that the host allocates; fields as in octavo/slots.h."""
    id: int
    owner_kind: int
    owner: int
    role: int
    dtype: int
    flags: int
    combine: int
    shard: int
    rows: int
    cols: int
    initial: float
    access: tuple
    name: str
    labels: tuple  # the object of each column of a pooled slot, else ()
    scale_slot: int   # the slot with its scale_inv, or _abi.NONE
    granularity: int  # of those: _abi.PER_TENSOR, ...
    key: str  # in checkpoints


def _lines(call):
    lines, lost, hook = [], [], sys.unraisablehook

    def line(_, text):
        lines.append(str(text))

    def raised(found):
        (lost.append if found.object is line else hook)(found.exc_value if found.object is line else found)

    if threading.current_thread() is not threading.main_thread():
        return call(_abi.LINE(line)), "\n".join(lines)
    try:
        sys.unraisablehook = raised  # what a signal's handler raises when C calls line, which ctypes drops
        status = call(_abi.LINE(line))
    finally:
        sys.unraisablehook = hook
    if lost:
        raise lost[0]
    return status, "\n".join(lines)


def _report(function, config, overrides, format):
    host = CtypesHost()
    desc, kept = Config.of(config, overrides).desc(host.address, (_abi.DEVICE_AUTO, 0))
    status, text = _lines(lambda line: function(ctypes.byref(desc), _abi.Str.of(format), line, None))
    del kept
    return status, text, host.take()


class Text(str):
    """A report: a str, which also prints as itself at a prompt, and the same as data."""

    def __new__(cls, text: str, data: Any) -> Text:
        made = super().__new__(cls, text)
        made._data = data
        return made

    def __reduce__(self):
        return type(self), (str(self), self._data)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as format="json" spells it."""
        return json.loads(_described(*self._data, "json"))


def _described(function, config, overrides, format):
    status, text, said = _report(getattr(liboctavo(), function), config, overrides, format)
    refuses = function == "octavo_explain" and status == UnsupportedError.status  # then the text says why
    if text and (status == 0 or refuses):
        return Text(text, (function, config, overrides))
    raise error(status, "\n".join(t for t in (said, text) if t))


def explain(config: Configuration = None, format: str = "text", overrides: Mapping[str, Any] | None = None) -> Text:
    """Reports what would run on this machine and why, with every candidate.

    Args:
        config: The path of an octavo.toml, a dict with its tables, a Config, or None for the defaults.
        format: "text", "tree" or "json".
        overrides: Dotted keys and values, which count before config.

    Returns:
        A str with a method to_dict. For a configuration that cannot run, it states why.

    Raises:
        InvalidError: The configuration is malformed; the message has the same text.

    Example:
        >>> print(octavo.explain("octavo.toml"))
    """
    return _described("octavo_explain", config, overrides, format)


def list_plugins(config: Configuration = None, format: str = "text", overrides: Mapping[str, Any] | None = None) -> Text:
    """Lists every plugin in the search path. Arguments, result and errors as in explain.

    Example:
        >>> [plugin["name"] for plugin in octavo.list_plugins().to_dict()["plugins"]]
    """
    return _described("octavo_list", config, overrides, format)


def probe(config: Configuration = None, format: str = "text", overrides: Mapping[str, Any] | None = None) -> Text:
    """Reports processor, memory, driver and devices, what the system's loader was told and has open in this process, and the
    trial of every plugin in the helper process. Arguments, result and errors as in explain.

    Example:
        >>> print(octavo.probe())
    """
    return _described("octavo_probe", config, overrides, format)


def check(config):
    """Raises InvalidError for a malformed configuration."""
    status, _, said = _report(liboctavo().octavo_check_config, config, None, "")
    if status:
        raise error(status, said)


def _plain(setting):
    """The value of an octavo_setting."""
    value = setting.value
    if value.type == _abi.VALUE_LIST:
        return [str(setting.texts[i]) for i in range(setting.text_count)]
    return {_abi.VALUE_INT: value.integer, _abi.VALUE_REAL: value.real, _abi.VALUE_BOOL: bool(value.integer),
            _abi.VALUE_TEXT: str(value.text)}[value.type]


def settings_of(config):
    """{dotted key: value} of the effective configuration; empty for a wrong one, which octavo_open then refuses."""
    host, found = CtypesHost(), {}

    def take(_, setting):
        found[str(setting.contents.name)] = _plain(setting.contents)

    desc, kept = config.desc(host.address, (_abi.DEVICE_AUTO, 0))
    liboctavo().octavo_settings(ctypes.byref(desc), _abi.TAKE_SETTING(take), None)
    del kept
    return found


def with_kind(config, kind):
    """The configuration for tensors on devices that a framework calls `kind`, which asks kernels of this kind unless it
    names others; and whether its device.kind is another one."""
    said = settings_of(config)
    named = said.get("device.kind", "auto")
    if named == said.get("device.kernels", "auto") == "auto":
        config = dataclasses.replace(config, overrides=(*config.overrides, ("device.kind", kind)))
    return config, named not in ("auto", kind)


class Run:
    """An open run of liboctavo. Use it from one thread at a time. device: (_abi.DEVICE_..., index),
    or by default the configuration's."""

    def __init__(self, config, host_address=None, take=None, device=(_abi.DEVICE_AUTO, 0)):
        self._library = liboctavo()
        self._host = None
        if host_address is None:
            self._host = CtypesHost()
            host_address, take = self._host.address, self._host.take
        self._take = take
        desc, kept = config.desc(host_address, device)
        handle = ctypes.c_void_p()
        self._check(self._library.octavo_open(ctypes.byref(desc), ctypes.byref(handle)),
                    "octavo_open")
        del kept
        self.handle = handle.value
        self._close = weakref.finalize(self, self._library.octavo_close, self.handle)
        self._linears = []  # names, by id
        self._refuse_engine()
        said = self._take()
        if said:
            warnings.warn(said, stacklevel=3)

    def _refuse_engine(self):
        """Raises InvalidError for another [distributed] engine than threads."""
        engine = self._library.octavo_run_setting(self.handle, _abi.Str.of("distributed.engine")).contents
        found, origin = _plain(engine), str(engine.origin)
        if found != "threads":
            self.close()
            raise InvalidError(
                f'{origin}: distributed.engine: expected "threads" in a program on PyTorch or JAX, whose ranks '
                f'are its framework\'s, found "{found}"; leave the key out, and start the ranks as the framework does')

    def _check(self, status, what):
        if status:
            raise error(status, self._take() or f"{what} returned status {status}")

    def close(self):
        """Closes the run. Idempotent. No op of the run may be in flight."""
        self._close()
        self.handle = None

    @property
    def precision(self):
        """The precision in use: "no", "fp16", "bf16" or "fp8"."""
        return str(self._library.octavo_run_precision(self.handle))

    @property
    def backend(self):
        """The id of the chosen backend; empty without one."""
        return str(self._library.octavo_run_backend_id(self.handle))

    @property
    def device(self):
        """The device of the run, as (_abi.DEVICE_..., index); None without a backend."""
        desc = self._library.octavo_run_session_desc(self.handle)
        return (desc.contents.device.type, desc.contents.device.index) if desc else None

    @property
    def kernels(self):
        """The id of the kernels, as "cpu.avx2"; None without a backend."""
        desc = self._library.octavo_run_session_desc(self.handle)
        return str(desc.contents.caps.contents.id) if desc else None

    def has(self, interface):
        """Whether the backend implements "optimizer", "gradients" or "fused"."""
        return bool(self._interface(interface))

    def _interface(self, name):
        return self._library.octavo_run_interface(self.handle, _abi.Str.of(_abi.INTERFACES[name]))

    def algorithm(self):
        """The rule that the backend's optimizer computes, and the names of the hyperparameters that it reads:
        ("adamw", {"lr", ...}). None without one."""
        table = self._interface("optimizer")
        if not table:
            return None
        desc = _abi.OptimizerDesc(ctypes.sizeof(_abi.OptimizerDesc), _abi.KIND_OPTIMIZER_DESC)
        describe = ctypes.cast(table, ctypes.POINTER(_abi.Optimizer)).contents.describe
        self._check(describe(self._library.octavo_run_session(self.handle), ctypes.byref(desc)), "describe")
        return str(desc.algorithm), {str(h) for h in desc.hyper if h.size}

    def _add(self, function, desc, what):
        verdict = _abi.Verdict(size=ctypes.sizeof(_abi.Verdict), kind=_abi.KIND_VERDICT)
        number = ctypes.c_uint32(_abi.NONE)
        self._check(function(self.handle, ctypes.byref(desc), ctypes.byref(verdict),
                             ctypes.byref(number)), what)
        out = Verdict(verdict.decision != _abi.DECLINE, str(verdict.text), str(verdict.evidence),
                      str(verdict.remedy))
        return number.value, out

    def add_parameter(self, name, rows, cols, dtype, flags, gradient_dtype=None):
        """Adds a parameter [rows, cols]. Returns (id, Verdict); the id is valid only if the verdict
        accepts. dtype: _abi.F32, BF16 or F16; flags: _abi.PARAMETER_...; gradient_dtype: None
        means dtype."""
        desc = _abi.ParameterDesc(ctypes.sizeof(_abi.ParameterDesc), _abi.KIND_PARAMETER_DESC,
                                  _abi.Str.of(name), rows, cols, dtype, gradient_dtype or dtype, flags, 0)
        return self._add(self._library.octavo_add_parameter, desc, f"octavo_add_parameter {name}")

    def add_linear(self, name, weight):
        """Adds a linear that uses the parameter with the id `weight`. Returns (id, Verdict), as
        add_parameter."""
        desc = _abi.LinearDesc(ctypes.sizeof(_abi.LinearDesc), _abi.KIND_LINEAR_DESC, _abi.Str.of(name),
                               weight, 0)
        id, verdict = self._add(self._library.octavo_add_linear, desc, f"octavo_add_linear {name}")
        self._linears += [name] if verdict.accepted else []
        return id, verdict

    def seal(self):
        """Ends a batch of additions; their slots and plans exist afterwards."""
        self._check(self._library.octavo_seal(self.handle), "octavo_seal")

    def slots(self):
        """All slots, ordered by id."""
        out = []
        for i in range(self._library.octavo_run_slot_count(self.handle)):
            s = self._library.octavo_run_slot(self.handle, i).contents
            labels = tuple(str(s.labels[k]) for k in range(s.cols)) if s.labels else ()
            out.append(Slot(s.id, s.owner_kind, s.owner, s.role, s.dtype, s.flags, s.combine,
                            s.shard, s.rows, s.cols, s.initial, tuple(s.access), str(s.name), labels,
                            s.scale_slot, s.granularity, str(self._library.octavo_run_slot_key(self.handle, i))))
        return out

    def codes(self, slot, memory, out):
        """Writes the codes of a slot to the address `out`, row-major, from the address of the slot's memory."""
        self._check(self._library.octavo_run_codes(self.handle, slot, memory, out), "octavo_run_codes")

    def uses(self, owner_kind, owner):
        """The entries of an object's slot list: [(slot id, first column, number of columns)]."""
        out = []
        for i in range(self._library.octavo_run_use_count(self.handle, owner_kind, owner)):
            u = self._library.octavo_run_use(self.handle, owner_kind, owner, i).contents
            out.append((u.slot, u.first, u.count))
        return out

    def owners(self, rank, world):
        """The rank that keeps the WHOLE slots of each parameter, by id, where `world` ranks share them out. This
        rank's own for a parameter without such slots."""
        store = ctypes.c_void_p()
        self._check(self._library.octavo_store_open_sharded(self.handle, rank, world, ctypes.byref(store)),
                    "octavo_store_open_sharded")
        try:
            found = []
            while (owner := self._library.octavo_store_owner(store, len(found))) != _abi.NONE:
                found.append(owner)
            return found
        finally:
            self._library.octavo_store_close(store)

    def save(self, directory, addresses, step):
        """Writes a checkpoint of the slots at these addresses, by id; None for slots that it leaves out."""
        self._over(addresses, lambda store: self._check(
            self._library.octavo_store_save(store, path_of(directory), step), "octavo_store_save"))

    def load(self, directory, addresses):
        """Reads a checkpoint to the slots at these addresses, or raises and writes nothing. Returns its step."""
        step = ctypes.c_uint64()
        self._over(addresses, lambda store: self._check(
            self._library.octavo_store_load(store, path_of(directory), ctypes.byref(step)), "octavo_store_load"))
        return step.value

    def _over(self, addresses, use):
        store = ctypes.c_void_p()
        self._check(self._library.octavo_store_over(
            self.handle, (ctypes.c_void_p * (len(addresses) + 1))(*addresses), None, ctypes.byref(store)),
            "octavo_store_over")
        try:
            use(store)
        finally:
            self._library.octavo_store_close(store)

    def plan(self, linear):
        """A copy of the octavo_linear_plan of a linear."""
        plan = self._library.octavo_run_plan(self.handle, linear).contents
        return _abi.LinearPlan.from_buffer_copy(plan)

    def _options(self, linear):
        count = self._library.octavo_run_option_count(self.handle, linear)
        found = [self._library.octavo_run_option(self.handle, linear, i).contents for i in range(count)]
        return {str(setting.name): _plain(setting) for setting in found}

    def options(self):
        """The options of the backend in effect: {name: value}."""
        return self._options(_abi.NONE)

    def layer_options(self):
        """The options of layers in FP8 that differ by rules of the configuration: {layer: {name: value}}."""
        found = {name: self._options(id) for id, name in enumerate(self._linears)}
        return {name: options for name, options in found.items() if options}

    def identity(self):
        """The backend's id, version and file, as text that differs when its plugin does."""
        plugin = self._library.octavo_run_plugin(self.handle)
        return f"{plugin.contents.id} {plugin.contents.version} {plugin.contents.sha256}" if plugin else ""

    def report(self, format="text"):
        """The request, every candidate, the chosen backend, and the placement of each layer. format: "text",
        "tree" or "json"."""
        status, text = _lines(lambda line: self._library.octavo_report(self.handle, _abi.Str.of(format),
                                                                       line, None))
        self._check(status, "octavo_report")
        return text

"""An open run whose tensors are JAX's: the layouts of its linears, and of its state."""
import contextlib
import uuid
import weakref

import jax
import numpy as np

from .. import _abi
from ..configuration import Config
from ..errors import DeviceError, InvalidError, UnsupportedError
from ..session_run import Run, with_kind
from . import ffi
from .layout import Spec, places

DEVICES = {"cpu": _abi.DEVICE_CPU, "gpu": _abi.DEVICE_CUDA, "cuda": _abi.DEVICE_CUDA}


class Session:
    """Opens a run for linears and seals it. It holds no tensor.

    config: a Config; linears: name -> array or jax.ShapeDtypeStruct, the weight [N, K], or [L, N, K] of
    stacked linears; platform: JAX's name, as jax.default_backend() gives it; frozen: names without a gradient. `specs` has a Spec for
    every accepted name, `verdicts` a Verdict for each, `left_out` the reason for each layer of the model that was not
    described. layers: of flax.linen, whose tracing(session) is the context of traces. Raises OctavoError; no run is open then.
    Comparisons are by identity, as JAX's caches of programs need: a copy is the same one, and a pickle opens its run again in
    another process.
    """
    _known = weakref.WeakValueDictionary()

    def __init__(self, config, linears, platform, frozen=(), left_out=None, layers=None, id=None):
        self.id, self.left_out, self.layers = id or uuid.uuid4().hex, left_out or {}, layers
        self.ran = set()  # names of linears in functions in training
        library = ffi.library()
        self.platform = platform
        shapes = {name: jax.ShapeDtypeStruct(w.shape, w.dtype) for name, w in linears.items()}
        self._given = config.frozen(), shapes, platform, tuple(frozen), self.left_out, layers
        there = (DEVICES.get(platform, _abi.DEVICE_AUTO), 0)
        asked = config if platform in DEVICES else with_kind(config, platform)[0]
        self.run = Run(asked, library.octavo_jax_host(), ffi.take_diagnostics, there)
        try:
            if platform not in DEVICES:
                self._check_other(platform)
                ffi.serve(platform)
            self._describe(linears, set(frozen))
        except BaseException:
            self.run.close()
            raise
        self._release = weakref.finalize(self, _close, self.number, self.run)
        Session._known[self.id] = self

    def tracing(self):
        """The context for tracing functions with a state of this session."""
        return contextlib.nullcontext() if self.layers is None else self.layers.tracing(self)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _session_of, (self.id, self._given)

    def _describe(self, linears, frozen):
        self.verdicts, accepted, shapes, weights = {}, [], {}, []  # shapes: of parameters, also of declined linears
        for name, weight in linears.items():
            shape, dtype = tuple(weight.shape), np.dtype(weight.dtype)
            if dtype not in ffi.OCTAVO_DTYPES or len(shape) not in (2, 3) or 0 in shape:
                raise InvalidError(f"linear {name}: weight: expected [N, K] or [L, N, K] of float32, "
                                   f"bfloat16 or float16, found {list(shape)} of {dtype.name}")
            *stack, n, k = shape
            ids = [self._add(name if not stack else f"{name}.{i}", n, k, dtype, name in frozen)
                   for i in range(stack[0] if stack else 1)]
            shapes.update((parameter, (n, k)) for parameter, *_ in ids if parameter is not None)
            self.verdicts[name] = ids[0][2]
            taken = [pair for *pair, verdict in ids if verdict.accepted]
            if taken and len(taken) < len(ids):
                raise UnsupportedError(f"linear {name}: expected {len(ids)} stacked linears that are all "
                                       f"taken or all declined, found {len(taken)} taken; give "
                                       "layers.skip a pattern for all of them")
            if taken:
                accepted.append((name, taken, n, k, dtype))
                weights += [parameter for parameter, _ in taken]
        if self.run.backend:
            self._check_converts(accepted)
            self._check_stacks(accepted)
            self.run.seal()
        self.slots = self.run.slots() if self.run.backend else []
        options, of_rules = self.run.options(), self.run.layer_options()
        registered = [shapes.get(i, (0, 0)) for i in range(max(shapes, default=-1) + 1)]
        self.number = ffi.register(self.run, registered, weights, repr((options, of_rules))) if self.run.backend else 0
        self._in_fp8 = {name: {**options, **of_rules.get(name if len(ids) == 1 else f"{name}.0", {})}.get(
            "use_autocast_during_eval", True) for name, ids, *_ in accepted}
        self.specs = {name: self._spec(*rest, name=name, is_frozen=name in frozen) for name, *rest in accepted}
        self.parameter_names = {spec.parameter + i: spec.name for spec in self.specs.values()
                                for i in range(spec.count)}
        of_first = {(s.owner, s.name): s.key for s in self.slots if s.owner_kind == _abi.OWNER_PARAMETER}
        first = {id: self.specs[name].parameter for id, name in self.parameter_names.items()}
        self._keys = [of_first.get((first.get(s.owner, s.owner), s.name), s.key)
                      if s.owner_kind == _abi.OWNER_PARAMETER else s.key for s in self.slots]
        self.parameters = sorted(shapes)
        self.end_step = places(self.run, self.slots, _abi.VERB_END_STEP, _abi.OWNER_SESSION, 0)

    def _check_other(self, platform):
        """Raises DeviceError for kernels that cannot take calls of a plugin's platform."""
        opened = self.run.device
        if opened is not None and (opened[0] in DEVICES.values() or opened[1] != 0):
            raise DeviceError(f"platform {platform!r}: expected kernels for its first device, found kernels for device type "
                              f"{opened[0]}, index {opened[1]}; set device.kernels to a plugin that serves index 0 of "
                              f"kind {platform!r}, or leave device.kind out")

    def _check_converts(self, accepted):
        """FP8 without a single linear in FP8 is an error."""
        if accepted:
            return
        reasons = {**self.left_out, **{name: str(v) for name, v in self.verdicts.items()}}
        shown = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:4])
        raise UnsupportedError(
            "the model: expected at least one linear layer that runs in FP8, found none"
            + (f" ({shown})" if shown else " (it has no linear layers)")
            + '; change the model or the configuration, or set mixed_precision = "bf16"')

    def _check_stacks(self, accepted):
        """One program computes all linears of a stack, so they have the same options."""
        options = self.run.layer_options()
        for name, ids, *_ in accepted:
            found = [options.get(f"{name}.{i}", {}) for i in range(len(ids))]
            if len(ids) > 1 and any(one != found[0] for one in found):
                raise UnsupportedError(f"linear {name}: expected the same options for all {len(ids)} stacked linears, found "
                                       f"{', '.join(map(str, found))}; give layers.rule a pattern for all of them")

    def _add(self, name, n, k, dtype, is_frozen):
        flags = _abi.PARAMETER_LINEAR_WEIGHT | (_abi.PARAMETER_FROZEN if is_frozen else 0)
        parameter, verdict = self.run.add_parameter(f"{name}.weight", n, k, ffi.OCTAVO_DTYPES[dtype], flags)
        if not verdict.accepted:
            return None, None, verdict
        linear, verdict = self.run.add_linear(name, parameter)
        return parameter, linear, verdict

    def _spec(self, ids, n, k, dtype, name, is_frozen):
        (parameter, linear), run = ids[0], self.run
        lists = [places(run, self.slots, verb, kind, id) for verb, kind, id in (
            (_abi.VERB_QUANTIZE_WEIGHT, _abi.OWNER_PARAMETER, parameter),
            (_abi.VERB_FORWARD, _abi.OWNER_LINEAR, linear),
            (_abi.VERB_BACKWARD, _abi.OWNER_LINEAR, linear))]
        plan = run.plan(linear)
        owns = not any(p.is_native for p in sum(lists, ()))
        return Spec(self, self.number, name, linear, parameter, len(ids), n, k, dtype, plan,
                    plan.weight_workspace, *lists, evaluates_plain=not owns and not self._in_fp8[name],
                    is_frozen=is_frozen)

    def is_kept(self, slot):
        """Whether a slot is of the state: not the host's own, nor of a declined linear, and not made anew by each
        quantize."""
        is_known = slot.owner_kind == _abi.OWNER_SESSION or slot.owner in self.parameter_names
        return is_known and not slot.flags & _abi.SLOT_NATIVE and (
            slot.access[_abi.VERB_QUANTIZE_WEIGHT] != _abi.ACCESS_WRITE)

    def key(self, slot):
        """The name of a slot of the state, its key in checkpoints; stacked parameters share the first one's."""
        return self._keys[slot.id]

    def close(self):
        """Closes the run; programs that use it fail afterwards. Idempotent."""
        self._release()


def _close(number, run):
    if number:
        ffi.release(number)
    run.close()


def default_platform():
    return jax.default_backend()


def _session_of(id, given):
    known = Session._known.get(id)
    return known if known is not None else Session(*given, id=id)


def open_session(linears, config, overrides, platform, frozen, left_out, layers):
    return Session(Config.of(config, overrides), linears, platform or default_platform(), frozen, left_out, layers)

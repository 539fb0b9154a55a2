"""octavo.telemetry: what the casts of a step recorded, as plain numbers.

A backend that counts (te with `telemetry = true`) has slots for it. They are used only in every Nth step, and read at its end,
once the ranks are combined: in the other steps casts count nothing, and the host reads nothing from the device.
"""
from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from .. import _abi
from ..errors import StateError
from .models import session_of
from .slots import QUIETLY


# Warns once of a layer whose delayed scale does not fit its values: most of them saturate, or all become 0.
#
# Seen at the end of a step, from the maxima and the scales that the step used anyway. On the CPU every step is looked at; on
# other devices, where looking waits for the device, one in EVERY.

EVERY = 256
SATURATES = 8.0  # times the format's largest value: a spike of a few times is what delayed scaling lives with
# Of each operand: the largest value of its format, and half of the smallest, which rounds to 0.
FORMATS = {"x": (448.0, 2.0**-10), "w": (448.0, 2.0**-10), "dy": (57344.0, 2.0**-17)}


def pools(session):
    """[(operand, {what: slot id}, labels)] of te's delayed scales. Until msamp's windows are full its casts use no scale
    of a slot."""
    found = {}
    for slot in session.slots if session.run.backend == "te" else ():
        operand, _, what = slot.name.partition("/")
        if operand in FORMATS and slot.labels and what in ("amax", "amax_history", "scale", "counter"):
            found.setdefault((operand, tuple(slot.labels)), {})[what] = slot.id
    return [(operand, ids, labels) for (operand, labels), ids in found.items() if {"amax", "amax_history", "scale"} <= ids.keys()]


class Watch:
    """The state of one session: which layers were named."""

    def __init__(self, session):
        self._pools = pools(session)
        self._told = set()
        self._steps = 0

    def end_step(self, session):
        """The ranks are combined, and no scale has changed yet."""
        self._steps += 1
        if session.device.type != "cpu" and self._steps % EVERY:
            return
        for operand, ids, labels in self._pools:
            amax = session.tensors[ids["amax"]][0]
            reach = amax * session.tensors[ids["scale"]][0]
            most, least = FORMATS[operand]
            saturates, vanishes = reach > SATURATES * most, (amax > 0) & (reach < least)
            wrong = saturates | vanishes
            if "counter" in ids:  # at 0, casts take their own amax
                wrong &= session.tensors[ids["counter"]][0] > 0
            if bool(wrong.any()):
                self._tell(operand, labels, wrong, saturates, amax)

    def _tell(self, operand, labels, wrong, saturates, amax):
        for column in torch.nonzero(wrong).flatten().tolist():
            key = (operand, labels[column], bool(saturates[column]))
            if key in self._told:
                continue
            self._told.add(key)
            what = ("saturate, since its maxima of earlier steps were smaller" if key[2] else
                    "all become 0, since a maximum of earlier steps was larger")
            warnings.warn(f"octavo: {labels[column]}: values of {operand} {what} (now {amax[column].item():.3g}); "
                          "the scale follows with the next steps, or for an outlier once it leaves the history: take "
                          'recipe = "current" for this layer, or a smaller amax_history_len', stacklevel=4)


ROLES = {_abi.ROLE_AMAX: "amax", _abi.ROLE_AMAX_HISTORY: "amax", _abi.ROLE_SCALE: "scale",
         _abi.ROLE_COUNTER: "counter",
         _abi.ROLE_SATURATED: "saturated", _abi.ROLE_UNDERFLOW: "underflow",
         _abi.ROLE_SIGNAL: "signal", _abi.ROLE_NOISE: "noise"}


def _columns(session):
    """[(operand, tensor, what, slot, column)] of everything that is recorded: "x", "blocks.0.up",
    "amax". Row 0 of a history is live; a live maximum of its own comes before it."""
    found = {}
    for slot in sorted(session.slots, key=lambda s: s.role == _abi.ROLE_AMAX_HISTORY):
        operand, slash, _ = slot.name.partition("/")
        if slot.role in ROLES and slash and slot.dtype == _abi.F32:
            for column, tensor in enumerate(slot.labels):
                found.setdefault((operand, tensor, ROLES[slot.role]), (slot.id, column))
    return [(*key, *place) for key, place in found.items()]


def _sqnr(signal, noise):
    """10 log10(signal / noise) in decibels; None: nothing was lost, or nothing was cast."""
    if not (signal > 0 and noise > 0) or math.isinf(signal) or math.isinf(noise):
        return None
    return 10 * math.log10(signal / noise)


class Telemetry:
    """The state of one session's telemetry: every: steps from one record to the next; 0: none."""

    def __init__(self, session, every):
        self.every = every
        self.taken = None
        self._steps = 0
        self._columns = _columns(session) if every else []
        self._own = []  # casts by their own amax, whose scale the boundary writes
        self._slots = sorted({slot for *_, slot, _ in self._columns})
        self._ask(session)

    def _ask(self, session):
        session.flags.since[QUIETLY] = not self.is_due

    @property
    def is_due(self):
        """Whether the step that runs now is recorded: the first one, and every Nth from there."""
        return self.every > 0 and self._steps % self.every == 0

    def end_step(self, session):
        """Before a boundary, with the records of all ranks."""
        if self.is_due:
            self.taken = {"step": self._steps, "skipped_steps": session.skipped_steps,
                          "casts": self._read(session)}

    def begin_step(self, session):
        """After a boundary."""
        for cast, slot, column in self._own:
            cast["scale"] = session.tensors[slot][0, column].item()
        self._own.clear()
        self._steps += 1
        self._ask(session)

    def _read(self, session):
        rows = [session.tensors[i][0].reshape(-1) for i in self._slots]
        values = torch.cat(rows).tolist() if rows else []  # one copy from the device
        begins, at = {}, 0
        for slot, row in zip(self._slots, rows):
            begins[slot], at = at, at + row.numel()
        casts = {}
        for operand, tensor, what, slot, column in self._columns:
            casts.setdefault((operand, tensor), {})[what] = values[begins[slot] + column]
        out, scales = [], {key[:2]: key[3:] for key in self._columns if key[2] == "scale"}
        for (operand, tensor), numbers in casts.items():
            has_history = numbers.pop("counter", 1.0) > 0
            if "signal" in numbers and "noise" in numbers:
                numbers["sqnr_db"] = _sqnr(numbers.pop("signal"), numbers.pop("noise"))
            out.append({"operand": operand, "tensor": tensor, **numbers})
            if not has_history and (operand, tensor) in scales:
                self._own.append((out[-1], *scales[operand, tensor]))
        return out


def telemetry(model: torch.nn.Module, flat: bool = False) -> dict[str, Any] | None:
    """The values that casts recorded in the last step that octavo.prepare(record_every_n_steps=N) selected. Does not wait for
    the device.

    Args:
        model: A prepared model.
        flat: {"octavo/amax/x/blocks.0.up": 2.5, ...}, only floats, as writers of metrics take them.

    Returns:
        {"step": the number of the step from 0, "skipped_steps": int, "casts": [one dict a tensor that is cast]}; None, or {} with
        flat, before the first step ended. A cast has `operand` ("x", "w", "dy"), `tensor` (the layer, of w the weight), `amax`
        (largest absolute value) and `scale` where the recipe keeps them. With `fp8.te.telemetry = true`, or msamp's for x and
        dy, it also has `saturated` and `underflow` (numbers of elements) and `sqnr_db` (decibels; None: nothing was lost).
        Sums are over all ranks.

    Raises:
        StateError: The model does not record.

    Example:
        >>> writer.add_scalars("octavo", octavo.telemetry(model, flat=True))
    """
    kept = session_of(model).telemetry
    if kept is None or not kept.every:
        raise StateError("octavo.telemetry: expected a model that records, found one prepared without; "
                         "give octavo.prepare(..., record_every_n_steps=25), and set telemetry = true in the backend's table for "
                         "counts")
    if not flat:
        return kept.taken
    if kept.taken is None:
        return {}
    out = {"octavo/skipped_steps": float(kept.taken["skipped_steps"])}
    for cast in kept.taken["casts"]:
        for what, value in cast.items():
            if isinstance(value, float):
                out[f"octavo/{what}/{cast['operand']}/{cast['tensor']}"] = value
    return out

"""Warns once of a layer whose delayed scale does not fit its values: most of them saturate, or all become 0.

Seen at the end of a step, from the maxima and the scales that the step used anyway. On the CPU every step is looked at; on
other devices, where looking waits for the device, one in EVERY.
"""
import warnings

import torch

from .. import _abi

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

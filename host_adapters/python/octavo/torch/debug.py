"""octavo.debug: which layer is at fault. Layers in torch's precision for a while, a search for the layers that
make a step go wrong, and the tensors of a step in a file.

Names are as in octavo.report, with the patterns of layers.skip. For eager code: a compiled model keeps the products
that it was compiled with.
"""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import fnmatch
import glob
import math
from collections.abc import Iterator

import torch

from ..errors import InvalidError, StateError, UnsupportedError
from ..files import replace
from .checkpoint import state
from .export import codes_of_model, safetensors
from .layers.converted import Converted
from .models import session_of


def _converted(model, patterns):
    """{name: converted module} of those that match one of the patterns. Raises InvalidError for a pattern that matches
    none."""
    everything = {name: m for name, m in model.named_modules() if isinstance(m, Converted)}
    found = {}
    for pattern in patterns:
        matched = {name: m for name, m in everything.items() if fnmatch.fnmatchcase(name, pattern)}
        if not matched:
            raise InvalidError(f"octavo.debug: expected a pattern that matches an FP8 layer, found {pattern!r}; the layers "
                               f"are {', '.join(list(everything)[:6])}{' ...' if len(everything) > 6 else ''}")
        found.update(matched)
    return found


@contextlib.contextmanager
def plain(model: torch.nn.Module, *patterns: str) -> Iterator[None]:
    """Inside, these layers of a prepared model multiply as torch does, forward and backward, under the autocast around them.

    octavo.disabled is the same. Their weights, gradients and FP8 state stay where they are.

    Args:
        model: A prepared model.
        patterns: Of names of layers, such as "blocks.0.*"; none: all layers.

    Raises:
        InvalidError: A pattern matches no layer.
        StateError: The model was not prepared.

    Example:
        >>> with octavo.disabled(model):
        ...     loss = evaluate(model)
    """
    session_of(model)
    modules = list(_converted(model, patterns or ("*",)).values())
    names = ["_old_forward" if "_old_forward" in m.__dict__ else "forward" for m in modules]  # of Accelerate's hooks
    forwards = [(m, name, m.__dict__.get(name)) for m, name in zip(modules, names)]
    try:
        for m, name, held in forwards:
            m.__dict__[name] = getattr(held, "octavo_plain", type(m)._octavo_made_of[0].forward.__get__(m))
        yield
    finally:
        for m, name, held in forwards:
            m.__dict__.pop(name, None)
            if held is not None:
                m.__dict__[name] = held


@dataclasses.dataclass(frozen=True)
class Replay:
    layers: tuple  # those that ran in FP8
    value: object  # what step() returned
    is_bad: bool


@dataclasses.dataclass(frozen=True)
class Found:
    """layers: the smallest set that is enough, as found; replays: what was tried, in order."""
    layers: tuple
    replays: tuple

    def __str__(self):
        tried = "\n".join(f"  {len(r.layers):4} layers in FP8: {r.value}{'  bad' if r.is_bad else ''}" for r in self.replays)
        return f"{', '.join(self.layers)}: enough for a bad step, with no other layer in FP8; {len(self.replays)} replays\n{tried}"


class _Snapshot:
    """Everything that a step changes: weights, buffers, FP8 state, the optimizer, random numbers."""

    def __init__(self, model, optimizer):
        self._model, self._optimizer = model, optimizer
        self._weights = copy.deepcopy(model.state_dict())
        self._slots = state.state_dict(model)
        self._moments = None if optimizer is None else copy.deepcopy(optimizer.state_dict())
        self._random = torch.get_rng_state()
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        module = found and torch.get_device_module(found)
        self._device_random = module if hasattr(module, "get_rng_state_all") else None
        self._devices = self._device_random and self._device_random.get_rng_state_all()

    def restore(self):
        for p in self._model.parameters():
            p.grad = None
        self._model.load_state_dict(self._weights)
        if self._moments is not None:
            self._optimizer.load_state_dict(copy.deepcopy(self._moments))
        state.load_state_dict(self._model, self._slots)
        torch.set_rng_state(self._random)
        if self._device_random is not None:
            self._device_random.set_rng_state_all(self._devices)


def bisect(model, step, optimizer=None, *, bad=None, tolerance=0.1):
    """Searches for the layers whose FP8 makes a step go wrong.

    model, optimizer: what octavo.prepare returned, in the state before the step that goes wrong, such as a checkpoint. step()
    trains or evaluates on the same data in each call, and returns the loss, or whatever bad(value) judges. Without `bad`: a
    loss that is not finite, or further than `tolerance` of itself from the loss with all layers in torch's precision, which is
    one more replay. Returns a Found. The model, its FP8 state, the optimizer and the random numbers are as before, also after
    an exception.

    One layer among n is found by ceil(log2 n) replays, and confirmed by another. Each further layer of a set that is only bad
    together takes as many again. A replay restores the state, and runs step() with some of the layers in
    FP8: the first ones of the model, as the search is for the fewest first layers that go wrong.

    Raises StateError where the step goes right with all layers in FP8, or wrong with none.
    """
    if session_of(model).is_sharded:
        raise UnsupportedError("octavo.debug.bisect: expected a model in one process, found shards; load its checkpoint "
                               "into an unsharded model")
    layers = list(_converted(model, ("*",)))
    before, replays = _Snapshot(model, optimizer), []
    reference = []

    def judge(value):
        if bad is not None:
            return bool(bad(value))
        value = float(value)
        return not math.isfinite(value) or abs(value - reference[0]) > tolerance * abs(reference[0])

    def replay(chosen):
        before.restore()
        others = [name for name in layers if name not in chosen]
        with plain(model, *map(glob.escape, others)) if others else contextlib.nullcontext():
            value = step()
        if torch.is_tensor(value):
            value = value.detach().clone()
            value = value.item() if value.numel() == 1 else value
        if bad is None and not chosen and not reference:
            reference.append(float(value))
            if not math.isfinite(reference[0]):
                raise StateError(f"octavo.debug.bisect: expected a loss that is finite with all layers in torch's "
                                 f"precision, found {reference[0]}; FP8 is not what makes it diverge")
        replays.append(Replay(tuple(chosen), value, judge(value)))
        return replays[-1].is_bad

    try:
        if bad is None:
            replay([])
        return Found(tuple(_search(replay, layers)), tuple(replays))
    finally:
        before.restore()


def _search(replay, layers):
    """The layers of a bad set that needs every one of them. replay(layers) -> whether it is bad.

    In each round, the fewest first candidates that are bad together with the needed layers: the last of them is needed, and
    the candidates after it are not.
    """
    needed, candidates = [], layers
    while candidates:
        right, wrong = 0, len(candidates)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if replay(candidates[:middle] + needed):
                wrong = middle
            else:
                right = middle
        needed.insert(0, candidates[wrong - 1])
        if replay(needed):
            return needed
        # That all candidates are bad was assumed so far, which saves a replay where one layer is enough.
        if len(needed) == 1 and not replay(layers):
            raise StateError("octavo.debug.bisect: expected a step that goes wrong with all layers in FP8, found one that "
                             "does not; start from the state before the bad step, with its data")
        candidates = candidates[:wrong - 1]
    raise StateError("octavo.debug.bisect: expected the same result from the same state, found another one; seed the random "
                     "numbers of the step and use the same data in each call")


@contextlib.contextmanager
def dump(model, path, *patterns):
    """Writes the tensors of the layers that match, of the last forward and backward inside, to a file of safetensors:
    "<layer>/x", "/y", "/dy", "/dx" as torch sees them, "/weight", and for the codes that forwards multiply by
    "/weight_codes" and "/weight_scale_inv". Without a pattern: all layers.

    Raises InvalidError for a pattern that matches none, StateError for a model that was not prepared.
    """
    save_file = safetensors("octavo.debug.dump").save_file
    session = session_of(model)
    modules = _converted(model, patterns or ("*",))
    tensors, hooks = {}, []

    def keep(key, value):
        value = value[0] if isinstance(value, tuple) else value
        if torch.is_tensor(value):
            tensors[key] = value.detach().clone().cpu()

    def watch(name, module):
        def forward(_, arguments, y):
            keep(f"{name}/x", arguments)
            keep(f"{name}/y", y)

        def backward(_, dx, dy):
            keep(f"{name}/dx", dx)
            keep(f"{name}/dy", dy)

        hooks.extend((module.register_forward_hook(forward), module.register_full_backward_hook(backward)))

    for name, module in modules.items():
        watch(name, module)
    try:
        yield tensors
    finally:
        for hook in hooks:
            hook.remove()
    found, _ = codes_of_model(model, session)
    for name, module in modules.items():
        if getattr(module, "weight", None) is not None:
            keep(f"{name}/weight", module.state_dict()["weight"])
        if name in found:
            keep(f"{name}/weight_codes", found[name].codes)
            keep(f"{name}/weight_scale_inv", found[name].scale_inv)
    replace(path, lambda partial: save_file({key: t.contiguous() for key, t in tensors.items()}, partial))

"""Octavo with Hugging Face Accelerate.

    from octavo.accelerate import Accelerator     # instead of: from accelerate import Accelerator

makes mixed_precision="fp8" Octavo's, in a script that is otherwise unchanged: every other name of the package accelerate is
also here. And

    model, optimizer, loader = octavo.accelerate.prepare(accelerator, model, optimizer, loader,
                                                         config="octavo.toml")

replaces accelerator.prepare. Calling octavo.prepare before accelerator.prepare gives the same training, for a model on
accelerator.device. In addition, this function includes the FP8 state in save_state and load_state, makes the slots equal on
every rank, and rejects Accelerate's own FP8 mode.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import accelerate
import torch

from . import launched
from .configuration import Configuration
from .errors import InvalidError, OctavoError, UnsupportedError, renamed
from .torch.checkpoint import saved
from .torch.checkpoint.state import state_dict
from .torch.models import is_prepared, session_of
from .torch.optimizer import join
from .torch.prepare import prepare as prepare_model, restore
from .torch.ranks import ddp
from .torch.ranks.owners import expect_whole, full_state


_Plain = accelerate.Accelerator
_INSTEAD = {"FSDP": "set fsdp_version=2", "MEGATRON_LM": "leave its plugin out",
            "DEEPSPEED": "leave its plugin out, and call octavo.deepspeed.initialize"}


def __getattr__(name):
    """A script imports other names in the same line: from accelerate import Accelerator, DistributedType."""
    if name.startswith("_") or not hasattr(accelerate, name):
        raise AttributeError(f"module 'octavo.accelerate' has no attribute {name!r}")
    return getattr(accelerate, name)


def refuse_fp8_of_accelerate(where, precision):
    """Raises UnsupportedError where Accelerate itself would convert models to FP8, by this mixed_precision or because of the
    variables that `accelerate launch --mixed_precision fp8` exports. where: the start of the error's text."""
    backend = os.environ.get(launched.PREFIX + "BACKEND", "NO")
    found = 'mixed_precision "fp8"' if precision == "fp8" else f"{launched.PREFIX}BACKEND={backend}"
    if issubclass(accelerate.Accelerator, Accelerator) or (precision != "fp8" and backend.upper() == "NO"):
        return
    raise UnsupportedError(
        f'{where}: expected mixed_precision "no" or "bf16", found {found}: Accelerate itself would convert the '
        "model; choose bf16, also for accelerate launch, and configure FP8 in octavo.toml, or start the program by "
        "octavo run, which hands its FP8 to Octavo")


def _trains(model):
    return any(p.requires_grad for p in model.parameters())


def _is_new(o):
    """Whether prepare converts it: a model that trains. A frozen one, such as a teacher, runs as Accelerate runs it."""
    return isinstance(o, torch.nn.Module) and not is_prepared(o) and _trains(o)


def _has(optimizer, model):
    """(whether an optimizer has parameters of a model, whether it has no others)."""
    own = {id(p) for p in model.parameters()}
    found = [id(p) in own for group in optimizer.param_groups for p in group["params"]]
    return any(found), all(found)


def _check_plugin(accelerator):
    kind = getattr(getattr(accelerator, "distributed_type", None), "name", "NO")
    if kind in ("DEEPSPEED", "MEGATRON_LM") or (kind == "FSDP" and not accelerator.is_fsdp2):
        found = {"FSDP": "FullyShardedDataParallelPlugin(fsdp_version=1)"}.get(kind, kind)
        raise UnsupportedError(f"accelerator: expected one process, DistributedDataParallel or FSDP2, found {found}; "
                               f"{_INSTEAD[kind]}")


def _joined(optimizer, models):
    """The optimizer that steps these prepared models, given one of some of their parameters: the same one, or the
    backend's."""
    models = [m for m in models if session_of(m).needs_own_optimizer and _has(optimizer, m)[0]]
    if not models:
        return optimizer
    if not _has(optimizer, models[0])[1]:
        session_of(models[0]).expect_weights_in_model(
            "optimizer", "one over several models, or of further parameters,",
            "make one optimizer for each model, of only its parameters")
    return join(models[0], optimizer)


class _Checkpoints:
    """The FP8 states of an accelerator's models, in the order of their preparation, in its checkpoints."""

    def __init__(self, accelerator, choice):
        self._accelerator, self._choice, self.models, self._folder = accelerator, choice, [], None
        accelerator.register_save_state_pre_hook(self._save)
        accelerator.register_load_state_pre_hook(self._check)
        if not isinstance(accelerator, Accelerator):
            accelerator.load_state = functools.partial(self._load_around, accelerator.load_state)

    def _paths(self, folder):
        return [saved.path_in(folder, number) for number in range(len(self.models))]

    def _save(self, models, weights, folder):
        to_each_node = self._accelerator.project_configuration.save_on_each_node
        if self._accelerator.is_local_main_process if to_each_node else self._accelerator.is_main_process:
            for model, path in zip(self.models, self._paths(folder)):
                saved.write(state_dict(model), path)

    def _check(self, models, folder):
        """Before Accelerate loads weights and moments, which the states come after."""
        self._folder = folder
        for path in self._paths(folder):
            saved.expect(os.path.exists(path), path, self._choice)

    def load(self):
        for model, path in zip(self.models, self._paths(self._folder)):
            saved.load(model, (path,), self._choice)

    def _load_around(self, load_state, *args, **kwargs):
        load_state(*args, **kwargs)
        self.load()


def _save_with(accelerator, model, choice):
    kept = accelerator.__dict__.get("octavo_checkpoints")
    if kept is None:
        kept = accelerator.octavo_checkpoints = _Checkpoints(accelerator, choice)
    kept.models.append(model)


def _prepare(accelerator, prepare_rest, objects, options, fp8_state):
    """Converts the models of `objects` that train, joins their optimizers and the optimizers of models of earlier calls, and
    gives all of them, in their order, to prepare_rest."""
    objects = list(objects)
    new = [i for i, o in enumerate(objects) if _is_new(o)]
    optimizers = [i for i, o in enumerate(objects) if isinstance(o, torch.optim.Optimizer)
                  and not isinstance(o, accelerate.optimizer.AcceleratedOptimizer)]
    if new:
        _check_plugin(accelerator)
    shards = getattr(accelerator, "is_fsdp2", False)
    if shards and options.get("shard_optimizer_state"):
        raise UnsupportedError("accelerator: expected DistributedDataParallel with octavo_shard_optimizer_state=True, found "
                               "FSDP2; leave out fsdp_plugin, or octavo_shard_optimizer_state and set fp8.backend = \"te\"")
    if not isinstance(accelerator, Accelerator):
        for module in (o for o in objects if isinstance(o, torch.nn.Module)):
            expect_whole(module, "accelerator", "save_state reads the state of one rank")
    converted, values = [], []
    try:
        for i in new:
            if accelerator.device_placement:  # accelerator.prepare moves it, too, which is too late for slots
                objects[i].to(accelerator.device)
            values += [(p, p.data) for p in objects[i].parameters()]
            # The backend decides about the first optimizer of its own before anything changes.
            own = next((k for k in optimizers if all(_has(objects[k], objects[i]))), None)
            model, joined = prepare_model(objects[i], None if own is None else objects[own], **options)
            converted.append(model)
            if own is not None:
                objects[own] = joined
                optimizers.remove(own)
            if shards:
                session_of(model).expect_weights_in_model("accelerator", "FSDP2", "leave out fsdp_plugin")
        prepared = [m for m in (*objects, *getattr(accelerator, "_models", ()))
                    if isinstance(m, torch.nn.Module) and is_prepared(m)]
        for k in optimizers:
            objects[k] = _joined(objects[k], {session_of(m): m for m in prepared}.values())
    except OctavoError:
        for model in converted:
            restore(model)
        for p, data in values:  # before slots rounded them
            p.data = data
        raise
    made = prepare_rest(*objects)
    for model in converted:
        _save_with(accelerator, model, fp8_state)
    for i in new:
        ddp.join(made[i] if len(objects) > 1 else made)
    return made


@renamed("octavo.accelerate.prepare", filter="module_filter=", gather="fsdp_gather=")
def prepare(accelerator: _Plain, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *rest: Any,
            config: Configuration = None, recipe: str | None = None, skip: Sequence[str] | None = None,
            module_filter: Callable | None = None, overrides: Mapping[str, Any] | None = None,
            fsdp_gather: str | None = None, fp8_state: str = "saved") -> tuple:
    """Calls octavo.prepare, then accelerator.prepare(model, optimizer, *rest), and returns the
    values of the latter.

    config, recipe, skip, module_filter, overrides, fsdp_gather: as in octavo.prepare. Call it on every rank. save_state
    writes the FP8 state as octavo.safetensors, and load_state restores it bit-identically. fp8_state="anew": load_state does
    not read it, and scales start anew: for a checkpoint without FP8, or of another backend, recipe or option.

    Raises UnsupportedError for an accelerator with mixed_precision="fp8", and the errors of
    octavo.prepare. Model and optimizer are then unchanged.
    """
    saved.check("fp8_state", fp8_state)
    if not isinstance(accelerator, Accelerator):
        refuse_fp8_of_accelerate("accelerator", accelerator.mixed_precision)
    return _prepare(accelerator, accelerator.prepare, (model, optimizer, *rest),
                    {"config": config, "recipe": recipe, "skip": skip, "module_filter": module_filter,
                     "overrides": overrides, "fsdp_gather": fsdp_gather}, fp8_state)


class Accelerator(_Plain):
    """accelerate.Accelerator whose mixed_precision="fp8" is Octavo's; with any other one it is the same.

    It takes the arguments of its base class, octavo_config: a file or an octavo.Config, octavo_fsdp_gather and
    octavo_shard_optimizer_state: fsdp_gather and shard_optimizer_state of octavo.prepare, and octavo_fp8_state: fp8_state of
    octavo.accelerate.prepare. With octavo_shard_optimizer_state, save_state, load_state and get_state_dict gather the whole
    state on every rank. Without octavo_config, FP8 is configured by recipe objects of kwargs_handlers, else by the variables
    that `accelerate launch` exports (ACCELERATE_FP8_*), else by the defaults of octavo.prepare. Everything outside of FP8
    layers runs in bf16, as with Accelerate, and mixed_precision is "bf16".

    prepare takes models and optimizers in any number and order, together or in several calls; a model without
    parameters that train is not converted. Raises the errors of octavo.prepare, InvalidError for a malformed variable,
    and UnsupportedError for settings that Octavo does not support.
    """

    octavo_config_of_program = None  # of octavo run, before recipes
    octavo_state_of_program = "saved"

    @renamed("Accelerator", octavo_gather="octavo_fsdp_gather=")
    def __init__(self, *args, octavo_config=None, octavo_fsdp_gather=None, octavo_shard_optimizer_state=None,
                 octavo_fp8_state=None, **kwargs):
        given = inspect.signature(_Plain.__init__).bind(self, *args, **kwargs)
        asked = given.arguments.get("mixed_precision") or os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        self._octavo = None
        if str(getattr(asked, "value", asked)).lower() != "fp8":
            if (octavo_config, octavo_fsdp_gather, octavo_shard_optimizer_state, octavo_fp8_state) != (None,) * 4:
                raise InvalidError("Accelerator: octavo_config, octavo_fsdp_gather, octavo_shard_optimizer_state and "
                                   "octavo_fp8_state are used "
                                   f"with mixed_precision=\"fp8\", found {asked!r}; choose it or leave them out")
        else:
            handlers = [(h, launched.settings_of(h)) for h in given.arguments.get("kwargs_handlers") or ()]
            recipes = [settings for _, settings in handlers if settings is not None]
            if len(recipes) + (octavo_config is not None) > 1:
                raise InvalidError("Accelerator: expected one of octavo_config and a recipe in kwargs_handlers, found "
                                   f"octavo_config={octavo_config!r} and {len(recipes)} recipes; leave the others out")
            given.arguments["kwargs_handlers"] = [h for h, settings in handlers if settings is None] or None
            given.arguments["mixed_precision"] = "bf16"
            config = self.octavo_config_of_program if octavo_config is None else octavo_config
            self._fp8_state = octavo_fp8_state or self.octavo_state_of_program
            saved.check("octavo_fp8_state", self._fp8_state)
            self._octavo = {**launched.settings(config, recipes), "fsdp_gather": octavo_fsdp_gather,
                            "shard_optimizer_state": octavo_shard_optimizer_state}
        super().__init__(*given.args[1:], **given.kwargs)

    @property
    def fp8_backend(self):
        """Empty: Accelerate's own backend would convert the model a second time where the launcher names one."""
        if self._octavo is None:
            return super().fp8_backend
        return accelerate.utils.dataclasses.FP8BackendType.NO

    def prepare(self, *args, **kwargs):
        if self._octavo is None:
            return super().prepare(*args, **kwargs)
        return _prepare(self, lambda *objects: super(Accelerator, self).prepare(*objects, **kwargs), args, self._octavo,
                        self._fp8_state)

    def prepare_model(self, model, device_placement=None, evaluation_mode=False):
        if self._octavo is not None and not evaluation_mode and _is_new(model):
            return self.prepare(model)
        return super().prepare_model(model, device_placement, evaluation_mode)

    def prepare_optimizer(self, optimizer, device_placement=None):
        if self._octavo is not None and not isinstance(optimizer, accelerate.optimizer.AcceleratedOptimizer):
            optimizer = _joined(optimizer, [m for m in self._models if is_prepared(m)])
        return super().prepare_optimizer(optimizer, device_placement)

    def _full_states(self):
        with contextlib.ExitStack() as stack:
            for model in filter(is_prepared, self._models):
                stack.enter_context(full_state(model))
            return stack.pop_all()

    def save_state(self, *args, **kwargs):
        with self._full_states():
            return super().save_state(*args, **kwargs)

    def load_state(self, *args, **kwargs):
        with self._full_states():
            super().load_state(*args, **kwargs)
            if "octavo_checkpoints" in self.__dict__:
                self.octavo_checkpoints.load()

    def get_state_dict(self, model, *args, **kwargs):
        with full_state(model) if is_prepared(model) else contextlib.nullcontext():
            return super().get_state_dict(model, *args, **kwargs)

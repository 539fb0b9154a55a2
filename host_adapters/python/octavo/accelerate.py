"""Octavo with Hugging Face Accelerate.

    from octavo.accelerate import Accelerator     # in place of: from accelerate import Accelerator

makes mixed_precision="fp8" Octavo's, in a script that is otherwise unchanged: every other name of accelerate is here,
too. And

    model, optimizer, loader = octavo.accelerate.prepare(accelerator, model, optimizer, loader,
                                                         config="octavo.toml")

replaces accelerator.prepare. Calling octavo.prepare before accelerator.prepare gives the same
training, for a model on accelerator.device. In addition, this function includes the FP8 state in save_state and load_state, makes the
slots equal on every rank, and rejects the FP8 mode of Accelerate itself.
"""
import contextlib
import inspect
import os

import accelerate
import torch

from . import launched
from .errors import InvalidError, UnsupportedError
from .torch import ddp
from .torch.full_state import expect_whole, full_state
from .torch.prepare import prepare as prepare_model
from .torch.prepared import is_prepared, session_of
from .torch.restore import restore
from .torch.state import Stateful


_INSTEAD = {"FSDP": "set fsdp_version=2", "MEGATRON_LM": "leave its plugin out",
            "DEEPSPEED": "leave its plugin out, and call octavo.deepspeed.initialize"}


def __getattr__(name):
    """A script imports other names in the same line: from accelerate import Accelerator, DistributedType."""
    if name.startswith("_") or not hasattr(accelerate, name):
        raise AttributeError(f"module 'octavo.accelerate' has no attribute {name!r}")
    return getattr(accelerate, name)


def _prepare(accelerator, prepare_rest, objects, options):
    """Converts the one model of `objects`, with its optimizer if there is one, and gives all of them, in their
    order, to prepare_rest."""
    models = [i for i, o in enumerate(objects) if isinstance(o, torch.nn.Module)]
    optimizers = [i for i, o in enumerate(objects) if isinstance(o, torch.optim.Optimizer)]
    if len(models) != 1 or len(optimizers) > 1:
        raise UnsupportedError(f"accelerator.prepare: expected one model and at most one optimizer, found {len(models)} "
                               f"and {len(optimizers)}; call it once for each model, with its optimizer")
    kind = getattr(getattr(accelerator, "distributed_type", None), "name", "NO")
    if kind in ("DEEPSPEED", "MEGATRON_LM") or (kind == "FSDP" and not accelerator.is_fsdp2):
        found = {"FSDP": "FullyShardedDataParallelPlugin(fsdp_version=1)"}.get(kind, kind)
        raise UnsupportedError(f"accelerator: expected one process, DistributedDataParallel or FSDP2, found {found}; "
                               f"{_INSTEAD[kind]}")
    objects, at = list(objects), models[0]
    if not isinstance(accelerator, Accelerator):
        expect_whole(objects[at], "accelerator", "save_state reads the state of one rank")
    if options.get("shard_optimizer_state") and getattr(accelerator, "is_fsdp2", False):
        raise UnsupportedError("accelerator: expected DistributedDataParallel with octavo_shard_optimizer_state=True, found "
                               "FSDP2; leave out fsdp_plugin, or octavo_shard_optimizer_state and set fp8.backend = \"te\"")
    if accelerator.device_placement:  # accelerator.prepare moves it, too, which is too late for slots
        objects[at].to(accelerator.device)
    if optimizers:
        objects[at], objects[optimizers[0]] = prepare_model(objects[at], objects[optimizers[0]], **options)
    else:
        objects[at], _ = prepare_model(objects[at], **options)
    if getattr(accelerator, "is_fsdp2", False):
        try:
            session_of(objects[at]).expect_weights_in_model("accelerator", "FSDP2", "leave out fsdp_plugin")
        except UnsupportedError:
            restore(objects[at])
            raise
    checkpoint = Stateful(objects[at])
    prepared = prepare_rest(*objects)
    accelerator.register_for_checkpointing(checkpoint)
    ddp.join(prepared[at] if len(objects) > 1 else prepared)
    return prepared


def prepare(accelerator, model, optimizer, *rest, config=None, filter=None, overrides=None, gather=None):
    """Calls octavo.prepare, then accelerator.prepare(model, optimizer, *rest), and returns the
    values of the latter.

    config, filter, overrides, gather: as in octavo.prepare. Call it on every rank. The FP8 state is
    registered with the accelerator, so that save_state and load_state restore it bit for bit.
    Accelerate identifies registered objects by their order: register other objects in the same
    order in every run.

    Raises UnsupportedError for an accelerator with mixed_precision="fp8", and the errors of
    octavo.prepare. Model and optimizer are then unchanged.
    """
    if accelerator.mixed_precision == "fp8":
        raise UnsupportedError(
            'accelerator: expected mixed_precision "no" or "bf16", found "fp8", which would '
            "convert the model a second time; choose bf16 and configure FP8 in octavo.toml")
    return _prepare(accelerator, accelerator.prepare, (model, optimizer, *rest),
                    {"config": config, "filter": filter, "overrides": overrides, "gather": gather})


class Accelerator(accelerate.Accelerator):
    """accelerate.Accelerator whose mixed_precision="fp8" is Octavo's; with any other one it is the same.

    It takes the arguments of its base class, octavo_config: a file or an octavo.Config, and octavo_gather and
    octavo_shard_optimizer_state: gather and shard_optimizer_state of octavo.prepare. With the latter, save_state, load_state and
    get_state_dict gather the whole state on every rank. Without
    octavo_config, FP8 is configured by recipe objects of kwargs_handlers, else by what `accelerate launch`
    exports (ACCELERATE_FP8_*), else by the defaults of octavo.prepare. Everything outside of FP8 layers
    runs in bf16, as with Accelerate, and mixed_precision is "bf16".

    prepare takes one model with at most one optimizer in a call. Raises the errors of octavo.prepare,
    InvalidError for a malformed variable, and UnsupportedError for settings that Octavo has not.
    """

    def __init__(self, *args, octavo_config=None, octavo_gather=None, octavo_shard_optimizer_state=None, **kwargs):
        given = inspect.signature(accelerate.Accelerator.__init__).bind(self, *args, **kwargs)
        asked = given.arguments.get("mixed_precision") or os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        self._octavo = None
        if str(getattr(asked, "value", asked)).lower() != "fp8":
            if (octavo_config, octavo_gather, octavo_shard_optimizer_state) != (None, None, None):
                raise InvalidError("Accelerator: octavo_config, octavo_gather and octavo_shard_optimizer_state are used "
                                   f"with mixed_precision=\"fp8\", found {asked!r}; choose it or leave them out")
        else:
            handlers = [(h, launched.settings_of(h)) for h in given.arguments.get("kwargs_handlers") or ()]
            recipes = [settings for _, settings in handlers if settings is not None]
            if len(recipes) + (octavo_config is not None) > 1:
                raise InvalidError("Accelerator: expected one of octavo_config and a recipe in kwargs_handlers, found "
                                   f"octavo_config={octavo_config!r} and {len(recipes)} recipes; leave the others out")
            given.arguments["kwargs_handlers"] = [h for h, settings in handlers if settings is None] or None
            given.arguments["mixed_precision"] = "bf16"
            self._octavo = {"config": octavo_config, "gather": octavo_gather,
                            "shard_optimizer_state": octavo_shard_optimizer_state}
            if octavo_config is None:
                from_launcher = any(name.startswith(launched.PREFIX) for name in os.environ)
                if recipes or from_launcher:
                    self._octavo["overrides"] = launched.overrides(recipes[0] if recipes else os.environ)
        super().__init__(*given.args[1:], **given.kwargs)

    @property
    def fp8_backend(self):
        """None of Accelerate's own: it would convert the model a second time where the launcher names one."""
        if self._octavo is None:
            return super().fp8_backend
        return accelerate.utils.dataclasses.FP8BackendType.NO

    def prepare(self, *args, **kwargs):
        is_new = any(isinstance(o, torch.nn.Module) and not is_prepared(o) for o in args)
        if self._octavo is None or not is_new:
            return super().prepare(*args, **kwargs)
        return _prepare(self, lambda *objects: super(Accelerator, self).prepare(*objects, **kwargs), args, self._octavo)

    def prepare_model(self, model, device_placement=None, evaluation_mode=False):
        if self._octavo is not None and not evaluation_mode and not is_prepared(model):
            return self.prepare(model)
        return super().prepare_model(model, device_placement, evaluation_mode)

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
            return super().load_state(*args, **kwargs)

    def get_state_dict(self, model, *args, **kwargs):
        with full_state(model) if is_prepared(model) else contextlib.nullcontext():
            return super().get_state_dict(model, *args, **kwargs)

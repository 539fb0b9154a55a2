"""Octavo with Lightning.

    trainer = Trainer(plugins=[OctavoPrecision("octavo.toml")])

replaces precision="bf16-mixed": bf16 autocast, and FP8 in the linear layers.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.plugins.precision import Precision

from .configuration import Configuration
from .errors import StateError, UnsupportedError, renamed
from .torch import optimizer as optimizers
from .torch.checkpoint import saved
from .torch.checkpoint.state import state_dict
from .torch.models import session_of
from .torch.prepare import prepare
from .torch.ranks import ddp
from .torch.ranks.owners import expect_whole
from .torch.report import report
from .torch.telemetry import telemetry


class OctavoPrecision(Precision):
    """A precision plugin for one LightningModule at a time.

    config, recipe, skip, module_filter, overrides, fsdp_gather, record_every_n_steps: as in octavo.prepare. The module is
    converted in place before configure_optimizers runs. A backend with its own Adam replaces each Adam or AdamW that
    configure_optimizers returns. Weights that are frozen then may train later. Lightning's checkpoints include the FP8
    state, which `ckpt_path` reads. fp8_state="anew": it is not read, and scales start anew: for a checkpoint without FP8,
    or of another backend, recipe or option. The Trainer's loggers get what octavo.telemetry(flat=True) gives of each step
    that is recorded.
    """
    precision = "bf16-mixed"

    @renamed("OctavoPrecision", filter="module_filter=", gather="fsdp_gather=", telemetry="record_every_n_steps=")
    def __init__(self, config: Configuration = None, *, recipe: str | None = None, skip: Sequence[str] | None = None,
                 module_filter: Callable | None = None, overrides: Mapping[str, Any] | None = None,
                 fsdp_gather: str | None = None, record_every_n_steps: int = 0, fp8_state: str = "saved") -> None:
        saved.check("fp8_state", fp8_state)
        self._fp8_state = fp8_state
        self._arguments = dict(config=config, recipe=recipe, skip=skip, module_filter=module_filter, overrides=overrides,
                               fsdp_gather=fsdp_gather, record_every_n_steps=record_every_n_steps)
        self._module = None
        self._logged = None  # the step whose telemetry the loggers have

    def convert_module(self, module):
        expect_whole(module, "OctavoPrecision", "Lightning reads the state of the rank that saves")
        trainer = getattr(module, "_trainer", None)
        if trainer is not None:  # Lightning moves the module after this, which is too late for slots
            module.to(trainer.strategy.root_device)
        try:
            session_of(module)
        except StateError:
            prepare(module, None, **self._arguments)
        self._module = module
        return module

    def connect(self, model, optimizers_made, lr_schedulers):
        session = session_of(model)
        out = []
        for made in optimizers_made:
            joined = optimizers.joined(session, made)
            for config in lr_schedulers:
                if config.scheduler.optimizer is made:
                    config.scheduler.optimizer = joined
            out.append(joined)
        ddp.join(model)
        return model, out, lr_schedulers

    def _follow(self):
        """Weights that a callback, such as BackboneFinetuning, let train since the conversion train from here on."""
        weights = session_of(self._module).weights if self._module is not None else ()
        if any(w.is_frozen and w.parameter.requires_grad for w in weights):
            prepare(self._module, None, module_filter=self._arguments["module_filter"],
                    record_every_n_steps=self._arguments["record_every_n_steps"])

    @contextlib.contextmanager
    def train_step_context(self):
        self._follow()
        with self.forward_context():
            yield

    @contextlib.contextmanager
    def forward_context(self):
        device = next(self._module.parameters()).device.type if self._module is not None else "cpu"
        with torch.autocast(device, dtype=torch.bfloat16):
            yield

    def optimizer_step(self, optimizer, model, closure, **kwargs):
        """Runs forward and backward, clips the gradients, then steps the optimizer. Whatever the
        hooks of the optimizer inspect, such as an Inf in the gradients, exists before the step."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UnsupportedError(
                "optimizer: expected one that computes gradients once per step, found LBFGS; use "
                "another optimizer with OctavoPrecision")
        result = functools.partial(self._wrap_closure, model, optimizer, closure)()
        optimizer.step(**kwargs)
        if self._arguments["record_every_n_steps"]:
            self._log(model)
        return result

    def _log(self, model):
        taken = telemetry(model)
        if taken is None or taken["step"] == self._logged:
            return
        self._logged = taken["step"]
        for logger in model.trainer.loggers:
            logger.log_metrics(telemetry(model, flat=True), step=taken["step"])

    def report(self, format="text"):
        """octavo.report of the module. Raises StateError before there is a module."""
        if self._module is None:
            raise StateError("OctavoPrecision: expected a module, found none yet; call trainer.fit "
                             "before report")
        return report(self._module, format)

    def state_dict(self):
        return state_dict(self._module) if self._module is not None else {}

    def on_load_checkpoint(self, checkpoint):
        """Lightning calls load_state_dict after it, where the checkpoint has a state."""
        name = type(self).__qualname__
        is_there = bool(checkpoint.get(name))
        saved.expect(is_there, f"the entry {name} of the checkpoint", self._fp8_state)
        if not is_there:
            saved.begin_anew(self._module)

    def load_state_dict(self, state):
        if state:
            saved.load(self._module, state, self._fp8_state)

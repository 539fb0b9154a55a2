"""Octavo with Hugging Face transformers' Trainer.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[OctavoCallback("octavo.toml")])

The model is converted when the Trainer is created, before any optimizer exists. The optimizer is
joined when training starts. Subclasses of Trainer also work. msamp requires torch's Adam or AdamW; te works with any
optimizer.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import transformers
from .accelerate import refuse_fp8_of_accelerate
from .configuration import Configuration
from .errors import StateError, UnsupportedError, renamed
from .torch import optimizer as optimizers
from .torch.checkpoint import saved
from .torch.checkpoint.saved import FILE
from .torch.checkpoint.state import state_dict
from .torch.models import session_of
from .torch.prepare import prepare
from .torch.ranks import ddp
from .torch.ranks.owners import expect_whole
from .torch.report import report
from .torch.steps import layers_without_calls
from .torch.telemetry import telemetry

_log = logging.getLogger("octavo")


class OctavoCallback(transformers.TrainerCallback):
    """Converts the model of one Trainer and saves its FP8 state.

    Pass it in the Trainer's argument `callbacks`. A callback that is added later is too late,
    because the Trainer has used the model by then.

    config, recipe, skip, module_filter, overrides, fsdp_gather, record_every_n_steps: as in octavo.prepare. The FP8 state
    is saved as octavo.safetensors in each checkpoint folder. When training resumes, it is read from the folder `resume` if
    given, then from args.resume_from_checkpoint, then from the folder of the step in args.output_dir. fp8_state="anew": it
    is not read, and scales start anew: for a checkpoint without FP8, or of another backend, recipe or option.

    octavo_fp8_layers (layers that made an FP8 call), octavo_layers_without_calls (placed in FP8, and made none),
    octavo_host_layers, octavo_skipped_steps and what octavo.telemetry(flat=True) gives are added to the Trainer's
    log_history and to the logs that later callbacks receive. The logger "octavo" receives the report when training starts. A
    warning after the first step names layers without calls.
    """

    @renamed("OctavoCallback", filter="module_filter=", gather="fsdp_gather=", telemetry="record_every_n_steps=")
    def __init__(self, config: Configuration = None, *, recipe: str | None = None, skip: Sequence[str] | None = None,
                 module_filter: Callable | None = None, overrides: Mapping[str, Any] | None = None,
                 fsdp_gather: str | None = None, resume: str | os.PathLike[str] | None = None,
                 record_every_n_steps: int = 0, fp8_state: str = "saved") -> None:
        saved.check("fp8_state", fp8_state)
        # The Trainer makes its Accelerator, which reads this variable, before its first event.
        refuse_fp8_of_accelerate("OctavoCallback", os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower())
        self._arguments = dict(config=config, recipe=recipe, skip=skip, module_filter=module_filter, overrides=overrides,
                               fsdp_gather=fsdp_gather, record_every_n_steps=record_every_n_steps)
        self._resume, self._fp8_state = resume, fp8_state
        self._joined = None  # the torch optimizer that steps the model

    def on_init_end(self, args, state, control, model=None, **kwargs):
        refuse_fp8_of_accelerate("OctavoCallback", getattr(args, "mixed_precision", "no"))
        expect_whole(model, "OctavoCallback", "the Trainer saves models only on one rank")
        prepare(model, None, **self._arguments)

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        try:
            session = session_of(model)
        except StateError as e:
            raise StateError(
                "OctavoCallback: expected the model that the Trainer was created with, found "
                "another one; pass the callback as Trainer(callbacks=[...]), and pass model "
                "instead of model_init") from e
        self._join(session, optimizer)
        if state.global_step > 0:
            self._load(args, state, model)
        ddp.join(model)
        _log.info("%s", report(model))

    def _join(self, session, optimizer):
        """Joins the Trainer's optimizer. Its wrapper then wraps the backend's Adam, if there is
        one."""
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is self._joined:
            return
        loaded = inner.state_dict() if session.needs_own_optimizer and inner.state else None
        if loaded is not None:  # the Trainer has loaded a checkpoint with moments, which are the backend's from here on
            inner.state.clear()
        joined = optimizers.joined(session, inner)
        if loaded is not None:
            joined.load_state_dict(loaded)
        if joined is not inner:
            if inner is optimizer or optimizer.scaler is not None:
                raise UnsupportedError(
                    "Trainer: expected bf16=True or full precision with backend "
                    f"{session.run.backend}, which keeps weights in slots, found an optimizer with "
                    "a gradient scaler; set bf16=True and fp16=False")
            optimizer.optimizer = joined
        self._joined = joined

    def _load(self, args, state, model):
        folders = [self._resume, args.resume_from_checkpoint, _folder(args, state)]
        folder = next(f for f in folders if isinstance(f, (str, os.PathLike)))
        path = saved.path_in(folder)
        saved.expect(os.path.exists(path), path, self._fp8_state, ", or pass OctavoCallback(resume=<the folder that has it>)")
        saved.load(model, (path, state.global_step), self._fp8_state)

    def on_save(self, args, state, control, model=None, **kwargs):
        if args.should_save:
            folder = _folder(args, state)
            os.makedirs(folder, exist_ok=True)
            saved.write(state_dict(model), saved.path_in(folder), state.global_step)

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        """With enable_jit_checkpoint the Trainer saves after SIGTERM in one of these events, before it stops, and
        sends no on_save."""
        if control.should_training_stop and os.path.isdir(folder := _folder(args, state)):
            if not os.path.exists(os.path.join(folder, FILE)):
                self.on_save(args, state, control, model)

    on_pre_optimizer_step = on_step_end = on_epoch_end = on_step_begin

    def on_log(self, args, state, control, model=None, logs=None, **kwargs):
        session = session_of(model)
        idle = layers_without_calls(session)
        values = {"octavo_fp8_layers": len(session.sites) - len(idle), "octavo_layers_without_calls": len(idle),
                  "octavo_host_layers": len(session.verdicts) - len(session.sites),
                  "octavo_skipped_steps": session.skipped_steps}
        if self._arguments["record_every_n_steps"]:
            values.update(telemetry(model, flat=True))
        if logs is not None:
            logs.update(values)
        if state.log_history:
            state.log_history[-1].update(values)


def _folder(args, state):
    return os.path.join(args.output_dir, f"checkpoint-{state.global_step}")

"""Octavo under the Trainer of Hugging Face transformers.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[OctavoCallback("octavo.toml")])

The model is converted when the Trainer is made, before any optimizer exists; the optimizer is
joined when training begins. Works with subclasses of Trainer. msamp needs torch's Adam or AdamW, te
takes any optimizer.
"""
import logging
import os

import transformers
from safetensors.torch import load_file, save_file

from .errors import InvalidError, StateError, UnsupportedError
from .torch import ddp
from .torch import optimizer as optimizers
from .torch.prepare import prepare, session_of
from .torch.state import load_state_dict, report, state_dict

FILE = "octavo.safetensors"
_log = logging.getLogger("octavo")


class OctavoCallback(transformers.TrainerCallback):
    """One for each Trainer, in its argument `callbacks`: a callback that is added later comes after
    the model was needed.

    config, filter, overrides: as for octavo.prepare. Each checkpoint folder gets FP8 state as
    octavo.safetensors. Resuming reads it from args.resume_from_checkpoint, else from the folder of
    this step in args.output_dir; resume: another folder to read it from.
    The Trainer's log gets octavo_fp8_layers, octavo_host_layers and octavo_skipped_steps (its
    log_history, and callbacks that come later); the logger "octavo" gets the report when training
    begins.
    """

    def __init__(self, config=None, *, filter=None, overrides=None, resume=None):
        self._arguments = dict(config=config, filter=filter, overrides=overrides)
        self._resume = resume
        self._joined = None  # the torch optimizer whose steps are hooked
        self.counts = {}     # what goes into every log

    def on_init_end(self, args, state, control, model=None, **kwargs):
        prepare(model, None, **self._arguments)

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        try:
            session = session_of(model)
        except StateError as e:
            raise StateError(
                "OctavoCallback: expected the model that the Trainer was made with, found another "
                "one; give the callback to Trainer(callbacks=[...]) and the model itself instead "
                "of model_init") from e
        self._join(session, optimizer)
        if state.global_step > 0:
            self._load(args, state, model)
        ddp.join(model)
        fp8 = sum(v.accepted for v in session.verdicts.values())
        self.counts = {"octavo_fp8_layers": fp8,
                       "octavo_host_layers": len(session.verdicts) - fp8}
        _log.info("%s", report(model))

    def _join(self, session, optimizer):
        """Joins what the Trainer made; its wrapper keeps its place around the backend's Adam."""
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is self._joined:
            return
        joined = optimizers.join(session, inner)
        if joined is not inner:
            if inner is optimizer or optimizer.scaler is not None:
                raise UnsupportedError(
                    "Trainer: expected bf16=True or full precision with a backend that keeps "
                    f"weights in slots, {session.run.backend}, found an optimizer with a gradient "
                    "scaler; set bf16=True and fp16=False")
            optimizer.optimizer = joined
        optimizers.hook(session, joined)
        self._joined = joined

    def _load(self, args, state, model):
        folders = [self._resume, args.resume_from_checkpoint,
                   os.path.join(args.output_dir, f"checkpoint-{state.global_step}")]
        folder = next(f for f in folders if isinstance(f, (str, os.PathLike)))
        path = os.path.join(folder, FILE)
        if not os.path.exists(path):
            raise InvalidError(
                f"resuming at step {state.global_step}: expected FP8 state in {path}, found none; "
                "give OctavoCallback(resume=<the checkpoint's folder>)")
        load_state_dict(model, load_file(path))

    def on_save(self, args, state, control, model=None, **kwargs):
        if args.should_save:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            os.makedirs(folder, exist_ok=True)
            partial = os.path.join(folder, FILE + ".partial")
            save_file(state_dict(model), partial)
            os.replace(partial, os.path.join(folder, FILE))

    def on_log(self, args, state, control, model=None, logs=None, **kwargs):
        values = {**self.counts, "octavo_skipped_steps": session_of(model).skipped_steps}
        if logs is not None:
            logs.update(values)
        if state.log_history:
            state.log_history[-1].update(values)

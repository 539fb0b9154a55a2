"""Octavo with Hugging Face Accelerate.

    model, optimizer, loader = octavo.accelerate.prepare(accelerator, model, optimizer, loader,
                                                         config="octavo.toml")

replaces accelerator.prepare. Calling octavo.prepare before accelerator.prepare gives the same
training, for a model on accelerator.device. In addition, this function includes the FP8 state in save_state and load_state, makes the
slots equal on every rank, and rejects the FP8 mode of Accelerate itself.
"""
from .errors import UnsupportedError
from .torch import ddp
from .torch.prepare import prepare as prepare_model
from .torch.state import load_state_dict, state_dict


class Checkpoint:
    """The FP8 state of a prepared model, for accelerator.register_for_checkpointing."""

    def __init__(self, model):
        self._model = model

    def state_dict(self):
        return state_dict(self._model)

    def load_state_dict(self, state):
        load_state_dict(self._model, state)


def prepare(accelerator, model, optimizer, *rest, config=None, filter=None, overrides=None):
    """Calls octavo.prepare, then accelerator.prepare(model, optimizer, *rest), and returns the
    values of the latter.

    config, filter, overrides: as in octavo.prepare. Call it on every rank. The FP8 state is
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
    if accelerator.device_placement:  # accelerator.prepare moves it, too, which is too late for slots
        model.to(accelerator.device)
    model, optimizer = prepare_model(model, optimizer, config, filter=filter, overrides=overrides)
    checkpoint = Checkpoint(model)
    prepared = accelerator.prepare(model, optimizer, *rest)
    accelerator.register_for_checkpointing(checkpoint)
    ddp.join(prepared[0])
    return prepared

"""Octavo under Hugging Face Accelerate.

    model, optimizer, loader = octavo.accelerate.prepare(accelerator, model, optimizer, loader,
                                                         config="octavo.toml")

takes the place of accelerator.prepare. Plain octavo.prepare before accelerator.prepare trains the
same; what this adds is FP8 state in save_state and load_state, equal slots on every rank, and a
refusal of Accelerate's own FP8.
"""
from .errors import UnsupportedError
from .torch import ddp
from .torch.prepare import prepare as prepare_model
from .torch.state import load_state_dict, state_dict


class Checkpoint:
    """FP8 state of one prepared model, for accelerator.register_for_checkpointing."""

    def __init__(self, model):
        self._model = model

    def state_dict(self):
        return state_dict(self._model)

    def load_state_dict(self, state):
        load_state_dict(self._model, state)


def prepare(accelerator, model, optimizer, *rest, config=None, filter=None, overrides=None):
    """octavo.prepare, then accelerator.prepare(model, optimizer, *rest), whose values it returns.

    config, filter, overrides: as for octavo.prepare. Registers the FP8 state with the accelerator,
    so that save_state and load_state restore it bit for bit; objects for checkpointing are told
    apart by their order, so register others in the same order each time. Every rank calls it.
    Raises UnsupportedError for an accelerator with mixed_precision="fp8", and what octavo.prepare
    raises; then model and optimizer are as they were.
    """
    if accelerator.mixed_precision == "fp8":
        raise UnsupportedError(
            'accelerator: expected mixed_precision "no" or "bf16", found "fp8", which would '
            "convert the model a second time; choose bf16, FP8 comes from octavo.toml")
    model, optimizer = prepare_model(model, optimizer, config, filter=filter, overrides=overrides)
    checkpoint = Checkpoint(model)
    prepared = accelerator.prepare(model, optimizer, *rest)
    accelerator.register_for_checkpointing(checkpoint)
    ddp.join(prepared[0])
    return prepared

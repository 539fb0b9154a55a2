"""The FP8 state in a framework's checkpoint: the file octavo.safetensors next to the model's, and the choice whether it is
read. Every framework has the same choice and the same words."""
import os

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ... import _abi
from ...errors import InvalidError, ResourceError
from ...files import opened, replace
from ..models import session_of
from ..slots import is_released
from .state import load_state_dict

FILE = "octavo.safetensors"
STEP = "octavo.step"
CHOICES = ("saved", "anew")
ANEW = 'start it anew with the weights of the checkpoint by fp8_state="anew"'


def check(name, choice):
    """Raises InvalidError for another choice. name: of the argument."""
    if choice not in CHOICES:
        raise InvalidError(f'{name}: expected "saved" or "anew", found {choice!r}; choose one')


def write(tensors, path, step=None):
    """Writes the result of octavo.state_dict. Raises ResourceError where that fails; the file that was there stays then."""
    texts = {} if step is None else {STEP: str(step)}
    try:
        replace(path, lambda partial: save_file(tensors, partial, metadata=texts))
    except (OSError, SafetensorError) as e:
        raise ResourceError(f"{path}: expected to write it, found: {e}; free the disk or choose another folder, then save "
                            "again") from e


def read(path, step=None):
    """Its tensors. Raises InvalidError for a file that is damaged or of another step."""
    opened(path).close()  # safe_open would wait for a FIFO
    try:
        with safe_open(path, "pt") as file:
            found = (file.metadata() or {}).get(STEP)
            tensors = {key: file.get_tensor(key) for key in file.keys()}
    except SafetensorError as e:
        raise InvalidError(f"{path}: expected a file of safetensors, found a damaged one: {e}; resume from "
                           "another checkpoint") from e
    if step is not None and found != str(step):
        raise InvalidError(f"{path}: expected the FP8 state of step {step}, found step {found}; put "
                           "the files of one checkpoint into one folder")
    return tensors


def expect(is_there, where, choice, otherwise=""):
    """Raises InvalidError for a checkpoint without the FP8 state that this choice reads. otherwise: a further remedy."""
    if choice == "saved" and not is_there:
        raise InvalidError(f"expected FP8 state in {where}, found none; {ANEW}{otherwise}")


def load(model, state, choice):
    """Restores the FP8 state, or starts it anew, after the model and the optimizer were loaded. state: the tensors, or the
    path of a file and the step that it must be of."""
    if choice == "anew":
        return begin_anew(model)
    load_state_dict(model, read(*state) if isinstance(state, tuple) else state)


def begin_anew(model):
    """Scales and histories as octavo.prepare makes them. A backend's slots of parameters, such as weights and moments, stay as
    they were loaded."""
    session = session_of(model)
    session.settle_all()
    for slot, tensor in zip(session.slots, session.tensors):
        if slot.owner_kind != _abi.OWNER_PARAMETER and tensor is not None and not is_released(tensor):
            tensor.fill_(slot.initial)
    session.slots_changed()


def path_in(folder, number=0):
    """Where the state of a model is: the first one, the second one, ..."""
    return os.path.join(folder, FILE if number == 0 else FILE.replace(".", f"_{number}."))

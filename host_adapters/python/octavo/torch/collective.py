"""The collectives of torch.distributed, with errors of this package."""
import torch.distributed as dist

from .. import _abi
from ..errors import DeviceError
from . import ops


def deadline_of(group, device):
    """How long a collective of a group waits, as a timedelta; None where its backend does not say. device: of the
    tensors."""
    try:
        return (group or dist.group.WORLD)._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        return None


def collective(session, what, call, *arguments, group=None, **options):
    """Calls a collective of a session, or waits for one. what: its purpose, for the error. group: also given to the
    call, unless it waits. Raises DeviceError when a rank of the group does not answer within the group's timeout,
    where torch raises a RuntimeError in the words of its transport."""
    try:
        return call(*arguments, **options) if group is None else call(*arguments, group=group, **options)
    except RuntimeError as e:
        deadline = deadline_of(group or session.group, session.device)
        within = "its timeout" if deadline is None else f"its timeout of {deadline.total_seconds():g} s"
        step = ops.calls(session.number, _abi.VERB_END_STEP) + 1
        raise DeviceError(
            f"{what}, in step {step} of this process: expected an answer of every rank of the group within {within}, "
            f"found: {e}; a rank has ended or hangs: see what it printed last, then start every rank again from a "
            "checkpoint") from e

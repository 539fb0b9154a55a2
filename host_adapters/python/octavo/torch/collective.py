"""The collectives of torch.distributed, with errors of this package."""
from ..errors import DeviceError


def collective(call, *arguments, **options):
    """Calls a collective, or waits for one. Raises DeviceError when a rank of the group does not answer, where
    torch raises a RuntimeError in the words of its transport."""
    try:
        return call(*arguments, **options)
    except RuntimeError as e:
        raise DeviceError(
            f"a collective: expected an answer of every rank of the group within its timeout, found: {e}; a rank has "
            "ended or hangs: see what it printed last, then start every rank again from a checkpoint") from e

"""The stages of octavo.gradients/1 as the adapters' libraries plan them."""
import ctypes

from .errors import InternalError, error

NONE, ALL_REDUCE_MAX, ALL_REDUCE_SUM, ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER_SUM = range(6)


class Stage(ctypes.Structure):
    """As octavo_gradient_stage."""
    _fields_ = [("size", ctypes.c_uint32), ("kind", ctypes.c_uint32),
                ("collective", ctypes.c_uint32), ("dtype", ctypes.c_uint32),
                ("send_count", ctypes.c_uint64), ("recv_count", ctypes.c_uint64)]


class Sizes(ctypes.Structure):
    _fields_ = [("stage_count", ctypes.c_uint64), ("buffer_bytes", ctypes.c_uint64),
                ("state_bytes", ctypes.c_uint64)]


_MOST_STAGES = 64
# The last parameters of a library's function: stages, their capacity, sizes.
OUTPUTS = [ctypes.POINTER(Stage), ctypes.c_uint64, ctypes.POINTER(Sizes)]


def collect(take_diagnostics, function, *arguments):
    """([Stage], bytes of send and of recv, bytes of state) by a library's function that plans a reduction.
    Raises the error of the backend's status, with the text that take_diagnostics returns."""
    found, sizes = (Stage * _MOST_STAGES)(), Sizes()
    status = function(*arguments, found, _MOST_STAGES, ctypes.byref(sizes))
    if status:
        raise error(status, take_diagnostics() or f"plan_reduction returned status {status}")
    if sizes.stage_count > _MOST_STAGES:
        raise InternalError(f"plan_reduction: expected at most {_MOST_STAGES} stages, found "
                            f"{sizes.stage_count}; correct the backend")
    return list(found[:sizes.stage_count]), sizes.buffer_bytes, sizes.state_bytes

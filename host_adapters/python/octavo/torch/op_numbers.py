"""Numbers of the ops: flags, special versions, dtypes."""
import torch

from .. import _abi

# Flags of linear_forward: `saved` stays empty; casts record nothing.
NO_BACKWARD, QUIET, ASKED = 256, 512, 1024
# Flags of linear_backward: the op records that it added to a gradient slot; FSDP gathered the weight; its
# codes.
OF_GRAPH, OF_GATHERED, OF_PACKED = 256, 512, 1024
# version of linear_forward: the op asks torch for the weight's; there is none (inference tensors);
# FSDP gathered the weight, and Flags alone say what is stale; it gathered its codes, and there is no weight.
ASK_TORCH, NO_VERSION, GATHERED, PACKED = -1, -2, -4, -5
WANT_DX, WANT_DW, WANT_DB = 1, 2, 4
PROLOGUE_LAYER_NORM, PROLOGUE_RMS_NORM, PROLOGUE_SWIGLU = 1, 2, 5

DTYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16, torch.float16: _abi.F16}
TORCH_DTYPES = {_abi.F32: torch.float32, _abi.BF16: torch.bfloat16, _abi.F16: torch.float16,
                _abi.I32: torch.int32}

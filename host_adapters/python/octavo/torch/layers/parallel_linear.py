"""The forward of a linear that parallelize_module sharded; see ranks/tensor_parallel.py."""
import math

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ...errors import StateError
from ..models import is_dtensor
from .linear import Linear, linear


class _AddOnce(torch.autograd.Function):
    """y + bias on the first rank, y on the others. All derive the same gradient of the bias."""

    @staticmethod
    def forward(ctx, y, bias, is_first):
        ctx.bias_dtype = bias.dtype
        return y + bias.to(y.dtype) if is_first else y.view_as(y)

    @staticmethod
    def backward(ctx, dy):
        db = dy.sum(dim=tuple(range(dy.dim() - 1)), dtype=torch.float32) if ctx.needs_input_grad[1] else None
        return dy, db if db is None else db.to(ctx.bias_dtype), None


class ParallelLinear(Linear):
    """torch.nn.Linear whose parameters are DTensors of ColwiseParallel or RowwiseParallel."""

    def forward(self, x):
        """x: a DTensor [..., K] on the mesh of the weight, as the styles make it. Returns one [..., N]:
        sharded in its last dimension by ColwiseParallel, a partial sum by RowwiseParallel, so that torch
        communicates as it does for a plain linear. Raises StateError for a plain x."""
        return _forward(self.octavo_site, x, self.weight, self.bias, self.training)


def _forward(site, x, weight, bias, training):
    style = site.weight.parallel
    if not is_dtensor(x) or x.device_mesh != style.mesh:
        raise StateError(f"{site.name}: expected a DTensor on the mesh of the weight, found {type(x).__name__}; "
                         "call the module that parallelize_module changed, and not its forward")
    last = x.dim() - 1
    wanted = Replicate() if style.by_rows else Shard(last)
    if x.placements != (wanted,):
        x = x.redistribute(style.mesh, (wanted,))
    rows, n = x.shape[:-1], weight.shape[0]
    x = x.to_local(grad_placements=(Partial(),) if style.by_rows else None)
    with_bias = bias is not None and style.by_rows
    y = linear(site, x, weight.to_local(), bias.to_local() if with_bias else None, training)
    if bias is not None and not with_bias:
        y = _AddOnce.apply(y, bias.to_local(), style.is_first)
    shape = (*rows, n)
    stride = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    return DTensor.from_local(y, style.mesh, (Shard(last) if style.by_rows else Partial(),), run_check=False,
                              shape=torch.Size(shape), stride=stride)

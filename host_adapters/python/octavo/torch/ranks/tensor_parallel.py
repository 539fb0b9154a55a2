"""Tensor parallelism: linears that parallelize_module sharded before octavo.prepare.

The backend knows each rank's shard as a separate weight. With ColwiseParallel a rank has rows of the weight and columns of y;
the gradient of x is a partial sum. With RowwiseParallel it has columns of the weight and of x; y is a partial sum, and the
first rank adds the bias to it. parallel_linear.py has the forward.
"""
import dataclasses

import torch

from ...errors import StateError, UnsupportedError
from ..models import is_dtensor, is_fsdp
from ..slots import CODES, MOVED

_REMEDY = ("use ColwiseParallel or RowwiseParallel over a mesh of one dimension, or leave the layer out "
           "with module_filter of octavo.prepare")


@dataclasses.dataclass(frozen=True, eq=False)
class Style:
    """How the ranks of a mesh share a weight [N, K]."""
    mesh: object
    by_rows: bool  # of the weight: ColwiseParallel; else by columns: RowwiseParallel
    placements: tuple
    shape: object  # of the whole weight

    def is_of(self, spec):
        """Whether a DTensor, or the description of one, is sharded in this way."""
        return (spec.mesh, tuple(spec.placements), spec.shape) == (self.mesh, self.placements, self.shape)

    @property
    def is_first(self):
        return self.mesh.get_local_rank() == 0


def is_in(model):
    """Whether parallelize_module, and not fully_shard, sharded parameters of a model."""
    return not is_fsdp(model) and any(map(is_dtensor, model.parameters()))


def assign(weights):
    """Before a session opens: gives each of these Weights of linears its Style. Raises UnsupportedError
    for a sharding that octavo cannot follow."""
    for w in weights:
        if w.parallel is None and is_dtensor(w.parameter):
            w.parallel = _style(w)


def _style(w):
    p = w.parameter
    if w.piece is not None or w.transposed or p.dim() != 2:
        raise UnsupportedError(f"{w.name}: expected the weight of a torch.nn.Linear, found a sharded "
                               f"parameter of another module; {_REMEDY}")
    names = [type(placement).__name__ for placement in p.placements]
    if names != ["Shard"]:
        raise UnsupportedError(f"{w.name}: expected rows or columns of the weight on each rank of one mesh "
                               f"dimension, found placements {tuple(p.placements)}; {_REMEDY}")
    dim, ranks = p.placements[0].dim, p.device_mesh.size()
    if p.shape[dim] % ranks:
        raise UnsupportedError(f"{w.name}: expected {('rows', 'columns')[dim]} that divide by the {ranks} ranks, "
                               f"found {p.shape[dim]}; {_REMEDY}")
    if p.is_meta:
        raise UnsupportedError(f"{w.name}: expected values, found a sharded parameter without memory (meta); "
                               "call model.to_empty(device=...) and initialize it before octavo.prepare")
    return Style(p.device_mesh, dim == 0, tuple(p.placements), p.shape)


def check(session):
    """Before octavo.prepare changes anything. Raises UnsupportedError for a backend that takes weights
    out of the model."""
    w = next((w for w in session.weights if w.parallel is not None), None)
    if w is not None:
        session.expect_weights_in_model(w.name, "tensor parallelism", "leave parallelize_module out")


def placed(session, weights, value):
    """Another parameter replaced a sharded one, as load_state_dict(assign=True) does. With DistributedDataParallel or
    replicate over another dimension of the mesh (device_mesh=), torch makes this rank's part the parameter, and in each
    forward a DTensor of it, which is not a parameter."""
    own, style = weights[0].parameter, weights[0].parallel
    if value is own:
        return
    spec = getattr(value, "_st_info", value._spec if is_dtensor(value) else None)  # by torch, of such a part
    if spec is None or not style.is_of(spec) or value.dtype != own.dtype:
        raise UnsupportedError(
            f"{weights[0].name}: expected a parameter that is sharded as at octavo.prepare "
            f"({style.placements} over {style.mesh.size()} ranks), found another one; call octavo.prepare again, give "
            "DistributedDataParallel device_mesh=, or call fully_shard for other modules than tensor-parallel ones")
    if is_dtensor(value) and not isinstance(value, torch.nn.Parameter):
        return
    session.replace(weights[0], value)
    for w in weights:
        session.flags.set(w.id, CODES | MOVED)


def mesh_of(session):
    """The mesh whose ranks share weights; None without tensor parallelism. Raises StateError for two."""
    meshes = {w.parallel.mesh for w in session.weights if w.parallel is not None}
    if len(meshes) > 1:
        raise StateError(f"the model: expected one mesh for all tensor-parallel layers, found {len(meshes)}; "
                         "name the ranks that train together in octavo.prepare(group=)")
    return meshes.pop() if meshes else None

"""What octavo refuses about sharded models, and what it says to do: on one rank, where fully_shard gives
the same parameters as on many."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import octavo
from conftest import msamp, session, te
from guide_parts import mlp
from octavo.torch.ranks import groups

X = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def mesh(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer):
    model(X).square().mean().backward()
    optimizer.step()


def is_plain(model):
    return "octavo_session" not in model.__dict__ and type(model[0]) is nn.Linear


@pytest.mark.parametrize("order", ["before", "after"])
def test_msamp(mesh, order):
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match='as fully_shard needs, found msamp.*fp8.backend = "te"'):
        if order == "before":
            fully_shard(model, mesh=mesh)
        octavo.prepare(model, overrides=msamp("O2"))
        fully_shard(model, mesh=mesh)
    assert order == "after" or is_plain(model)


def test_tensor_parallel_after(mesh):
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te())
    parallelize_module(model, mesh, {"0": ColwiseParallel()})
    with pytest.raises(octavo.UnsupportedError, match="0.weight.*call parallelize_module before octavo.prepare"):
        model(X)


@pytest.mark.parametrize("order", ["before", "after"])
def test_tensor_parallel_inside_of_fully_shard(mesh, order):
    grid = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match="0.weight.*expected shards of only fully_shard"):
        if order == "after":
            octavo.prepare(model, overrides=te())
        model[0].register_parameter("weight", nn.Parameter(
            distribute_tensor(model[0].weight.data, grid["tp"], [Shard(0)])))
        fully_shard(model, mesh=grid["dp"])
        octavo.prepare(model, overrides=te())
    assert order == "after" or is_plain(model)


def test_shards_on_another_device_than_their_mesh(mesh, monkeypatch):
    """CPUOffloadPolicy of a GPU: the mesh says where weights are gathered."""
    model = mlp(32, 64, 16)
    fully_shard(model, mesh=mesh)
    monkeypatch.setattr(type(mesh), "device_type", "cuda")
    with pytest.raises(octavo.UnsupportedError, match="expected its shard on cuda.*found it on cpu "
                                                      ".CPUOffloadPolicy.*without offload_policy"):
        octavo.prepare(model, overrides=te())
    assert is_plain(model)


def test_an_optimizer_of_before(mesh):
    model = mlp(32, 64, 16)
    before = adamw(model)
    octavo.prepare(model, before, overrides=te())
    fully_shard(model, mesh=mesh)
    with pytest.raises(octavo.StateError, match="parameters from before fully_shard or to_empty.*octavo.join"):
        octavo.join(model, before)
    with pytest.raises(octavo.StateError, match="parameters from before fully_shard.*octavo.join"):
        step(model, before)
    after = adamw(model)
    assert octavo.join(model, after) is after
    step(model, after)


def test_join_of_what_is_no_optimizer_of_the_model():
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te())
    with pytest.raises(octavo.InvalidError, match="expected a torch.optim.Optimizer, found Sequential"):
        octavo.join(model, model)
    with pytest.raises(octavo.InvalidError, match="found 4 others"):
        octavo.join(model, adamw(mlp(32, 64, 16)))
    with pytest.raises(octavo.StateError, match="octavo.prepare"):
        octavo.join(mlp(32, 64, 16), adamw(model))


def test_join_gives_the_backends_optimizer_where_weights_are_in_slots():
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=msamp("O2"))
    optimizer = octavo.join(model, adamw(model))
    assert type(optimizer) is octavo.torch.Adam
    step(model, optimizer)
    assert octavo.join(model, optimizer) is optimizer


def test_restore_and_another_stage(mesh):
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te())
    fully_shard(model, mesh=mesh)
    for call in (octavo.restore, octavo.prepare):
        with pytest.raises(octavo.UnsupportedError, match="expected one that is not sharded.*octavo.join"):
            call(model)
    step(model, adamw(model))


def test_a_part_that_fsdp_has_not_gathered(mesh):
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te())
    fully_shard(model, mesh=mesh)
    with pytest.raises(octavo.StateError, match="0.weight.*this rank's shard.*register_fsdp_forward_method"):
        model[0](X)
    model.unshard()
    assert model[0](X).shape == (8, 64)


def test_msamp_without_values():
    with torch.device("meta"):
        model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match='0.weight.*meta.*to_empty.*fp8.backend = "te"'):
        octavo.prepare(model, overrides=msamp("O2"))
    assert is_plain(model)


def test_a_forward_without_values():
    with torch.device("meta"):
        model = mlp(32, 64, 16)
    octavo.prepare(model, overrides=te())
    with pytest.raises(octavo.OctavoError, match="0.weight: expected values.*meta.*to_empty"):
        model(X)
    model.to_empty(device="cpu")
    for p in model.parameters():
        nn.init.constant_(p, 0.25)
    assert torch.isfinite(model(X)).all()


def test_a_backward_without_a_gathered_weight(mesh):
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te())
    for linear in (model[0], model[2]):
        fully_shard(linear, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model[2].set_unshard_in_backward(False)
    with pytest.raises(octavo.StateError, match="2.weight.*set_unshard_in_backward"):
        model(X).sum().backward()


def test_meshes_that_overlap():
    class Mesh:
        ndim = 1

        def __init__(self, *ranks):
            self.mesh = torch.tensor(ranks)

        def get_group(self):
            return self

    class Sharded:
        is_sharded = True

        def __init__(self, mesh):
            self.parameter = self
            self.device_mesh = mesh

    class Model:
        def __init__(self, *meshes):
            self.weights = [Sharded(mesh) for mesh in meshes]

    whole = Mesh(0, 1, 2, 3)
    assert groups._of_meshes(Model(Mesh(0, 1), whole, Mesh(2, 3))) is whole
    with pytest.raises(octavo.StateError, match=r"ranks \(0, 1\) and \(1, 2\).*octavo.prepare\(group=\)"):
        groups._of_meshes(Model(Mesh(0, 1), Mesh(1, 2)))


def test_parameters_of_before_are_let_go(mesh):
    import gc
    import weakref
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=te(), module_filter=lambda m, n: n != "2")
    before = [weakref.ref(p) for p in model.parameters()]
    fully_shard(model, mesh=mesh)
    gc.collect()
    assert [ref() for ref in before] == [None] * 4
    optimizer = adamw(model)
    step(model, optimizer)
    names = {w.name for w in session(model).weights if w.parameter is not None}
    assert names == {"0.weight", "0.bias", "2.bias", "2.weight"}

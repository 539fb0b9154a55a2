"""What octavo.prepare(shard_optimizer_state=True) refuses, and what it says to do: on one rank, which holds all."""
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import octavo
from conftest import msamp, session, te
from fsdp_refusals_test import adamw, is_plain, step
from guide_parts import mlp


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def prepared(overrides, model=None, shards=True):
    torch.manual_seed(0)
    model = model or mlp(32, 64, 16)
    return octavo.prepare(model, adamw(model), overrides=overrides, shard_optimizer_state=shards)


@pytest.mark.parametrize("overrides, found", [(te(), "te"), ({"mixed_precision": "bf16"}, "bf16")])
def test_a_backend_without_such_states(mesh, overrides, found):
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match=f"found {found}, where they are torch's; leave it out and shard "
                                                      'with fully_shard or ZeroRedundancyOptimizer, or set fp8.backend = "msamp"'):
        prepared(overrides, model)
    assert is_plain(model)


def test_zero_redundancy_optimizer(mesh):
    model = mlp(32, 64, 16)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    with pytest.raises(octavo.UnsupportedError, match=r"found ZeroRedundancyOptimizer.*octavo.prepare\(shard_optimizer_state=True\)"):
        octavo.prepare(model, optimizer, overrides=msamp())


def test_no_process_group():
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.StateError, match="found no process group; call torch.distributed.init_process_group before"):
        prepared(msamp(), model)
    assert is_plain(model)


def test_another_value(mesh):
    with pytest.raises(octavo.InvalidError, match="shard_optimizer_state: expected True, False or None, found 'zero1'"):
        prepared(msamp(), shards="zero1")


@pytest.mark.parametrize("order", ["before", "after"])
def test_fully_shard(mesh, order):
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match=r"as fully_shard needs, found msamp.*DistributedDataParallel, with "
                                                      r"octavo.prepare\(shard_optimizer_state=True\)"):
        if order == "before":
            fully_shard(model, mesh=mesh)
        prepared(msamp(), model)
        fully_shard(model, mesh=mesh)
    assert order == "after" or is_plain(model)


@pytest.mark.parametrize("shards", [None, True])
@pytest.mark.parametrize("order", ["before", "after"])
def test_fully_shard_of_the_rest(mesh, order, shards):
    """With the weights of linears in ignored_params, biases and norms would be sharded and never stepped."""
    model = mlp(32, 64, 16)
    linears = {p for p in model.parameters() if p.dim() == 2}
    with pytest.raises(octavo.UnsupportedError, match="0.bias: expected a backend that leaves weights in the model, as fully_shard needs"):
        if order == "before":
            fully_shard(model, mesh=mesh, ignored_params=linears)
        model, optimizer = prepared(msamp(), model, shards)
        fully_shard(model, mesh=mesh, ignored_params=linears)
        step(model, optimizer)
    assert order == "after" or is_plain(model)


def test_tensor_parallelism(mesh):
    model = mlp(32, 64, 16)
    parallelize_module(model, mesh, {"0": ColwiseParallel()})
    with pytest.raises(octavo.UnsupportedError, match="as tensor parallelism needs, found msamp"):
        prepared(msamp(), model)
    assert is_plain(model)


def test_a_gradient_of_a_parameter_that_was_frozen(mesh):
    """Its states were never described, so no rank can step it."""
    model = mlp(32, 64, 16)
    model[0].bias.requires_grad_(False)
    model, optimizer = prepared(msamp(), model)
    model[0].bias.requires_grad_(True)
    with pytest.raises(octavo.InvalidError, match='"0.bias": expected a parameter that is trained, found a frozen one'):
        step(model, optimizer)


def test_one_rank_holds_all(mesh):
    """The same script on one rank: nothing is missing, so nothing is refused."""
    plain, its_optimizer = prepared(msamp("O3"), shards=None)
    model, optimizer = prepared(msamp("O3"))
    for each in ((plain, its_optimizer), (model, optimizer)):
        step(*each)
    assert session(model).bytes_by_role() == session(plain).bytes_by_role()
    with octavo.full_state(model):
        step(plain, its_optimizer)
    step(model, optimizer)
    for (name, a), b in zip(plain.state_dict().items(), model.state_dict().values()):
        assert torch.equal(a, b), name
    octavo.restore(model)


def test_full_state_and_sharded_state_dict_of_a_model_that_is_not_sharded():
    model, _ = octavo.prepare(mlp(32, 64, 16), overrides=msamp("O3"))
    with octavo.full_state(model) as same:
        assert same is model
    assert octavo.sharded_state_dict(model).keys() == model.state_dict().keys()
    with pytest.raises(octavo.StateError, match="expected a model that octavo.prepare returned"):
        octavo.sharded_state_dict(mlp(32, 64, 16))

"""parallelize_module before octavo.prepare: two ranks against one process, and what is refused."""
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import octavo
from conftest import msamp, te
from fsdp_parts import ranks_of
from fsdp_refusals_test import X, is_plain, mesh  # noqa: F401 (a fixture)
from guide_parts import mlp
from tensor_parallel_ranks import K, M, N, RUNS, STYLES, WORLD, numbers


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, WORLD, RUNS, list(RUNS))


def bound(a, b, k, is_equal, worst):
    """Of |a b^T of the ranks - that of one process| for each element. a [m, k], b [n, k]: before the cast.

    Sums: k products and what follows them are at most k + 8 roundings of 2^-24 on each side, of the sum
    of the products' sizes, which the casts make larger by (1 + worst)^2 at most. Where the ranks have
    scales of their own, the codes differ as well: a cast is off by a relative `worst` (2^-4 for E4M3,
    2^-3 for E5M2), or below the smallest normal code by amax 2^-18 (2^-10 / 448), on each side."""
    a, b = a.abs().double(), b.abs().double()
    sizes = a @ b.T * (1 + worst) ** 2
    sums = 2 * (k + 8) * 2.0 ** -24 * (sizes + k * a.max() * b.max() * 2.0 ** -18)
    if is_equal:
        return sums
    da, db = worst * a + a.max() * 2.0 ** -18, worst * b + b.max() * 2.0 ** -18
    return sums + 2 * (a @ db.T + da @ b.T + da @ db.T)


X1, W, DY = numbers(3, M, K), numbers(1, N, K) / 8, numbers(4, M, N)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mx", "rowwise"])
def test_a_layer_is_that_of_one_process(ranks, recipe, style):
    """Delayed has the same scales; so have blocks, none of which a shard splits."""
    is_equal = recipe in ("delayed", "block", "mx")
    gradients = 2.0 ** -3 if recipe in ("delayed", "current") else 2.0 ** -4
    bounds = {"y": bound(X1, W, K, is_equal, 2.0 ** -4), "dx": bound(DY, W.T, N, is_equal, gradients),
              "dw": bound(DY.T, X1.T, M, is_equal, gradients), "db": M * 2.0 ** -23 * DY.abs().sum(0).double()}
    for rank in ranks:
        found = rank["layers"]
        for (name, limit), ours, one in zip(bounds.items(), found[recipe, style], found[recipe, None]):
            assert ours.shape == one.shape == limit.shape, name
            assert ((ours.double() - one.double()).abs() <= limit).all(), name


def test_columns_have_the_bits_of_one_process(ranks):
    """A rank of ColwiseParallel computes rows of the same weight, with delayed scales from the same x."""
    for rank in ranks:
        ours, one = (rank["layers"]["delayed", style] for style in ("columns", None))
        assert torch.equal(ours[0], one[0]) and torch.equal(ours[2], one[2])


def test_autocast(ranks):
    """y of bfloat16: each side rounds the sums and the bias at most twice, by 2^-9 of what it rounds."""
    sizes = X1.abs().double() @ W.abs().double().T * 1.2 + 4
    for rank in ranks:
        for style in STYLES:
            ours, one = (rank["autocast"][s][0] for s in (style, None))
            assert ours.dtype == one.dtype == torch.bfloat16
            assert ((ours.double() - one.double()).abs() <= 4 * 2.0 ** -9 * sizes).all()


def test_sequence_parallel_block(ranks):
    """Losses of 8 clipped steps: closer to one process than 1 % of what FP8 itself changes."""
    for rank in ranks:
        ours, one, without = rank["sequence"]["parallel"], rank["sequence"]["whole"], rank["without_octavo"]
        assert rank["sequence"]["sites"] == ["down", "up"]
        for (a, a_norm), (b, b_norm), (c, c_norm) in zip(ours, one, without):
            assert abs(a - b) <= max(1e-6, 0.01 * abs(b - c)) and abs(a_norm - b_norm) <= max(
                1e-5, 0.01 * abs(b_norm - c_norm))
    assert ours != without


def test_scales_are_equal_on_all_ranks(ranks):
    first, second = (rank["sequence"]["state"] for rank in ranks)
    assert first.keys() == second.keys() and any("amax_history" in name for name in first)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_inf_on_one_rank_is_a_step_of_no_rank(ranks):
    assert [rank["infinite_gradient"] for rank in ranks] == [(True, True, 1)] * WORLD


def test_a_run_that_resumes(ranks):
    for rank in ranks:
        goes_on, resumed = rank["resumed"]
        assert resumed == goes_on


def test_compiled(ranks):
    for rank in ranks:
        plain, compiled = map(torch.tensor, rank["compiled"])
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=0)


def test_a_state_dict_that_is_assigned(ranks):
    for rank in ranks:
        ours, other = rank["assigned"]
        assert ours == other


@pytest.mark.parametrize("overrides, says", [
    (msamp("O2"), 'expected a backend that leaves weights in the model.*found msamp; set fp8.backend = "te"')])
def test_a_backend_that_keeps_weights(mesh, overrides, says):  # noqa: F811
    model = parallelize_module(mlp(32, 64, 16), mesh, {"0": ColwiseParallel()})
    with pytest.raises(octavo.UnsupportedError, match=says):
        octavo.prepare(model, overrides=overrides)
    assert is_plain(model)


def test_a_mesh_of_two_dimensions():
    grid = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = mlp(32, 64, 16)
    model[0].weight = nn.Parameter(distribute_tensor(model[0].weight.data, grid, [Replicate(), Replicate()]))
    with pytest.raises(octavo.UnsupportedError, match="0.weight: .*found placements .*mesh of one dimension"):
        octavo.prepare(model, overrides=te())


def test_another_module_than_a_linear(mesh):  # noqa: F811
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(32, 2), nn.Linear(32, 8)

    model = Attends()
    weight = distribute_tensor(model.attention.in_proj_weight.data, mesh, [Replicate()])
    model.attention.in_proj_weight = nn.Parameter(weight)
    with pytest.raises(octavo.UnsupportedError, match="found a sharded parameter of another module.*filter"):
        octavo.prepare(model, overrides=te())


def test_parameters_without_memory(mesh):  # noqa: F811
    with torch.device("meta"):
        model = mlp(32, 64, 16)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with pytest.raises(octavo.UnsupportedError, match="0.weight: expected values.*to_empty.*before octavo.prepare"):
        octavo.prepare(model, overrides=te())


def test_a_plain_input(mesh):  # noqa: F811
    model = parallelize_module(mlp(32, 64, 16), mesh, {"0": ColwiseParallel()})
    octavo.prepare(model, overrides=te())
    with pytest.raises(octavo.StateError, match="0: expected a DTensor on the mesh of the weight, found Tensor"):
        model[0].forward(X)


def test_another_parameter(mesh):  # noqa: F811
    model = parallelize_module(mlp(32, 64, 16), mesh, {"0": ColwiseParallel()})
    octavo.prepare(model, overrides=te())
    with pytest.raises(octavo.UnsupportedError, match="0.weight: expected a parameter that is sharded as at"):
        model[0].weight = nn.Parameter(torch.zeros(64, 32))

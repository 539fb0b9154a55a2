"""fully_shard on four ranks of gloo: HSDP, other meshes, and modules with weights of other shapes."""
import shutil

import pytest
import torch.distributed.checkpoint as dcp

import octavo
from conftest import te
from fsdp_mesh_ranks import FEW, MODULES, RUNS, STEPS, WORLD
from fsdp_parts import Net, assert_equal, outcome, ranks_of


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found: the same four processes for all tests of this file."""
    return ranks_of(tmp_path_factory, WORLD, RUNS, [name for name in RUNS if name != "values"])


@pytest.mark.parametrize("order", ["prepare first", "shard first"])
def test_hsdp_has_the_bits_of_ddp_that_adds_in_its_order(ranks, order):
    """Four gradients of float32 have three orders; DDP's hook adds in that of a 2 x 2 mesh."""
    for rank in ranks:
        runs = rank["hsdp"]
        assert len(set(runs["ddp"]["losses"])) == STEPS
        assert_equal(runs[order], runs["ddp"])


def test_a_checkpoint_of_a_mesh_loads_on_another_one_and_without_ranks(ranks):
    folder = ranks[0]["saved"]["folder"]
    try:
        for rank in ranks:
            assert_equal(rank["saved"]["another mesh"], rank["saved"]["saved"])
        model = Net(seed=8)
        octavo.prepare(model, overrides=te())
        state = {"model": model.state_dict(), "octavo": octavo.Stateful(model)}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        model.load_state_dict(state["model"])
        found, saved = outcome(model, []), ranks[0]["saved"]["saved"]
        # Without ranks a cast has other rows, so it takes its own amax at first: the histories count from 0.
        for name in [n for n in saved["octavo"] if n.endswith("/counter")]:
            assert bool((found["octavo"][name] == 0).all() and (saved["octavo"].pop(name) > 0).all())
            del found["octavo"][name]
        for one in (found, saved):  # with the hashes of what was left out
            for name in ("octavo.metadata", "octavo.blake2b"):
                one["octavo"].pop(name, None)
        assert_equal(found, saved)
    finally:
        shutil.rmtree(folder)


def test_resharding_to_fewer_ranks(ranks):
    for rank in ranks:
        assert_equal(rank["smaller"]["by two"], rank["smaller"]["ddp"])


def test_rows_that_do_not_divide_by_the_ranks(ranks):
    assert ranks[0]["uneven"] == [3, 3, 3, 1]


@pytest.mark.parametrize("name", ["two models", "two models, HSDP"])
def test_maxima_are_those_of_the_mesh_and_not_of_all_ranks(ranks, name):
    scales, maxima = zip(*ranks[0][name])
    for pair in (0, 2):
        largest = max(maxima[pair:pair + 2])
        # E4M3 ends at 448; the quotient and the product each round by 2^-24.
        assert scales[pair] == pytest.approx(448 / largest, rel=2**-23)
        assert scales[pair + 1] == scales[pair]
    assert scales[0] > 4 * scales[2]


@pytest.mark.parametrize("name, order", [(n, o) for n, (_, orders) in MODULES.items() for o in orders])
def test_modules(ranks, name, order):
    for rank in ranks:
        runs = rank["modules"][name]
        assert len(set(runs["ddp"]["losses"])) == FEW
        assert_equal(runs[order], runs["ddp"])
        assert len(runs[order]["sites"]) == {"attention": 5, "tied": 2, "transposed": 2, "experts": 13}[name]
    assert ranks[0]["modules"][name]["ddp"]["losses"] != ranks[1]["modules"][name]["ddp"]["losses"]

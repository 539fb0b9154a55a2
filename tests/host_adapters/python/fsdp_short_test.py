"""fully_shard around a model that octavo.prepare converted, on two ranks for a few steps: the rest is in
fsdp_test.py."""
import pytest

from fsdp_parts import ORDERS, assert_equal, ranks_of
from fsdp_ranks import RUNS, WORLD


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, WORLD, RUNS, ["short"])


@pytest.mark.parametrize("gather", ["values", "fp8", *(f"own forward, fp8, {order}" for order in ORDERS)])
def test_fully_shard_gives_the_bits_of_ddp(ranks, gather):
    for rank in ranks:
        assert_equal(rank["short"][gather], rank["short"]["ddp"])

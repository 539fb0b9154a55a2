"""octavo.prepare(shard_optimizer_state=True) on two ranks for a few steps: the rest is in shard_state_test.py."""
import pytest

from fsdp_parts import assert_equal, ranks_of
from shard_state_ranks import RUNS


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, 2, RUNS, ["short"])


def test_masters_and_moments_on_one_rank_each_have_the_bits_of_ddp(ranks):
    for number, rank in enumerate(ranks):
        found = rank["short"]
        assert len(set(found["ddp"]["losses"])) > 1
        assert_equal(found["sharded"], found["ddp"])
        assert f"optimizer state  rank {number} of 2 holds it for " in found["report"]
        assert f"expected a read on rank {1 - number}, which holds these values" in found["read"]

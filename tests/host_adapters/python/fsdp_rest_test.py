"""fully_shard of what msamp leaves in the model, on two ranks of gloo: the bits of DistributedDataParallel."""
import pytest

from fsdp_parts import assert_equal, ranks_of
from fsdp_rest_ranks import RUNS, STEPS

# Tensors that fully_shard has: the embedding, three norms of two and four biases. Two moments of each.
REST = 1 + 2 * 3 + 4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, 2, RUNS, list(RUNS))


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_it_has_the_bits_of_ddp(ranks, level):
    for rank in ranks:
        found = rank["equal"][level]
        assert len(set(found["ddp"]["losses"])) == STEPS
        assert_equal(found["fsdp"], found["ddp"])
        assert found["let go"][0] >= 2 * REST and found["let go"][1] == 0
        assert found["torch's"] == (2 * REST, {"DTensor"})


def test_inf_on_one_rank_is_a_step_of_no_rank(ranks):
    for rank in ranks:
        assert rank["overflow"]["skipped"] == 1
        clean = {what: {**rank["overflow"][what], "losses": rank["overflow"][what]["losses"][2:]} for what in ("ddp", "fsdp")}
        assert_equal(clean["fsdp"], clean["ddp"])


def test_a_checkpoint_resumes_with_the_same_bits(ranks):
    for rank in ranks:
        assert_equal(rank["checkpoint"]["loaded"], rank["checkpoint"]["goes on"])


def test_what_is_refused(ranks):
    for rank in ranks:
        found = rank["refusals"]
        for what in ("other ranks", "two dimensions"):
            assert found[what].startswith("UnsupportedError: "), found[what]
            assert "expected shards of fully_shard on a mesh of one dimension with ranks" in found[what]
        assert "expected a parameter that fully_shard shards" in found["without the root"]
        assert found["without the root"].startswith("UnsupportedError: embed.weight")
        assert found["accumulation"].startswith("StateError") and "zero_grad has dropped" in found["accumulation"]
        assert found["norms"] == ranks[0]["refusals"]["norms"] and min(found["norms"]) > 0
        assert found["norm of both"] != "no error"  # of torch, as docs/distributed.md says
        assert found["restore"].startswith("StateError: model: expected its whole state on this rank")

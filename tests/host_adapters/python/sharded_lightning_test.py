"""Lightning's ModelParallelStrategy (FSDP2) on two ranks of gloo: OctavoPrecision has the bits of DDPStrategy."""
import pytest

from fsdp_parts import assert_equal
from torchrun import assert_sample, ranks_of

pytest.importorskip("lightning", reason="lightning is not installed")
import sharded_lightning_ranks as program  # noqa: E402  needs lightning

HOW = ("shards", "one file")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(program.run, tmp_path_factory.mktemp("lightning"))


@pytest.mark.parametrize("how", HOW)
def test_it_has_the_bits_of_ddp(ranks, how):
    for rank in ranks:
        whole, _, is_folder = rank[how]
        assert whole["is sharded"] and is_folder == (how == "shards")
        assert len(set(whole["losses"])) == program.STEPS
        assert_equal(whole, rank["ddp"])
        assert f"linear_forward {program.LAYERS * program.STEPS}, " in whole["report"]
        assert ("gpt.head.weight: codes" in whole["report"]) == (how == "one file")


@pytest.mark.parametrize("how", HOW)
def test_a_checkpoint_resumes_with_the_same_bits(ranks, how):
    for rank in ranks:
        whole, resumed, _ = rank[how]
        assert resumed["losses"] == whole["losses"][program.SAVED:]
        assert_equal({**resumed, "losses": []}, {**whole, "losses": []})


def test_msamp_is_refused(ranks):
    for rank in ranks:
        kind, text = rank["refused"]
        assert kind == "UnsupportedError" and "fully_shard" in text and 'fp8.backend = "te"' in text


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=8, gather="fp8")

"""Accelerate with FSDP2 on two ranks of gloo: octavo.accelerate has the bits of DistributedDataParallel, and with mixed
precision and clipping those of fully_shard by hand."""
import pytest

from fsdp_parts import assert_equal
from torchrun import assert_sample, ranks_of

pytest.importorskip("accelerate", reason="accelerate is not installed")
import sharded_accelerate_ranks as program  # noqa: E402  needs accelerate


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(program.run, tmp_path_factory.mktemp("accelerate"))


def assert_fp8(found, layers=9):
    assert len(set(found["losses"])) == program.STEPS
    assert f"linear_forward {layers * program.STEPS}, " in found["report"], found["report"]


def test_it_has_the_bits_of_ddp(ranks):
    """Also with activation checkpointing, whose wrappers rename modules and run the blocks' 8 layers twice."""
    for rank in ranks:
        assert_fp8(rank["ddp"])
        assert_fp8(rank["values"], layers=8 + 9)
        assert_equal(rank["values"], rank["ddp"])
        assert ": codes" not in rank["values"]["report"]


def test_fp8_gather_of_a_model_that_rank_0_loads(ranks):
    for rank in ranks:
        assert_fp8(rank["gather"])
        assert_equal(rank["gather"], rank["ddp"])
        assert "head.weight: codes" in rank["gather"]["report"]


def test_the_class_with_clipping_has_the_bits_of_fully_shard(ranks):
    """In bf16, and with FP8 gather."""
    for rank in ranks:
        assert_fp8(rank["class"])
        assert_equal(rank["class"], rank["by hand"])
        assert rank["class"]["losses"] != rank["values"]["losses"]
        assert "head.weight: codes" in rank["class"]["report"]


def test_a_sharded_checkpoint_resumes_with_the_same_bits(ranks):
    for rank in ranks:
        whole, again, files = rank["resumed"]
        assert_equal(again, whole)
        assert {"pytorch_model_fsdp_0", "optimizer_0", "octavo.safetensors"} <= set(files)


def test_msamp_is_refused_before_anything_changes(ranks):
    for rank in ranks:
        kind, text, is_prepared, is_sharded = rank["refused"]
        assert kind == "UnsupportedError" and not is_prepared and not is_sharded
        assert "FSDP2" in text and 'fp8.backend = "te"' in text


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=8)

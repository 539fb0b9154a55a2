"""DeepSpeed on its CPU accelerator, two ranks of gloo: octavo.deepspeed has the bits of DistributedDataParallel.

Both sum two gradients of float32 and halve the sum. Adam is elementwise, so it does not matter which rank has which
part of its state."""
import pytest
import torch

from fsdp_parts import assert_equal
from torchrun import apart, assert_sample, ranks_of

apart("deepspeed")
pytest.importorskip("deepspeed", reason="deepspeed is not installed: tests/environment/install.sh deepspeed")
import deepspeed_ranks as program  # noqa: E402  needs deepspeed

LAYERS = 9


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(program.run, tmp_path_factory.mktemp("deepspeed"))


@pytest.mark.parametrize("stage", program.STAGES)
def test_it_has_the_bits_of_ddp(ranks, stage):
    for rank in ranks:
        assert len(set(rank[stage]["losses"])) == program.STEPS == rank[stage]["boundaries"]
        assert f"linear_forward {LAYERS * program.STEPS}, " in rank[stage]["report"]
        assert_equal(rank[stage], rank["ddp"])


def test_accumulated_batches_are_one_step(ranks):
    """Also with ZeRO 3, which gathers weights anew for each of them."""
    for rank in ranks:
        assert rank[2, "parts"]["boundaries"] == rank[3, "parts"]["boundaries"] == program.STEPS
        assert_equal(rank[3, "parts"], rank[2, "parts"])


def test_bf16(ranks):
    for rank in ranks:
        assert rank["bf16"]["losses"] != rank[3]["losses"]
        assert rank["bf16"]["losses"] == pytest.approx(rank[3]["losses"], rel=0.02)


@pytest.mark.parametrize("stage, hidden", [(1, False), (2, True), (3, True)])
def test_inf_on_one_rank_is_a_step_of_no_rank(ranks, stage, hidden):
    """One step alone: the next one happens."""
    for rank in ranks:
        before, after, later, skipped = rank[stage, hidden]
        assert skipped == 1 and torch.equal(before, after) and not torch.equal(after, later)


def test_a_checkpoint_resumes_with_the_same_bits(ranks):
    for rank in ranks:
        whole, again = rank["resumed"]
        assert_equal(again, whole)


@pytest.mark.parametrize("what, kind, text", [
    ("msamp", "UnsupportedError", 'set fp8.backend = "te"'),
    ("sharded", "UnsupportedError", "found a model of octavo.prepare(shard_optimizer_state=True)"), ("fp16", "UnsupportedError", "enable bf16"),
    ("no model", "InvalidError", "found NoneType"), ("zero.Init", "UnsupportedError", "deepspeed.zero.Init"),
    ("without octavo", "StateError", "octavo.deepspeed.initialize"), ("engine", "StateError", "DeepSpeedEngine")])
def test_what_is_refused(ranks, what, kind, text):
    for rank in ranks:
        found = rank["refusals"][what]
        assert found is not None and found[0] == kind and text in found[1], found
        assert rank["refusals"]["plain"]


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=8)

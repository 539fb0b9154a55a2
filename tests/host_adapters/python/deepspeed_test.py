"""DeepSpeed on its CPU accelerator, two ranks of gloo: octavo.deepspeed has the bits of DistributedDataParallel.

Both sum two gradients of float32 and halve the sum. Adam is elementwise, so it does not matter which rank has which
part of its state."""
import pytest
import torch

from fsdp_parts import assert_equal
from torchrun import apart, assert_sample, ranks_of

apart("deepspeed")
pytest.importorskip("deepspeed", reason="deepspeed is not installed: samples/torch_env/install.sh deepspeed")
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


@pytest.mark.parametrize("stage", program.STAGES)
def test_accumulated_batches_are_one_step(ranks, stage):
    """Also with ZeRO 3, which gathers weights anew for each of them. ZeRO 2 and 3 sum over the ranks first and then
    over the batches, the others in the other order, so two bits may differ between these pairs."""
    for rank in ranks:
        assert rank[stage, "parts"]["boundaries"] == program.STEPS
        assert_equal(rank[stage, "parts"], rank[2 * (stage // 2), "parts"])
        assert rank[stage, "parts"]["losses"] == pytest.approx(rank[0, "parts"]["losses"], rel=1e-3)


def test_bf16(ranks):
    for rank in ranks:
        assert_equal(rank[3, "bf16"], rank[1, "bf16"])
        assert rank[1, "bf16"]["losses"] != rank[1]["losses"]
        assert rank[1, "bf16"]["losses"][-1] == pytest.approx(rank[1]["losses"][-1], rel=0.02)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("stage", [1, 3])
def test_inf_on_one_rank_is_a_step_of_no_rank(ranks, stage, hidden):
    """One step alone: the next one happens."""
    for rank in ranks:
        before, after, later, skipped = rank[stage, hidden]
        assert skipped == 1 and torch.equal(before, after) and not torch.equal(after, later)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_checkpoint_resumes_with_the_same_bits(ranks, stage):
    for rank in ranks:
        whole, again = rank[stage, "resumed"]
        assert_equal(again, whole)


@pytest.mark.parametrize("what, kind, text", [
    ("msamp", "UnsupportedError", 'set fp8.backend = "te"'), ("fp16", "UnsupportedError", "enable bf16"),
    ("no model", "InvalidError", "found NoneType"), ("zero.Init", "UnsupportedError", "deepspeed.zero.Init"),
    ("without octavo", "StateError", "octavo.deepspeed.initialize"), ("engine", "StateError", "DeepSpeedEngine")])
def test_what_is_refused(ranks, what, kind, text):
    for rank in ranks:
        found = rank["refusals"][what]
        assert found is not None and found[0] == kind and text in found[1], found
        assert rank["refusals"]["plain"]


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=8)

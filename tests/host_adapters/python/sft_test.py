"""TRL's SFTTrainer with --fsdp (version 2) on two ranks of gloo, on a small data set of this test."""
import pytest

from fsdp_parts import assert_equal
from torchrun import apart, assert_sample, ranks_of

apart("trl")
pytest.importorskip("trl", reason="trl is not installed: tests/environment/install.sh trl")
import sharded_trainer_ranks as program  # noqa: E402  needs transformers
from trl import SFTTrainer  # noqa: E402, F401  imported once, before the ranks are forked


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(program.run_sft, tmp_path_factory.mktemp("sft"))


def test_it_has_the_bits_of_ddp(ranks):
    for rank in ranks:
        assert rank["fsdp"]["is sharded"] and len(set(rank["fsdp"]["losses"])) == program.STEPS
        assert_equal({**rank["fsdp"], "octavo": rank["ddp"]["octavo"]}, rank["ddp"])  # without lm_head and with it
        report = rank["fsdp"]["report"]
        # All but lm_head; gradient checkpointing, TRL's default, runs each forward twice.
        assert f"linear_forward {2 * (program.LAYERS - 1) * program.STEPS}, " in report, report
        assert "mlp.up_proj.weight: codes" in report


def test_a_sharded_checkpoint_resumes_with_the_same_bits(ranks):
    for rank in ranks:
        assert_equal(rank["resumed"], rank["fsdp"])


def test_its_loss_reads_the_head_without_the_layer(ranks):
    """With values that is a product of torch; with codes it would be NaN, and is an error."""
    for rank in ranks:
        assert "never ran  1 of 15 FP8 layers: lm_head" in rank["ddp"]["report"]
        kind, text = rank["error"]
        assert kind == "StateError" and "lm_head.weight" in text and "layers.skip" in text


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=14, gather="fp8")

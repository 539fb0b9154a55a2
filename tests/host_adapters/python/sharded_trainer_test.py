"""The Trainer of transformers with --fsdp (version 2) on two ranks of gloo: OctavoCallback has the bits of the same
Trainer with DistributedDataParallel, and its sharded checkpoints resume."""
import pytest

from fsdp_parts import assert_equal
from torchrun import assert_sample, ranks_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import sharded_trainer_ranks as program  # noqa: E402  needs transformers


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    transformers.utils.logging.set_verbosity_error()
    return ranks_of(program.run, tmp_path_factory.mktemp("trainer"))


@pytest.mark.parametrize("kind", program.KINDS)
def test_it_has_the_bits_of_ddp(ranks, kind):
    for rank in ranks:
        whole, _, _ = rank[kind]
        assert whole["is sharded"] and not rank["ddp"]["is sharded"]
        assert len(whole["losses"]) == program.STEPS and len(set(whole["losses"])) == program.STEPS
        assert_equal(whole, rank["ddp"])
        assert f"linear_forward {program.LAYERS * program.STEPS}, " in whole["report"]
        assert ("lm_head.weight: codes" in whole["report"]) == kind.startswith("FULL")


@pytest.mark.parametrize("kind", program.KINDS)
def test_a_checkpoint_resumes_with_the_same_bits(ranks, kind):
    for rank in ranks:
        whole, resumed, files = rank[kind]
        assert_equal(resumed, whole)
        rest = program.STEPS - program.SAVED
        assert f"linear_forward {program.LAYERS * rest}, " in resumed["report"]
        assert {"octavo.safetensors", "pytorch_model_fsdp_0" if kind.startswith("SHARDED") else
                "pytorch_model_fsdp.bin"} <= set(files)


def test_msamp_is_refused(ranks):
    for rank in ranks:
        kind, text = rank["refused"]
        assert kind == "UnsupportedError" and "fully_shard" in text and 'fp8.backend = "te"' in text


def test_the_sample(ranks):
    assert_sample([rank["sample"] for rank in ranks], layers=14, gather="fp8")

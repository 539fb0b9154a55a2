"""Optimizer state on one rank each with frameworks, on two ranks of gloo: octavo.accelerate.Accelerator carries it,
the others refuse it before they train."""
import pytest
import torch

from fsdp_parts import assert_equal
from torchrun import ranks_of

pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("lightning", reason="lightning is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
import sharded_state_ranks as program  # noqa: E402  needs accelerate


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(program.run, tmp_path_factory.mktemp("state"))


def test_accelerate_has_the_bits_without_it(ranks):
    for rank in ranks:
        assert len(set(rank[True]["losses"])) == program.STEPS
        assert_equal(rank[True], rank[None])


def test_what_accelerate_exports_is_whole(ranks):
    for rank in ranks:
        assert rank[True]["exported"].keys() == rank[None]["exported"].keys()
        for name, value in rank[None]["exported"].items():
            assert torch.equal(value, rank[True]["exported"][name]), name


@pytest.mark.parametrize("way", [(True, True), (True, None), (None, True)])
def test_accelerate_resumes_with_and_without_it(ranks, way):
    for rank in ranks:
        went_on = rank[None]
        assert_equal(rank[way], {**went_on, "losses": went_on["losses"][program.SAVED:]})


@pytest.mark.parametrize("who, text", [
    ("accelerate", "accelerator: expected optimizer state that is whole on every rank"),
    ("transformers", "OctavoCallback: expected optimizer state that is whole on every rank"),
    ("lightning", "OctavoPrecision: expected optimizer state that is whole on every rank"),
    ("te", "shard_optimizer_state: expected a backend that keeps optimizer states in slots, found te"),
    ("fsdp2", "accelerator: expected DistributedDataParallel with octavo_shard_optimizer_state=True, found FSDP2")])
def test_what_is_refused(ranks, who, text):
    for rank in ranks:
        assert rank["refusals"][who].startswith(f"UnsupportedError: {text}"), rank["refusals"][who]
        assert rank["refusals"]["te is plain"]

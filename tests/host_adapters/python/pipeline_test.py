"""Stages of torch.distributed.pipelining, each prepared by itself: a session a stage, which talks to no other."""
import pytest
import torch

from fsdp_parts import bytes_of, ranks_of
from pipeline_ranks import BACKENDS, RUNS, WORLD


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, WORLD, RUNS, ["both"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_stages_have_the_bits_of_one_process(ranks, backend):
    for rank in ranks:
        for found, wanted in zip(*rank["both"][backend]):
            assert found.keys() == wanted.keys() and found
            for name, value in found.items():
                assert torch.equal(bytes_of(value), bytes_of(wanted[name])), name

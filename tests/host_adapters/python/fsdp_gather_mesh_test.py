"""The tests of fsdp_mesh_test.py with octavo.prepare(fsdp_gather="fp8"): codes that four ranks gather."""
import pytest

from fsdp_mesh_ranks import RUNS, WORLD
from fsdp_mesh_test import (test_hsdp_has_the_bits_of_ddp_that_adds_in_its_order,
                            test_maxima_are_those_of_the_mesh_and_not_of_all_ranks, test_modules)
from fsdp_parts import assert_equal, ranks_of


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    names = ("hsdp", "modules", "two models", "two models, HSDP", "values")
    return ranks_of(tmp_path_factory, WORLD, RUNS, names, gather="fp8")


def test_values_of_a_layer_whose_rows_do_not_divide_by_the_ranks(ranks):
    for rank in ranks:
        layers = rank["values"]["layers"]
        assert layers.pop("head.weight") == "values: its 10 rows do not divide by 4 ranks"
        assert set(layers.values()) == {"codes"} and len(layers) == 5
        assert_equal(rank["values"]["fsdp"], rank["values"]["ddp"])


def test_codes_are_not_resharded_to_fewer_ranks(ranks):
    for rank in ranks:
        assert "expected fully_shard with reshard_after_forward=True or False" in rank["values"]["by two"]
        assert 'set fsdp_gather="values"' in rank["values"]["by two"]

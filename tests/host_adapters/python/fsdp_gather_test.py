"""octavo.prepare(fsdp_gather="fp8"): fully_shard gathers codes, and every test of fsdp_test.py has the same bits
as with values. The bytes on the wire are counted."""
import pathlib

import pytest

from fsdp_gather_ranks import RUNS
from fsdp_parts import FEW, LINEARS, ORDERS, assert_equal, ranks_of
from fsdp_ranks import RECIPES, WORLD
from fsdp_test import (assert_all_equal, test_a_gradient_with_inf_on_one_rank_is_a_step_of_no_rank,
                       test_a_run_that_resumes_has_the_bits_of_one_that_did_not_stop,
                       test_accumulation_without_synchronisation, test_activation_checkpointing,
                       test_caches_have_bytes_only_while_weights_are_gathered,
                       test_caches_stay_with_weights_that_stay, test_compiled,
                       test_grad_scaler,
                       test_mixed_precision_is_a_step_of_a_bfloat16_model,
                       test_models_that_begin_without_memory,
                       test_offload_policy_where_shards_are_on_the_cpu_anyway, test_reshard_after_forward)
from fsdp_wire import K, LAYERS, N, table

LEFT_OUT = ("short", "evaluation")  # in fsdp_short_test.py; reads the weight itself


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return ranks_of(tmp_path_factory, WORLD, RUNS, [name for name in RUNS if name not in LEFT_OUT], gather="fp8")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_few_steps_have_the_bits_of_ddp(ranks, recipe, order):
    assert_all_equal(ranks, f"equal {recipe}", [order], FEW)


def test_recipes_mixed_in_one_model_have_the_bits_of_ddp(ranks):
    for rank in ranks:
        for gather in ("values", "fp8"):
            assert_equal(rank["mixed"][gather], rank["mixed"]["ddp"])
        assert sorted(rank["mixed"]["layers"]) == sorted(f"{name}.weight" for name in LINEARS)


def test_what_is_gathered_of_each_layer(ranks):
    """Half of the rows of a weight are no whole blocks of 128 where it has 128, nor of 32 in the head."""
    for rank in ranks:
        for recipe, rows in {"delayed": 1, "current": 1, "block": 128, "mx": 32}.items():
            layers = rank["layers"][recipe]
            assert sorted(layers) == sorted(f"{name}.weight" for name in LINEARS)
            for name, how in layers.items():
                half = 5 if "head" in name else 128 if "up" in name else 64
                if half % rows == 0:
                    assert how == "codes", (recipe, name)
                else:
                    assert how.startswith("values: ") and f"a multiple of {rows} rows" in how
                    assert f"found {half}" in how


# Bytes of a packet that are not codes [rows, K]; each part of it begins at a multiple of 64.
EXTRA = {"delayed": lambda rows, k: 64, "current": lambda rows, k: 64,  # a scale
         "block": lambda rows, k: 2 * 64,                # a scale a 128 x 128 block in both orders
         "mx": lambda rows, k: rows * k + 2 * rows * k // 32}  # codes of the other direction, two bytes a block


@pytest.mark.parametrize("recipe", RECIPES)
def test_bytes_on_the_wire_are_a_quarter_and_the_scales(ranks, recipe):
    for rank in ranks:
        values, codes = (rank["wire"][recipe, gather]["gathered"] for gather in ("values", "fp8"))
        assert len(codes) == len(values) == 2 * LAYERS  # of a forward and a backward
        for i, (four, one) in enumerate(zip(values, codes)):
            layer = i if i < LAYERS else 2 * LAYERS - 1 - i
            n, k = (N, K) if layer % 2 == 0 else (K, N)
            assert four == 4 * n * k // WORLD
            assert one == four // 4 + EXTRA[recipe](n // WORLD, k)
        assert sum(rank["wire"]["bfloat16"]["gathered"]) == sum(values) // 2


def test_the_table_has_these_bytes(ranks):
    written = pathlib.Path(__file__).parents[3] / "docs/results/fsdp_gather.csv"
    for rank in ranks:
        assert table(rank["wire"]) == written.read_text(encoding="utf-8").splitlines()


def test_one_all_reduce_of_maxima_a_step(ranks):
    for rank in ranks:
        for runs in ({g: rank["wire"]["delayed", g] for g in ("values", "fp8")}, rank["wire"]["accumulated"]):
            values, codes = runs["values"]["maxima"], runs["fp8"]["maxima"]
            assert codes == [LAYERS, *values]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_policies(ranks, dtype):
    for rank in ranks:
        assert_equal(rank[dtype]["fp8"], rank[dtype]["values"])


@pytest.mark.parametrize("writes", ["seen", "unseen"])
def test_an_optimizer_that_is_none_of_torch(ranks, writes):
    for rank in ranks:
        runs = rank[writes]
        assert_equal(runs["fp8"], runs["values"])
        assert len(set(runs["fp8"]["losses"])) == FEW
        assert runs["fp8"]["boundaries"] == runs["values"]["boundaries"] >= FEW - 1


def test_a_layer_that_is_gathered_and_not_used(ranks):
    for rank in ranks:
        assert_equal(rank["unused"]["fp8"], rank["unused"]["values"])


def test_evaluation_in_fp8(ranks):
    assert_all_equal(ranks, "evaluation in FP8", ["fsdp"], 2 * FEW)


def test_other_code_that_reads_the_weight_gets_nan_and_a_saved_shard_is_plain(ranks):
    for rank in ranks:
        found = rank["whole"]
        assert found["is NaN"] and found["shape"] == (128, 128) and found["bytes"] == 4
        assert found["type"] == "Tensor" and found["equal"]

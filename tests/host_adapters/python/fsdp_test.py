"""fully_shard (FSDP2) on two ranks of gloo: training of sharded models has the bits of
DistributedDataParallel.

Both sum two gradients of float32, which does not depend on an order, and halve the sum, which is exact.
Every other operation is elementwise or on whole weights, so no rounding differs."""
import pytest
import torch

from fsdp_parts import FEW, LINEARS, ORDERS, assert_equal, ranks_of
from fsdp_ranks import RECIPES, RUNS, STEPS, WORLD


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found: one pair of processes for all tests of this file."""
    return ranks_of(tmp_path_factory, WORLD, RUNS, [name for name in RUNS if name != "short"])


def assert_all_equal(ranks, name, keys, steps=FEW):
    for rank in ranks:
        runs = rank[name]
        assert len(runs["ddp"]["losses"]) == steps
        assert runs["ddp"]["losses"][0] != runs["ddp"]["losses"][-1]
        for key in keys:
            assert_equal(runs[key], runs["ddp"])
    assert_equal({**ranks[0][name]["ddp"], "losses": []}, {**ranks[1][name]["ddp"], "losses": []})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_fifty_steps_have_the_bits_of_ddp(ranks, recipe, order):
    assert_all_equal(ranks, f"equal {recipe}", [order], STEPS)


def test_recipes_differ(ranks):
    """So that equal bits are those of a recipe. Scales of block and of mx are powers of two, which change a code only at
    the ends of E4M3's range, so these two may agree."""
    losses = {recipe: tuple(ranks[0][f"equal {recipe}"]["ddp"]["losses"]) for recipe in RECIPES}
    assert len({*losses.values()}) >= len(RECIPES) - (losses["block"] == losses["mx"])


@pytest.mark.parametrize("option", ["kept", "freed"])
def test_reshard_after_forward(ranks, option):
    assert_all_equal(ranks, "options", [option])


def test_offload_policy_where_shards_are_on_the_cpu_anyway(ranks):
    assert_all_equal(ranks, "options", ["offload"])


def test_caches_have_bytes_only_while_weights_are_gathered(ranks):
    for rank in ranks:
        seen = rank["caches"]
        first, second = ("blocks.0.up", "blocks.0.down"), ("blocks.1.up", "blocks.1.down")
        expected = {"sharded": (), "in block 0": ("stem", *first), "after forward": ("stem",),
                    "in the backward of block 1": ("stem", *second), "after backward": (),
                    "after evaluation": ()}
        assert seen.keys() == expected.keys()
        for point, held in expected.items():
            assert {n for n in LINEARS if seen[point][n] > 0} == set(held), point
        # The codes of 128 x 256 for both directions, and their scale in float32.
        assert seen["in block 0"]["blocks.0.up"] == 2 * 128 * 256 + 4


def test_caches_stay_with_weights_that_stay(ranks):
    for rank in ranks:
        seen = rank["caches kept"]
        assert {n for n in LINEARS if seen["after forward"][n] > 0} == set(LINEARS)
        assert not any(seen["after backward"].values())


@pytest.mark.parametrize("between", ["freed", "kept"])
def test_accumulation_without_synchronisation(ranks, between):
    assert_all_equal(ranks, "accumulation", [between], 3 * FEW)
    # A weight that is gathered again is no step: one boundary for each of the optimizer's.
    assert [rank["accumulation"][between]["boundaries"] for rank in ranks] == [FEW] * WORLD


@pytest.mark.parametrize("kind", ["non-reentrant", "reentrant"])
def test_activation_checkpointing(ranks, kind):
    assert_all_equal(ranks, "checkpointing", [kind])


@pytest.mark.parametrize("name", ["blocks, eager", "blocks, aot_eager", "model, aot_eager"])
def test_compiled(ranks, name):
    assert_all_equal(ranks, "compiled", [name])
    for rank in ranks:
        assert rank["compiled"][name]["graphs"] >= 2


@pytest.mark.parametrize("order", ORDERS)
def test_mixed_precision_is_a_step_of_a_bfloat16_model(ranks, order):
    """Weights that are gathered in bfloat16 have the codes of a bfloat16 model's, and so have its
    gradients; their sum is one of float32."""
    for rank in ranks:
        run = rank["precision"]
        assert run[order]["loss"] == run["loss"]
        assert run[order]["gradients"].keys() == run["gradients"].keys()
        for name, gradient in run["gradients"].items():
            assert torch.equal(run[order]["gradients"][name], gradient), name
        assert len(set(run[order]["later"])) == FEW


def test_grad_scaler(ranks):
    for rank in ranks:
        runs = rank["scaled"]
        scales = runs["ddp"]["losses"][1::2]
        assert scales[0] < 2.0**24 and scales[-1] == scales[-2]  # a step was left out, and one happened
        assert_equal(runs["fsdp"], runs["ddp"])


@pytest.mark.parametrize("how", [*ORDERS, "swapped", "assigned", "never sharded"])
def test_models_that_begin_without_memory(ranks, how):
    assert_all_equal(ranks, "meta", [how])
    assert [rank["meta"][how]["held"] for rank in ranks] == [0] * WORLD


def test_evaluation_between_steps(ranks):
    assert_all_equal(ranks, "evaluation", ["fsdp"], 2 * FEW)


def test_a_run_that_resumes_has_the_bits_of_one_that_did_not_stop(ranks):
    assert_all_equal(ranks, "resumed", ["resumed"])


def test_a_gradient_with_inf_on_one_rank_is_a_step_of_no_rank(ranks):
    for rank in ranks:
        run = rank["infinite"]
        assert run["skipped"] == 1
        for name, before in run["before"].items():
            assert torch.equal(run["after"][name], before), name

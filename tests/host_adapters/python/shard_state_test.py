"""octavo.prepare(shard_optimizer_state=True) on ranks of gloo: the bits of DistributedDataParallel without it."""
import json
import re
import subprocess

import pytest
import torch

from fsdp_parts import assert_equal, bytes_of, ranks_of
from octavo import _abi
from octavo.__main__ import program
from shard_state_ranks import FORMATS, LEVELS, MODULES, RUNS, STEPS

WORLDS = (2, 4)


class Ranks:
    """What each rank of a world found."""

    def __init__(self, tmp_path_factory):
        self._factory, self._found = tmp_path_factory, {}

    def __getitem__(self, world):
        if world not in self._found:
            names = {2: [name for name in RUNS if name not in ("pairs", "short")], 4: ["equal", "ledger", "pairs"]}[world]
            self._found[world] = ranks_of(self._factory, world, RUNS, names)
        return self._found[world]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return Ranks(tmp_path_factory)


def assert_same(found):
    assert len(set(found["ddp"]["losses"])) > 1
    assert_equal(found["sharded"], found["ddp"])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("level", LEVELS)
def test_ten_steps_have_the_bits_of_ddp(ranks, world, level):
    for rank in ranks[world]:
        found = rank["equal"][level]
        assert len(found["ddp"]["losses"]) == STEPS and found["missing"] > 0
        assert_same(found)


@pytest.mark.parametrize("world", WORLDS)
def test_a_step_sends_its_weights_in_one_collective(ranks, world):
    for rank in ranks[world]:
        for level in LEVELS:
            assert rank["equal"][level]["calls"] == [("exchange of stepped weights", "all_gather_into_tensor")] * STEPS


@pytest.mark.parametrize("name", ["chunks", *FORMATS, "two optimizers"])
def test_other_ways_have_the_bits_of_ddp(ranks, name):
    for rank in ranks[2]:
        assert_same(rank["options"][name])


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_the_bits_of_ddp(ranks, name):
    for rank in ranks[2]:
        assert_same(rank["modules"][name])


def test_ranks_in_pairs_have_the_bits_of_ddp_in_pairs(ranks):
    for rank in ranks[4]:
        assert_same(rank["pairs"])
        assert_same(rank["pairs"]["chunks"])


def test_an_overflow_on_one_rank_is_a_step_of_no_rank(ranks):
    for rank in ranks[2]:
        found = rank["overflow"]
        assert found["ddp skipped"] == found["sharded skipped"] == 1
        assert_same(found)


def test_grad_scaler_hears_what_it_hears_without(ranks):
    for rank in ranks[2]:
        plain, sharded = rank["scaler"]
        assert plain == sharded and plain.startswith("UnsupportedError: a gradient in FP8 slots: expected no GradScaler")


# Bytes a parameter: on every rank, and shared out.
LEDGER = {"O1": (3, 8), "O2": (3, 3), "O3": (2, 5)}
STORED = (_abi.ROLE_WEIGHT, _abi.ROLE_GRADIENT, _abi.ROLE_EXP_AVG, _abi.ROLE_EXP_AVG_SQ, _abi.ROLE_MASTER_WEIGHT)


def plan_of(folder, level, world):
    shapes = {"linears": [{"name": "up", "n": 64, "k": 64, "bias": True, "count": 4}]}
    (folder / "shapes.json").write_text(json.dumps(shapes))
    done = subprocess.run([program(), "estimate", folder / "shapes.json", "--set", "layers.skip=[]",
                           "--json", "--mesh", str(world), "--backend",
                           f"msamp:opt_level={level}"], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)["columns"][0]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_bytes_of_a_rank_are_those_of_the_plan(ranks, tmp_path, level, world):
    plan, found = plan_of(tmp_path, level, world), [rank["ledger"][level] for rank in ranks[world]]
    everywhere, shared = LEDGER[level]
    elements, biases = 4 * 64 * 64, 4 * 64
    for rank in found:
        assert rank[0] == 2 * 4 * biases
        # Moments of biases are shared out, too.
        moments = sum(rank[role] for role in STORED if role in rank) - elements * everywhere
        own = {"O1": 8, "O2": 3, "O3": 3}[level] * biases // world
        assert moments == elements * shared // world + own
    totals = [sum(rank.values()) for rank in found]
    assert plan["fullest"]["total"] == max(totals) and plan["least"]["total"] == min(totals)
    assert plan["all"]["total"] == sum(totals)
    for key, role in (("exp_avg", _abi.ROLE_EXP_AVG), ("exp_avg_sq", _abi.ROLE_EXP_AVG_SQ),
                      ("master_weight", _abi.ROLE_MASTER_WEIGHT)):
        assert plan["all"]["bytes"][key] == sum(rank.get(role, 0) for rank in found), key


def test_moments_of_adamw_load_on_their_owners_and_come_back(ranks):
    parts = []
    for rank in ranks[2]:
        found = rank["moments"]
        assert_same(found)
        moments, expected = (found[name]["moments"] for name in ("sharded", "ddp"))
        assert moments.keys() == expected.keys() and all(torch.equal(v, expected[k]) for k, v in moments.items())
        assert {float(v) for k, v in moments.items() if k.endswith("/step")} == {6.0}
        assert found["read"].startswith("StateError: ") and "octavo.full_state(model)" in found["read"]
        parts.append(found["part"][0])
        assert re.fullmatch(r"rank \d of \d", found["part"][1])
    assert set.union(*parts) == {int(name.partition("/")[0]) for name in moments}
    assert all(part < set.union(*parts) for part in parts)


def test_a_read_of_another_ranks_master_is_an_error(ranks):
    for number, rank in enumerate(ranks[2]):
        read = dict(rank["reads"]["read"])
        assert read.pop("pickle").startswith("StateError: a model whose optimizer state is sharded: expected octavo.full_state")
        for what in ("restore", "another stage"):
            assert read.pop(what).startswith("StateError: model: expected its whole state on this rank"), what
        for what, text in read.items():
            assert f"expected a read on rank {1 - number}, which holds these values" in text, what
            assert "inside of octavo.full_state(model)" in text and text.startswith("StateError"), what


def test_a_whole_state_goes_on_without_sharding(ranks):
    for rank in ranks[2]:
        assert rank["reads"]["still whole"][1] == rank["reads"]["unsharded"]


def test_weights_that_every_rank_writes_have_the_bits_of_ddp(ranks):
    for rank in ranks[2]:
        assert_same(rank["reads"])
        assert "expected a step outside of octavo.full_state" in rank["reads"]["step inside"]


def test_memory_that_something_else_holds_is_an_error(ranks):
    for rank in ranks[2]:
        assert "expected a weight that only its parameter refers to" in rank["reads"]["held"], rank["reads"]["held"]


def test_copies(ranks):
    for rank in ranks[2]:
        found = rank["copies"]
        assert found["is sharded"] == [True, True, False, False]
        assert found["first"] == found["copy"] == found["alone"]
        for other in found["states"][1:]:
            assert_equal({"losses": [], **other}, {"losses": [], **found["states"][0]})
        assert found["bad to"].startswith("InvalidError: to: expected a rank of the group, 0 to 1")
    (here, nothing), (there, state) = (rank["copies"]["to"] for rank in ranks[2])
    assert here.startswith("StateError") and nothing is None and there == "no error"
    for name, value in ranks[2][0]["copies"]["states"][0]["octavo"].items():
        assert torch.equal(bytes_of(value), bytes_of(state[name])), name


def test_an_export_inside_of_full_state(ranks):
    for rank in ranks[2]:
        assert rank["export"]["ddp alone"] == "no error"
        assert rank["export"]["sharded alone"].startswith("StateError") and "octavo.full_state" in rank["export"]["sharded alone"]
    assert ranks[2][0]["export"]["sharded"] == ranks[2][0]["export"]["ddp"] != b""


def test_another_stage_and_a_plain_model_inside_of_full_state(ranks):
    for rank in ranks[2]:
        found = rank["stages"]
        assert_same(found)
        assert found["sharded slots"][_abi.ROLE_MASTER_WEIGHT] < found["ddp slots"][_abi.ROLE_MASTER_WEIGHT]
        for name, value in found["ddp plain"].items():
            assert torch.equal(value, found["sharded plain"][name]), name


def test_ranks_that_do_not_agree(ranks):
    expected = {"on rank 0 alone": "StateError: the ranks: expected shard_optimizer_state of octavo.prepare of rank 0",
                "no wrapper": "StateError: shard_optimizer_state: expected DistributedDataParallel around the model",
                "other seeds": "StateError: the ranks: expected the weights in slots of rank 0",
                "join of other seeds": "StateError: the ranks: expected the weights in slots of rank 0",
                "another group": "StateError: shard_optimizer_state: expected one group of ranks, [0, 1]",
                "not in it": "InvalidError: group: expected one that has this process"}
    for rank in ranks[2]:
        for what, text in expected.items():
            assert rank["refusals"][what].startswith(text), (what, rank["refusals"][what])
        assert rank["refusals"]["joined"]
        assert_equal(rank["refusals"]["a group"], rank["refusals"]["a group, ddp"])

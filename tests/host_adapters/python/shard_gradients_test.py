"""octavo.prepare(shard_optimizer_state=True): the mean of a gradient goes to its owner alone. Against
DistributedDataParallel without it, on ranks of gloo."""
import json
import subprocess

import pytest
import torch

from fsdp_parts import assert_equal, bytes_of, ranks_of
from octavo.__main__ import program
from shard_gradients_ranks import BUCKETS, EXCHANGES, RUNS

WORLDS = (2, 4)


@pytest.fixture(scope="module", params=WORLDS)
def ranks(request, tmp_path_factory):
    return ranks_of(tmp_path_factory, request.param, RUNS, list(RUNS))


def test_norms_and_clipped_steps_have_the_bits_of_ddp(ranks):
    for rank in ranks:
        for exchange in EXCHANGES:
            for bucket in BUCKETS:
                assert_equal(rank["clipping"][exchange, bucket]["sharded"], rank["clipping"][exchange, bucket]["ddp"])


@pytest.mark.parametrize("loop", ["accumulated", "retained"])
def test_loops_have_the_bits_of_ddp(ranks, loop):
    for rank in ranks:
        assert len(set(rank["loops"][loop]["ddp"]["losses"])) > 1
        assert_equal(rank["loops"][loop]["sharded"], rank["loops"][loop]["ddp"])


def test_a_gradient_that_another_rank_has_is_an_error(ranks):
    for number, rank in enumerate(ranks):
        found = rank["reads"]["sharded"]
        assert len(set(found["owner"].values())) == min(len(ranks), len(found["owner"]))
        for name, owner in found["owner"].items():
            expected = "no error" if owner == number else f"StateError: {name}: expected a read on rank {owner}"
            assert found["outside"][name].startswith(expected)
            assert owner == number or "take its norm, which every rank has" in found["outside"][name]
        assert (found["sum"] == "no error") == (found["of whom"] == number)


def test_a_backward_that_adds_to_one_is_an_error_on_every_rank(ranks):
    for rank in ranks:
        assert "expected a gradient that zero_grad has dropped" in rank["reads"]["sharded"]["added to"]
        assert "no_sync()" in rank["reads"]["sharded"]["added to"]


def test_inside_of_full_state_every_rank_has_it(ranks):
    for rank in ranks:
        for what in ("gradients", "sums"):
            for name, value in rank["reads"]["ddp"][what].items():
                assert torch.equal(bytes_of(value), bytes_of(rank["reads"]["sharded"][what][name])), (what, name)


def test_reductions_count_each_element_once(ranks):
    for rank in ranks:
        assert rank["reads"]["sharded"]["counts"] == rank["reads"]["ddp"]["counts"]
        assert rank["reads"]["ddp"]["counts"][1] > 0


def plan_of(folder, world, exchange, gradients):
    """The bytes that octavo estimate --mesh has for gradients in slots, of all ranks."""
    shapes = {"linears": [{"name": "up", "n": 64, "k": 64, "count": 4}]}
    (folder / "shapes.json").write_text(json.dumps(shapes))
    options = ",".join(f"{k}={v}" for k, v in {"opt_level": "O2", **EXCHANGES[exchange]}.items())
    done = subprocess.run([program(), "estimate", folder / "shapes.json", "--set", "layers.skip=[]",
                           "--json", "--mesh", str(world), "--gradients", gradients,
                           "--backend", f"msamp:{options}"], capture_output=True, text=True, check=True, timeout=60)
    return world * sum(o["sent"] for o in json.loads(done.stdout)["columns"][0]["wire"] if o["what"] == "gradients")


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_the_bytes_on_the_wire_are_those_of_the_plan(ranks, tmp_path, exchange):
    world, elements = len(ranks), 4 * 64 * 64
    sent = {shards: sum(rank["wire"][exchange, shards] for rank in ranks) for shards in (False, True)}
    for shards, gradients in ((False, "all"), (True, "owner")):
        assert sent[shards] == plan_of(tmp_path, world, exchange, gradients)
    # All ranks together, a byte an element, and the maxima of four weights.
    maxima = 4 * 4 * 2 * (world - 1)
    whole = {"two": 2 * elements * (world - 1), "one": world * elements * (world - 1)}[exchange]
    owned = {"two": elements * (world - 1) * (world + 1) // world, "one": elements * (world - 1)}[exchange]
    assert sent == {False: whole + maxima, True: owned + maxima}

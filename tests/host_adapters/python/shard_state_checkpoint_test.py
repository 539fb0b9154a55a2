"""Checkpoints of a sharded optimizer state: on 2 ranks, then on 4, then in one process, and without sharding. The
slots have the same bytes, and the next losses are equal."""
import functools

import pytest
import torch.distributed.checkpoint as dcp

import octavo
from conftest import msamp
from fsdp_parts import adamw, assert_equal, ranks_of
from shard_state_checkpoint_ranks import files_run, load, loading_run, saving_run
from shard_state_ranks import LEVELS, Net


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def two(tmp_path_factory, folder):
    runs = {"saving": functools.partial(saving_run, folder), "files": functools.partial(files_run, folder)}
    return ranks_of(tmp_path_factory, 2, runs, list(runs))


@pytest.fixture(scope="module")
def four(tmp_path_factory, folder, two):
    return ranks_of(tmp_path_factory, 4, {"loading": functools.partial(loading_run, folder)}, ["loading"])


def assert_same_state(a, b):
    assert_equal({**a, "losses": []}, {**b, "losses": []})


def assert_resumed(found, saved):
    """On another number of ranks: the same bytes, but counters of recorded steps begin anew, for a batch is another
    part of the data; the first casts have scales of their own values."""
    counters = {k for k in saved["octavo"] if k.endswith("/counter")}
    assert counters and all(saved["octavo"][k].any() for k in counters)
    assert not any(found["octavo"][k].any() for k in counters)
    changed = {k: saved["octavo"][k] for k in saved["octavo"] if k in counters or k.startswith("octavo.")}  # hashes
    assert_same_state({**found, "octavo": {**found["octavo"], **changed}}, saved)


@pytest.mark.parametrize("level", LEVELS)
def test_two_ranks_go_on(two, level):
    for rank in two:
        for name in ("sharded", "same", *(["whole"] if level == "O3" else [])):
            assert_equal(rank["saving"][level, name], rank["saving"][level, "plain"])


@pytest.mark.parametrize("level", LEVELS)
def test_four_ranks_go_on_from_two(two, four, level):
    saved = two[0]["saving"][level, "plain"]
    for rank in four:
        found = [rank["loading"][level, name, shards]
                 for name, shards in (("sharded", True), ("sharded", None), ("plain", True))]
        for each in found:
            assert_resumed(each, saved)
            assert each["losses"] == found[0]["losses"] != saved["losses"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.filterwarnings("error:octavo")  # steps that allocate an optimizer's state are none
def test_one_process_goes_on_from_four(two, four, folder, level):
    model = Net(7)
    model, optimizer = octavo.prepare(model, adamw(model), overrides=msamp(level))
    load(model, optimizer, folder / f"{level} 4 sharded")
    found = {"weights": model.state_dict(), "octavo": octavo.state_dict(model)}
    assert_resumed(found, two[0]["saving"][level, "plain"])


@pytest.mark.parametrize("level", LEVELS)
def test_each_slot_is_saved_once(two, four, folder, level):
    """As often as without sharding, and so in as many bytes."""
    keys, sizes = {}, {}
    for name in ("2 plain", "2 sharded", "4 sharded"):
        metadata = dcp.FileSystemReader(folder / f"{level} {name}").read_metadata()
        keys[name] = sorted(index.fqn for index in metadata.storage_data)
        sizes[name] = sum(p.stat().st_size for p in (folder / f"{level} {name}").glob("*.distcp"))
        assert len(keys[name]) == len(set(keys[name]))
    assert keys["2 plain"] == keys["2 sharded"] == keys["4 sharded"]
    assert any(key.endswith("/exp_avg") for key in keys["2 sharded"])
    assert sizes["2 sharded"] == pytest.approx(sizes["2 plain"], rel=0.01)


def test_the_state_of_a_rank_goes_back_to_it_alone(two):
    for number, rank in enumerate(two):
        found = rank["files"]
        assert f"found the part of rank {1 - number} of 2 without parameter/" in found["of the other rank"]
        assert f"found the part of rank {number} of 2 without parameter/" in found["into a model that is not sharded"]
        assert "master_weight: expected the bytes with XXH3" in found["damaged"]
        for what in ("of the other rank", "into a model that is not sharded", "damaged"):
            assert found[what].startswith("InvalidError: "), found[what]
        assert_same_state(*found["unchanged"])
        assert_equal(*found["own"])
        assert_equal(*found["whole"])


def test_weights_in_16_bits_are_written_where_their_masters_are(two):
    texts = [rank["files"]["bfloat16"] for rank in two]
    assert any("StateError" in t and "expected a write inside of octavo.full_state" in t for t in texts), texts
    for rank in two:
        assert_same_state(*rank["files"]["bfloat16 whole"])

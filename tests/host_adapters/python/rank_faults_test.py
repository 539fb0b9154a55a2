"""Faults of one rank on 2 to 4 ranks of gloo, two of them at once: each kind in fixed places, some with the restart after
it, and more in places that a seed draws. OCTAVO_RANK_FAULTS=<count> draws as many with OCTAVO_SEED, each with its restart:
tests/soak.py does that."""
import os

import pytest

import rank_network
from rank_faults import KINDS, Fault, drawn, in_lanes, play

# With a restart, and without.
FIXED = [Fault("killed", "gather", 2, 1, 3, True), Fault("disk full", "gather", 2, 1, 3, False),
         Fault("slow", "gather", 2, 0, 2, True), Fault("killed saving", "sharded", 2, 1, 3, False)]
ALONE = [Fault("killed saving", "fsdp", 2, 0, 2, False), Fault("stopped", "ddp", 2, 1, 1, True),
         Fault("late", "ddp", 2, 0, 2, False), Fault("short of data", "ddp", 3, 2, 2, True),
         Fault("link down", "fsdp", 2, 1, 2, True)]
LANES = 2
EVERY_RUN = 17  # each kind once more than above
COUNT, SEED = int(os.environ.get("OCTAVO_RANK_FAULTS", "0")), int(os.environ.get("OCTAVO_SEED", "1"))
MORE = list(drawn(SEED, EVERY_RUN - len(FIXED) - len(ALONE)))
FAULTS = list(drawn(SEED, COUNT)) if COUNT else FIXED + ALONE + MORE
# A restart is compared with a run without a break. Of what is drawn, where FIXED has made that run.
COMPARED = {(fault.how, fault.world) for fault in FIXED}


def restarts(fault):
    return bool(COUNT) or fault in FIXED or fault in MORE and (fault.how, fault.world) in COMPARED


@pytest.fixture(scope="module")
def played(tmp_path_factory, request):
    """What came of each fault that this call of pytest selects."""
    selected = [item.callspec.params["fault"] for item in request.session.items
                if getattr(item, "callspec", None) and "fault" in item.callspec.params]
    references = tmp_path_factory.mktemp("unbroken")
    return in_lanes({str(fault): play(fault, tmp_path_factory.mktemp("fault"), references if restarts(fault) else None)
                     for fault in selected if fault.kind != "link down" or rank_network.missing() is None}, LANES)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_others_learn_of_it_and_a_restart_has_the_same_bits(fault, played):
    if str(fault) not in played:
        pytest.skip(rank_network.missing())
    found = played[str(fault)]
    if isinstance(found, AssertionError):
        raise found
    texts, seconds = found
    by_octavo = sum("octavo.errors.DeviceError" in text for text in texts)
    print(f"{fault}: {seconds:.2f} s, {by_octavo} of {len(texts)} in a collective of Octavo")


def test_every_kind_is_drawn():
    assert {fault.kind for fault in FIXED + ALONE} == {fault.kind for fault in drawn(1, len(KINDS))} == set(KINDS)
    assert list(drawn(5, 20)) == list(drawn(5, 20)) != list(drawn(6, 20))
    assert COUNT or len({str(fault) for fault in FAULTS}) == EVERY_RUN, "two of them are the same"
    assert COUNT or sum(map(restarts, MORE)) >= 3

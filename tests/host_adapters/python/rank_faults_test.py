"""One fault of each kind on 2 or 3 ranks of gloo, and the restart after it. OCTAVO_RANK_FAULTS=<count> draws as many
with OCTAVO_SEED: tests/soak.py does that."""
import os

import pytest

import rank_network
from rank_faults import KINDS, Fault, drawn, play

# With a restart, and without.
FIXED = [Fault("killed", "gather", 2, 1, 3, True), Fault("disk full", "gather", 2, 1, 3, False),
         Fault("slow", "gather", 2, 0, 2, True), Fault("killed saving", "sharded", 2, 1, 3, False)]
ALONE = [Fault("killed saving", "fsdp", 2, 0, 2, False), Fault("stopped", "ddp", 2, 1, 1, True),
         Fault("late", "ddp", 2, 0, 2, False), Fault("short of data", "ddp", 3, 2, 2, True),
         Fault("link down", "fsdp", 2, 1, 2, True)]
COUNT = int(os.environ.get("OCTAVO_RANK_FAULTS", "0"))
FAULTS = list(drawn(int(os.environ.get("OCTAVO_SEED", "1")), COUNT)) if COUNT else FIXED + ALONE


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return tmp_path_factory.mktemp("unbroken")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_others_learn_of_it_and_a_restart_has_the_same_bits(fault, tmp_path, references):
    reason = rank_network.missing() if fault.kind == "link down" else None
    if reason is not None:
        pytest.skip(reason)
    texts, seconds = play(fault, tmp_path, None if fault in ALONE else references)
    by_octavo = sum("octavo.errors.DeviceError" in text for text in texts)
    print(f"{fault}: {seconds:.2f} s, {by_octavo} of {len(texts)} in a collective of Octavo")


def test_every_kind_is_drawn():
    assert {fault.kind for fault in FIXED + ALONE} == {fault.kind for fault in drawn(1, len(KINDS))} == set(KINDS)
    assert list(drawn(5, 20)) == list(drawn(5, 20)) != list(drawn(6, 20))

"""A rank that dies or stops in mid-training: the others get an error within the group's timeout, and end."""
import datetime
import json
import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist

import octavo
from conftest import msamp, te
from guide_parts import mlp
from octavo.torch.ranks import owners

TIMEOUT = 4  # more than a rank that is well may need for a step while eleven others begin on two cores
BACKENDS = {"te": te("delayed"), "msamp": msamp("O2"), "sharded": msamp("O3")}
# The collective that rank 1 does not answer.
PURPOSES = {"te": "all_reduce of maxima", "msamp": "exchange of gradients", "sharded": "exchange of stepped weights"}
ENDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def train(rank, folder, backend, end):
    """What rank 0 learns when rank 1 ends in its third step: [type of the error, its text, seconds]."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=TIMEOUT))
    model = mlp(16, 32, 8)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0),
                                      overrides=BACKENDS[backend], group=dist.group.WORLD,
                                      shard_optimizer_state=backend == "sharded")
    strike = lambda *_: os.kill(os.getpid(), ENDS[end])  # noqa: E731
    for number in range(4):
        if number == 2 and rank == 1:
            if backend == "sharded":  # after its own step, before it sends what it stepped
                owners.exchange = strike
            else:
                strike()
        began = time.monotonic()
        try:
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
        except octavo.OctavoError as e:
            return [type(e).__name__, str(e), time.monotonic() - began]
    return ["no error", "", 0.0]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """{(backend, end): what rank 0 learned}; the pairs of processes run at once."""
    children, folders = {}, {}
    for case in [(b, e) for b in BACKENDS for e in ENDS]:
        folders[case] = tmp_path_factory.mktemp("-".join(case))
        for rank in range(2):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    (folders[case] / f"{rank}.json").write_text(json.dumps(train(rank, folders[case], *case)))
                    code = 0
                finally:
                    os._exit(code)  # no thread of gloo outlives the process
            children[child] = (case, rank)
    found = {}
    for child, (case, rank) in children.items():
        if rank == 0:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, case
            found[case] = json.loads((folders[case] / "0.json").read_text())
    for child, (case, rank) in children.items():
        if rank == 1:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("end", ENDS)
def test_the_other_rank_learns_of_it_in_time(learned, backend, end):
    kind, text, seconds = learned[backend, end]
    assert kind == "DeviceError" and seconds < TIMEOUT + 2, (kind, text, seconds)
    # It is a reset where the one that ended had not read what this one sent.
    found = "Connection (closed|reset) by peer" if end == "killed" else "Timed out"
    assert re.search(found, text) and "start every rank again from a checkpoint" in text
    assert text.startswith(f"{PURPOSES[backend]}, in step 3 of this process: ") and f"its timeout of {TIMEOUT} s" in text

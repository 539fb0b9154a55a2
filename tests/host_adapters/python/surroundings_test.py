"""What surrounds a Python program may be bare or broken: no HOME, no terminal, closed descriptors, a deleted
directory, code that the system's loader brings. Each program is a process of its own."""
import json
import os
import shutil
import subprocess
import sys

import pytest

from zoo import library, put, settings

KEPT = ("PYTHONPATH", "OCTAVO_LIBRARY_DIR", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")
TRAINS = """
import os, shutil, sys
import torch
import torch._dynamo  # as the first optimizer does; torch itself does not start in a deleted folder
import octavo
folder, out = sys.argv[1:]
os.chdir(folder)
shutil.rmtree(folder)
model = torch.nn.Linear(16, 16)
model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()), overrides={"fp8.backend": "te"})
before = model.weight.detach().clone()
for _ in range(2):
    model(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
moved = not torch.equal(before, model.weight)
with open(out, "w") as file:
    file.write(f"{model.weight.isfinite().all().item()} {moved} {'cache      not used: ' in octavo.probe()}")
"""


def bare(**more):
    return {**{k: os.environ[k] for k in KEPT if k in os.environ}, **more}


def test_a_program_trains_in_bare_surroundings(tmp_path):
    """Without a home, a folder for temporary files, a current folder, a terminal and the three descriptors."""
    folder, out = tmp_path / "here", tmp_path / "out"
    folder.mkdir()
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-B", "-c", TRAINS,
                           str(folder), str(out)], timeout=120, start_new_session=True,
                          env=bare(HOME="/proc", XDG_CACHE_HOME="/dev/null", TMPDIR="/nowhere"))
    assert done.returncode == 0 and out.read_text() == "True True True"


SHOWS = """
import ctypes, json, sys
settings, copies = json.loads(sys.argv[1]), sys.argv[2:]
import octavo
before = octavo.probe(overrides=settings)
kept = [ctypes.CDLL(copy) for copy in copies]
print(json.dumps([before, octavo.probe(overrides=settings), json.loads(octavo.probe(format="json", overrides=settings))]))
"""


def cpp_library():
    """The file of the C++ library that liboctavo uses."""
    import octavo
    octavo.version()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = {line.split()[-1] for line in maps if "/libstdc++.so" in line}
    if not found:
        pytest.skip("the C++ library is part of liboctavo")
    return min(found)


def test_the_probe_shows_what_the_loader_brings(tmp_path):
    """LD_PRELOAD and its like, a runtime that the process has twice, and one that a plugin brings."""
    copy = tmp_path / "second" / "libstdc++.so.6"
    copy.parent.mkdir()
    shutil.copy(os.path.realpath(cpp_library()), copy)
    folder = put(tmp_path / "p", library("load_second"))
    environment = bare(LD_PRELOAD="libm.so.6", LD_LIBRARY_PATH=f"/nowhere:{os.environ.get('LD_LIBRARY_PATH', '')}",
                       FAKE_SECOND=str(copy))
    done = subprocess.run([sys.executable, "-B", "-c", SHOWS, json.dumps(settings(folder)), str(copy)],
                          env=environment, capture_output=True, text=True, timeout=120, check=True)
    before, text, model = json.loads(done.stdout)
    for line in ("\nloader     LD_PRELOAD = libm.so.6\n", "\nloader     LD_LIBRARY_PATH = /nowhere:"):
        assert line in before and line in text
    assert "the plugin brings a second libstdc++: " in before
    assert "several libstdc++" not in before
    assert "\nloader     several libstdc++: " in text and str(copy) in text
    assert model["loader"]["LD_PRELOAD"] == "libm.so.6" and str(copy) in model["duplicates"]["libstdc++"]

"""A prepared model in programs with several processes, threads and models, and at the end of a program.

It takes half a minute, since it forks twenty programs, and prepares 600 models in one: OCTAVO_MODELS says how many.
"""
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, te
from guide_parts import mlp

BACKENDS = {"te": te("delayed", amax_history_len=4), "msamp": msamp("O2")}
each = pytest.mark.parametrize("overrides", BACKENDS.values(), ids=BACKENDS)


class Rows(torch.utils.data.Dataset):
    """Random rows that depend on their number alone."""

    def __init__(self, before=None):
        self.before = before

    def __len__(self):
        return 128

    def __getitem__(self, i):
        if self.before is not None:
            self.before()
        generator = torch.Generator(device="cpu").manual_seed(i)
        return torch.randn(32, generator=generator, device="cpu"), torch.randn(16, generator=generator, device="cpu")


def made(overrides):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), overrides=overrides)


def step(model, optimizer, x, target):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model, optimizer, epochs=2, **loading):
    loading.setdefault("num_workers", 0)
    loader = torch.utils.data.DataLoader(loading.pop("rows", Rows()), batch_size=32, **loading)
    device = next(model.parameters()).device
    return [step(model, optimizer, x.to(device), target.to(device)) for _ in range(epochs) for x, target in loader]


@pytest.mark.parametrize(("context", "overrides"), [("fork", BACKENDS["te"]), ("fork", BACKENDS["msamp"]),
                                                    ("spawn", BACKENDS["msamp"])], ids=["te", "msamp", "spawn"])
def test_data_loaders_with_workers_change_no_bit(context, overrides):
    plain = train(*made(overrides))
    assert len(set(plain)) == len(plain) == 8
    assert train(*made(overrides), num_workers=2, multiprocessing_context=context, persistent_workers=True) == plain
    if context == "fork":  # workers that end while the model is in use
        assert train(*made(overrides), num_workers=1, multiprocessing_context=context) == plain


@pytest.mark.skipif("config.getoption('--device') != 'cpu'", reason="a child of fork may not use its parent's GPU")
@each
def test_a_worker_may_use_its_copy_of_the_model(overrides):
    """As a data loader that scores its samples does: the answer is the parent's, and the parent goes on as without."""
    model, optimizer = made(overrides)
    x = torch.ones(8, 32)
    expected = train(*made(overrides), epochs=1)
    with torch.no_grad():
        there = model(x)

    def use():
        with torch.no_grad():
            assert torch.equal(model(x), there)

    assert train(model, optimizer, epochs=1, rows=Rows(use), num_workers=2, multiprocessing_context="fork") == expected


def test_models_with_different_backends_train_side_by_side():
    alone = {name: train(*made(overrides)) for name, overrides in BACKENDS.items()}
    pairs = {name: made(overrides) for name, overrides in BACKENDS.items()}
    together = {name: [] for name in BACKENDS}
    loader = torch.utils.data.DataLoader(Rows(), batch_size=32)
    for _ in range(2):
        for x, target in loader:
            for name, pair in pairs.items():
                device = next(pair[0].parameters()).device
                together[name].append(step(*pair, x.to(device), target.to(device)))
    assert together == alone


def test_models_in_threads_of_their_own_train_as_alone():
    alone = {name: train(*made(overrides)) for name, overrides in BACKENDS.items()}
    pairs = {name: made(overrides) for name, overrides in BACKENDS.items()}
    found = {}

    def run(name):
        found[name] = train(*pairs[name])

    threads = [threading.Thread(target=run, args=(name,)) for name in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


PROGRAM = """
def made():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), overrides={overrides!r})

def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(32, 32)).square().mean().backward()
    optimizer.step()

def save():
    state = octavo.state_dict(model)
    octavo.load_state_dict(model, state)
    assert all(torch.equal(value.view(-1).view(torch.uint8), octavo.state_dict(model)[key].view(-1).view(torch.uint8))
               for key, value in state.items())

model, optimizer = made()
step(model, optimizer)
"""
# Forks a child for each program, which then ends as its main module does, with torch imported already. Prints exit
# codes and what was said.
DRIVER = """
import atexit, gc, json, os, pathlib, signal, sys, tempfile, threading, time
import torch
import torch._dynamo  # as the first optimizer does, for seconds
import octavo
import octavo.torch.prepare
from torch import nn

programs, found, mine = json.loads(sys.stdin.read()), [], None
for program in programs:
    said = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.dup2(said.fileno(), 2)
        signal.alarm(60)
        mine = program
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said.seek(0)
    found.append((code, said.read().decode()))
if mine is None:
    print(json.dumps(found))
else:
    exec(mine, globals())
"""
# What the program does then -> its exit code.
ENDS = {
    "falls_off": ("", 0),
    "model_first": ("del model; gc.collect(); del optimizer", 0),
    "optimizer_first": ("del optimizer; gc.collect(); del model", 0),
    "restored": ("octavo.restore(model)", 0),
    "without_collector": ("gc.disable(); loop = [model]; loop.append(loop); del model, loop", 0),
    "in_a_cycle_of_its_own": ("model.me = [model]; del model, optimizer", 0),
    "output_alive": ("y = model(torch.randn(4, 32))", 0),
    "between_forward_and_backward": ("loss = model(torch.randn(4, 32)).mean(); sys.exit(3)", 3),
    "error_in_backward": ("model[1].register_full_backward_hook(lambda *a: 1 / 0)\nstep(model, optimizer)", 1),
    "used_in_atexit": ("atexit.register(lambda: step(model, optimizer))", 0),
    "two_models": ("other = made(); step(*other); del model", 0),
    "module_of_octavo_gone": ("del octavo; sys.modules.pop('octavo')", 0),
    "saved_in_atexit": ("atexit.register(save)", 0),
    "saved_after_main": ("""
def late():
    threading.main_thread().join()
    save()
threading.Thread(target=late).start()""", 0),
    # Also while the main program saves or steps. SIGALRM of the driver ends what waits for ever.
    "saved_in_a_handler": ("""
saves = 0
def handler(*_):
    global saves
    saves += 1
    octavo.state_dict(model)
    if saves < 100:
        signal.setitimer(signal.ITIMER_PROF, 0.001)
signal.signal(signal.SIGPROF, handler)
handler()
while saves < 100:
    save()
    step(model, optimizer)""", 0),
    # A daemon thread that trains at this time ends torch itself with SIGABRT, with or without Octavo.
    "a_thread_ends_first": ("""
thread = threading.Thread(target=lambda: step(model, optimizer))
thread.start()""", 0),
    "without_cleaning_up": ("sys.stdout.flush(); os._exit(5)", 5),
    "child_of_fork": ("""
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
step(model, optimizer)""", 0),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -signal.SIGTERM),
    "sigint_in_a_step": ("""
model[1].register_forward_hook(lambda *a: os.kill(os.getpid(), signal.SIGINT))
try:
    while True:
        step(model, optimizer)
except KeyboardInterrupt:
    model[1]._forward_hooks.clear()
step(model, optimizer)""", 0),
}


# A process whose first calls of octavo are made by four threads at once.
BEGINS = """
import threading
import torch
import octavo
import octavo.torch.prepare
from torch import nn

barrier, done = threading.Barrier(4), []

def begin():
    barrier.wait()
    model = nn.Linear(16, 16)
    model, optimizer = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), overrides={overrides!r})
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    done.append(model)

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=begin) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 4
"""


# All ends with weights in slots; with weights in torch those that differ there.
CASES = [("msamp", end) for end in ENDS] + [("te", end) for end in
                                             ("falls_off", "used_in_atexit", "saved_in_atexit", "saved_after_main",
                                              "saved_in_a_handler")]


@pytest.fixture(scope="module")
def ended():
    """Case -> exit code and standard error."""
    programs = [PROGRAM.format(overrides=BACKENDS[backend]) + ENDS[end][0] for backend, end in CASES]
    programs.append(BEGINS.format(overrides=BACKENDS["te"]))
    done = subprocess.run([sys.executable, "-c", DRIVER], input=json.dumps(programs), capture_output=True, text=True,
                          timeout=300, check=True)
    return dict(zip([*CASES, "begins"], json.loads(done.stdout)))


@pytest.mark.parametrize(("backend", "end"), CASES)
def test_a_program_may_end_in_any_way(backend, end, ended):
    code, said = ended[backend, end]
    assert code == ENDS[end][1], said
    if code == 1:
        assert "ZeroDivisionError" in said
    else:
        assert said == ""


def test_threads_may_begin_at_once(ended):
    assert ended["begins"] == [0, ""]


CYCLES = """
import gc, os, pathlib
import torch
import octavo
from torch import nn

def cycle(count):
    for i in range(count):
        model = nn.Linear(16, 16)
        model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()), overrides={backends!r}[i % 2])
        if i % 8 < 2:
            model(torch.ones(4, 16)).square().mean().backward()
            optimizer.step()
        octavo.restore(model)

def resources():
    gc.collect()
    status = pathlib.Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    print(resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))

for _ in range(4):
    cycle({models} // 4)
    resources()
"""


def test_many_models_leave_nothing_behind():
    """Allocators have settled after a quarter of the models. In most of the other quarters each model may add 256 bytes,
    where a slot has 1 KiB: what leaks grows in all of them, what is allocated once (150 KiB at times) in one."""
    models = int(os.environ.get("OCTAVO_MODELS", "600"))
    program = CYCLES.format(models=models, backends=[te("delayed"), msamp("O2")])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=models)
    assert done.returncode == 0, done.stderr
    resident, *handles = zip(*([int(n) for n in line.split()] for line in done.stdout.splitlines()))
    assert [len(set(counts)) for counts in handles] == [1, 1]
    growth = [after - before for before, after in itertools.pairwise(resident)]
    assert statistics.median(growth) < models // 4 * 256 / 1024, resident

"""Memory that moves, goes, or is another process's: each kind works as in torch, or is an error in the process that did
it, and the training that goes on has the bits of one where nothing happened."""
import copy
import subprocess
import sys

import pytest
import torch

import octavo
from conftest import msamp, session, te
from guide_parts import mlp

BACKENDS = {"te": te("delayed", amax_history_len=4), "msamp": msamp("O2")}
each = pytest.mark.parametrize("name", BACKENDS)
# A process that starts without memory of this one, as by "spawn", but from one that has torch imported.
PROCESSES = torch.multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch._dynamo", "octavo.torch.prepare"])
pytestmark = pytest.mark.skipif("config.getoption('--device') != 'cpu'", reason="memory of processes is shared on CPUs")


def made(name):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), overrides=BACKENDS[name])


def train(model, optimizer, steps):
    losses = []
    for i in steps:
        optimizer.zero_grad()
        loss = model(torch.randn(32, 32, generator=torch.Generator().manual_seed(i))).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def use(model, steps=()):
    """What another process does with the model that it got: it evaluates it, and trains it by what it got with it."""
    found = torch.no_grad()(model)(torch.ones(4, 32)).tolist()
    if steps:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1) if session(model).run.backend == "te" else octavo.join(
            model, torch.optim.AdamW(model.parameters())), steps)
    return found


def child(model, models, answers):
    answers.put((use(copy.deepcopy(model), range(2)), use(models.get())))


class Scored(torch.utils.data.Dataset):
    """Each item is the answer of the model that the worker has."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.tensor(use(self.model))


def started(target, *arguments):
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


@each
def test_a_model_goes_to_another_process_by_value(name):
    expected = train(*made(name), range(6))
    model, optimizer = made(name)
    found, gradients = train(model, optimizer, range(3)), [p.grad for p in model.parameters()]
    before = [None if t is None else t.data_ptr() for t in session(model).tensors]
    answer = use(copy.deepcopy(model))
    models, answers = PROCESSES.Queue(), PROCESSES.Queue()
    process = started(child, model, models, answers)
    models.put(model)
    models.put([*gradients, model[0].weight])
    assert answers.get(timeout=120) == (answer, answer)
    process.join()
    assert process.exitcode == 0
    loader = torch.utils.data.DataLoader(Scored(model), batch_size=None, num_workers=1, multiprocessing_context=PROCESSES)
    assert [item.tolist() for item in loader] == [answer, answer]
    assert before == [None if t is None else t.data_ptr() for t in session(model).tensors]
    assert found + train(model, optimizer, range(3, 6)) == expected
    for there, here in zip(models.get(timeout=60), [*gradients, model[0].weight]):
        assert there.shape == here.shape


def negate(model):
    with torch.no_grad():
        for p in model.parameters():
            p.neg_()


def test_hogwild_writes_the_weights_that_te_multiplies_by():
    model, _ = made("te")
    model.share_memory()
    x = torch.ones(4, 32)
    model(x)
    process = started(negate, model)
    process.join()
    plain = mlp(32, 64, 16)
    plain.load_state_dict(model.state_dict())
    assert process.exitcode == 0
    assert (model(x) - plain(x)).norm() < 0.1 * plain(x).norm()


def test_hogwild_is_refused_where_weights_are_in_slots():
    expected = train(*made("msamp"), range(4))
    model, optimizer = made("msamp")
    found = train(model, optimizer, range(2))
    for share in (model.share_memory, model[0].weight.share_memory_):
        with pytest.raises(octavo.UnsupportedError, match=r'0.weight: .*share_memory_.*fp8.backend = "te"'):
            share()
    assert found + train(model, optimizer, range(2, 4)) == expected


@pytest.mark.parametrize("part", ["weight", "bias"])
@pytest.mark.parametrize("size", [0, 8])
@each
def test_memory_that_was_released_or_made_smaller_is_an_error(name, size, part):
    model, _ = made(name)
    x, p = torch.ones(4, 32), getattr(model[0], part)
    y, values = model(x).detach(), p.data.clone()
    storage = p.data.untyped_storage()
    kept, size_before = storage, storage.nbytes()
    storage.resize_(size)
    for _ in range(2):
        with pytest.raises(octavo.StateError, match="expected its values, found memory that was released"):
            model(x)
    kept.resize_(size_before)
    torch.no_grad()(p.copy_)(values)
    assert torch.allclose(model(x), y, atol=0.05)


@each
def test_set_gives_the_weight_that_it_says(name):
    model, _ = made(name)
    x = torch.ones(4, 32)
    model(x)
    with torch.no_grad():
        model[0].weight.set_(torch.full((64, 32), 0.25))
    plain = mlp(32, 64, 16)
    plain.load_state_dict(model.state_dict())
    assert plain[0].weight.eq(0.25).all()
    assert (model(x) - plain(x)).norm() < 0.1 * plain(x).norm()
    with torch.no_grad():
        model[0].weight.set_(torch.zeros(4, 32))
    with pytest.raises(octavo.InvalidError, match="0.weight: expected"):
        model(x)


DROPS = """
import ctypes, gc, pathlib, sys, weakref
import torch
import octavo
from torch import nn

def drop(overrides):
    model = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128))
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()), overrides=overrides)
    for _ in range(2):
        model(torch.ones(4, 128)).square().mean().backward()
        optimizer.step()
    model(torch.ones(4, 128)).square().mean().backward()
    session = octavo.torch.session_of(model)
    alive.extend((weakref.ref(t), t.numel() * t.element_size()) for t in session.tensors if t is not None)
    gradients.extend(p.grad for p in model.parameters() if type(p.grad).__name__ == "SlotGradient")
    return model[2].bias.grad

for collects in (True, False):  # without the collector by reference counts alone
    for overrides in {backends!r}:
        alive, gradients = [], []
        first = drop(overrides)  # torch keeps the first optimizer of a process alive, in frames of its import of torch._dynamo
        gc.collect()
        (gc.enable if collects else gc.disable)()
        for _ in range(20):
            drop(overrides)
        if collects:
            gc.collect()
        print(sum(size for t, size in alive if t() is not None), len(alive), len(gradients))
        if gradients:
            try:
                print(gradients[-1].plain())
            except octavo.StateError as error:
                print(error)
"""


def test_a_model_that_is_dropped_is_freed_though_its_gradients_are_not():
    program = DROPS.format(backends=list(BACKENDS.values()))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6, lines  # te and msamp, with the collector and without
    for of_te, of_msamp, said in (lines[:3], lines[3:]):
        for counts, expected in ((of_te, 0), (of_msamp, 42)):
            leaked, slots, gradients = map(int, counts.split())
            assert leaked == 0 and slots > 100 and gradients == expected
        assert "expected the model that it is of, found that the model is gone" in said

"""Signals in training: an exception of a handler ends the call that it meets as itself, the model goes on with the
weights that it has, and a handler may evaluate, save and step.

OCTAVO_INTERRUPTS says how many signals of each kind; seed: OCTAVO_SEED. A signal comes at a random time of a training
step; the timer starts anew for each, so that no two come at once.
"""
import copy
import faulthandler
import os
import random
import signal
import sys
import time

import pytest
import torch

import octavo
from conftest import msamp, session, te
from guide_parts import mlp

COUNT = int(os.environ.get("OCTAVO_INTERRUPTS", "60"))
BACKENDS = {"te": te("current"), "te delayed": te("delayed", amax_history_len=4), "msamp": msamp("O2")}
each = pytest.mark.parametrize("name", BACKENDS)
pytestmark = pytest.mark.skipif("config.getoption('--device') != 'cpu'", reason="signals meet the same code everywhere")


class Stop(BaseException):
    """As KeyboardInterrupt and SystemExit, with what a handler gave it."""


class Signals:
    """Calls `act` in a handler at a random time, until it is left. lost: exceptions that Python could raise nowhere, in
    code of the package."""

    def __init__(self, act, longest):
        self.act, self.longest, self.random = act, longest, random.Random(int(os.environ.get("OCTAVO_SEED", "1")))
        self.count, self.lost, self.elsewhere = 0, [], 0

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self._handle), sys.unraisablehook
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before[0])
        sys.unraisablehook = self.before[1]
        faulthandler.cancel_dump_traceback_later()

    def arm(self):
        faulthandler.dump_traceback_later(120, exit=True)  # a deadlock
        signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-5, self.longest))

    def disarm(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_grad_enabled(True)  # an exception can come between torch.no_grad's entry and its block

    def _handle(self, *_):
        self.count += 1
        self.act(self.count)

    def _unraisable(self, found):
        """Destructors and callbacks of weak references, where Python itself has nobody to raise to, are no calls."""
        if "ctypes callback" in str(found.err_msg):
            self.lost.append(found.err_msg)
        else:
            self.elsewhere += 1


def made(name):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    return octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), overrides=BACKENDS[name])


def batch(i):
    return torch.randn(32, 32, generator=torch.Generator().manual_seed(i))


def step(model, optimizer, i):
    """With what asks the host: a clipped gradient, micro-batches, and a write to a weight."""
    optimizer.zero_grad()
    for part in batch(i).chunk(2):
        model(part).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    model(batch(i)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        model[0].weight.mul_(0.999)


def duration(model, optimizer):
    begin = time.perf_counter()
    for i in range(8):
        step(model, optimizer, i)
    return (time.perf_counter() - begin) / 8


def expect_current(model):
    """The next forward multiplies by the weights that the model has: as that of a model which has quantized none yet."""
    octavo.step(model)
    fresh = copy.deepcopy(model)
    x = batch(0)
    with torch.no_grad():
        y, expected = model(x), fresh(x)
    assert torch.equal(y, expected), (y - expected).abs().max()
    for p, q in zip(model.parameters(), fresh.parameters()):
        assert torch.equal(p.data, q.data)
    octavo.step(model)


@each
def test_an_exception_of_a_handler_is_raised_as_itself_and_no_forward_is_stale(name):
    model, optimizer = made(name)
    longest, caught = duration(model, optimizer), 0

    def stop(count):
        raise Stop(count)

    with Signals(stop, longest) as signals:
        for i in range(COUNT):
            try:
                signals.arm()
                while signals.count == i:
                    step(model, optimizer, i)
            except Stop as found:
                assert found.args == (signals.count,)
                caught += 1
            signals.disarm()
            expect_current(model)
            signals.count = i + 1
    assert caught + signals.elsewhere == COUNT and not signals.lost
    assert signals.elsewhere <= COUNT // 20
    step(model, optimizer, 0)
    expect_current(model)


@each
def test_an_interrupted_program_that_resumes_from_its_checkpoint_has_the_bits_of_one_that_was_not(name):
    model, optimizer = made(name)
    longest = 2 * duration(model, optimizer)  # some steps end before their signal
    plain = made(name)
    model, optimizer = made(name)

    def stop(_):
        raise Stop

    with Signals(stop, longest) as signals:
        i, kept = 0, None
        for _ in range(COUNT):
            kept = copy.deepcopy((model.state_dict(), octavo.state_dict(model), optimizer.state_dict()))
            try:
                signals.arm()
                step(model, optimizer, i)
                signals.disarm()
            except Stop:
                signals.disarm()
                optimizer.zero_grad()
                model.load_state_dict(kept[0])
                octavo.load_state_dict(model, kept[1])
                optimizer.load_state_dict(kept[2])
            else:
                step(*plain, i)
                i += 1
    assert 0 < i < COUNT
    found, expected = octavo.state_dict(model), octavo.state_dict(plain[0])  # which rounds what was written to weights
    for p, q in zip(model.parameters(), plain[0].parameters()):
        assert torch.equal(p.data, q.data)
    for key in found:
        assert torch.equal(found[key].view(torch.uint8), expected[key].view(torch.uint8)), key


def evaluate(model, optimizer):
    model.eval()
    with torch.no_grad():
        model(batch(1))
    model.train()


def forward(model, optimizer):
    with torch.no_grad():
        model(batch(1))


def save(model, optimizer):
    octavo.state_dict(model), model.state_dict(), optimizer.state_dict()


@pytest.mark.parametrize("act", [evaluate, forward, save, lambda m, o: o.step()], ids=["evaluate", "forward", "save", "step"])
@each
def test_a_handler_may_use_the_model(name, act):
    """It works or raises an error of the package, and never hangs. What it does is done: its forward is of the weights of
    that moment, and the training goes on with those that it left."""
    model, optimizer = made(name)
    longest, said = duration(model, optimizer), []

    def use(_):
        try:
            act(model, optimizer)
        except octavo.OctavoError as error:
            said.append(error)

    with Signals(use, longest) as signals:
        for i in range(COUNT):
            signals.arm()
            try:
                while signals.count == i:
                    step(model, optimizer, i)
            except (RuntimeError, octavo.StateError) as error:
                # A step or a load between a forward and its backward, as on plain torch.
                assert "modified by an inplace operation" in str(error), error
                optimizer.zero_grad()
            signals.disarm()
            signals.count = i + 1
            expect_current(model)
    assert not signals.lost and len(said) < COUNT // 4


def test_an_exception_of_a_handler_leaves_a_report_as_itself():
    """Whose lines C gives to a function in Python, from which it would return without the exception."""
    model, _ = made("te")
    caught = 0

    def stop(count):
        raise Stop(count)

    with Signals(stop, 1e-3) as signals:
        for i in range(4 * COUNT):
            try:
                signals.arm()
                while signals.count == i:
                    octavo.report(model)
            except Stop:
                caught += 1
            signals.disarm()
    assert caught + signals.elsewhere == 4 * COUNT and not signals.lost

"""Kernels that run late: only where somebody waits for them, in any order that streams and events allow. What they compute
then has the bits of kernels that run at once. Fresh memory has garbage, and freed memory is gone once the work of its stream
ran, so a host that frees too early or orders too little computes something else."""
import ctypes
import os
import pathlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fake_device
import octavo
from conftest import msamp, te

TESTS = pathlib.Path(os.environ["OCTAVO_FAKE"])
EACH = pytest.mark.parametrize("overrides", [te("delayed", telemetry=True), te("current"), te("block"), te("mx"),
                                             msamp("O1"), msamp("O2")],
                               ids=["delayed", "current", "block", "mx", "O1", "O2"])
SEED = int(os.environ.get("OCTAVO_SEED", "1"))  # of the orders, another one in each round of tests/soak.py


@pytest.fixture(scope="module")
def device():
    """The library of the device."""
    fake_device.register(TESTS, "npu", 1)
    os.environ["OCTAVO_PLUGIN_PATH"] = str(TESTS / "late")
    torch.set_default_device("npu")
    octavo.prepare(nn.Linear(16, 16), overrides={"layers.min_gain": "off", **te()})  # the kernels are loaded
    library = ctypes.CDLL(str(TESTS / "fake_device" / "liboctavo_fake_device.so"))
    library.octavo_fake_lazy.argtypes = [ctypes.c_uint64]
    library.octavo_fake_idle.restype = ctypes.c_bool
    yield library
    library.octavo_fake_lazy(0)
    torch.set_default_device("cpu")


class Net(nn.Module):
    """Two linears on one weight, one that is run twice, and a block that may be recomputed."""

    def __init__(self):
        super().__init__()
        self.first, self.tied = nn.Linear(32, 48), nn.Linear(32, 48)
        self.tied.weight = self.first.weight
        self.twice, self.last = nn.Linear(48, 48, bias=False), nn.Linear(48, 16)
        self.recomputes = False

    def block(self, x):
        return self.twice(torch.tanh(self.twice(x)))

    def forward(self, x):
        h = torch.tanh(self.first(x)) + self.tied(x)
        h = checkpoint(self.block, h, use_reentrant=False) if self.recomputes else self.block(h)
        return self.last(h)


def made(overrides, dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = Net().to(dtype)
    model.first.bias.data = model.first.bias.data.float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return octavo.prepare(model, optimizer, overrides={"layers.min_gain": "off", **overrides}, **options)


def batch(step, rows=24, dtype=torch.float32):
    torch.manual_seed(100 + step)
    return torch.randn(rows, 32).to(dtype)


def results(model, outputs):
    return [t.detach().cpu() for t in (*outputs, *(p for p in octavo.restore(model).parameters()))]


def steps(model, optimizer, count=3, first=0):
    outputs = []
    for step in range(first, first + count):
        y = model(batch(step))
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(y)
    return outputs


def train(overrides):
    model, optimizer = made(overrides)
    return results(model, steps(model, optimizer))


def recompute(overrides):
    model, optimizer = made(overrides)
    model.recomputes = True
    return results(model, steps(model, optimizer))


def saved_elsewhere(overrides):
    """What forward keeps for backward goes to other memory, and its old one is overwritten."""
    model, optimizer = made(overrides)
    outputs = []
    for step in range(3):
        moved = []

        def pack(tensor):
            if isinstance(tensor, nn.Parameter) or tensor.dtype != torch.uint8:
                return tensor
            moved.append(tensor)
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = model(batch(step))
        assert moved
        for tensor in moved:
            tensor.fill_(0xAB)
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(y)
    return results(model, outputs)


def never_stepped(overrides):
    """Gradients of four batches, without the end of a step."""
    model, _ = made(overrides)
    outputs = []
    for step in range(4):
        outputs.append(model(batch(step, 8 * step)))
        outputs[-1].square().sum().backward()
    gradients = [p.grad.cpu() for p in model.parameters()]
    return results(model, outputs + gradients)


def ended_twice(overrides):
    """The end of a step again, after an evaluation, and without anything in between."""
    model, optimizer = made(overrides)
    outputs = steps(model, optimizer, 2)
    octavo.step(model)
    model.eval()
    with torch.no_grad():
        outputs.append(model(batch(7)))
    model.train()
    octavo.step(model)
    octavo.step(model)
    return results(model, outputs + steps(model, optimizer, 2, first=2))


def step_left_out(overrides):
    """A step that met Inf changes no weight."""
    model, optimizer = made(overrides)
    outputs = steps(model, optimizer, 2)
    before = [p.detach().clone() for p in model.parameters()]
    (model(batch(5)) * float("inf")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    return results(model, outputs + steps(model, optimizer, 2, first=2))


def other_weights_between(overrides):
    """Another forward between a forward and its backward, with other weights."""
    model, optimizer = made(overrides)
    outputs = steps(model, optimizer, 1)
    others = {name: p.detach() * 0.5 for name, p in model.named_parameters()}
    y = model(batch(5))
    with torch.no_grad():
        outputs.append(torch.func.functional_call(model, others, (batch(6),)))
    y.square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    return results(model, outputs + [y] + gradients)


def dtypes_mixed(overrides):
    """x, bias, weight and gradients of several dtypes."""
    outputs = []
    for dtype in (torch.bfloat16, torch.float16):
        model, _ = made(overrides, dtype)
        for step, of_x in enumerate((dtype, torch.float32)):
            with torch.autocast("npu", dtype, enabled=of_x != dtype):
                y = model(batch(step, 17, of_x))
            y.float().square().mean().backward()
            outputs += [y, *(p.grad.cpu() for p in model.parameters())]
        outputs = results(model, outputs)
    return outputs


def on_a_stream(overrides):
    """Steps on a stream of the program, and then on the default one."""
    stream, default = torch.Stream(device="npu:0"), torch.accelerator.current_stream()
    assert stream.stream_id != default.stream_id == 0
    model, optimizer = made(overrides)
    stream.wait_stream(default)
    with stream:
        outputs = steps(model, optimizer, 2)
    default.wait_stream(stream)
    outputs = [y.detach() + 0 for y in outputs]
    return results(model, outputs + steps(model, optimizer, 2, first=2))


def on_two_streams(overrides, **options):
    """Two batches at once: the streams begin behind the default one, which waits for both."""
    streams, default = [torch.Stream(device="npu:0") for _ in range(2)], torch.accelerator.current_stream()
    model, optimizer = made(overrides, **options)
    outputs = []
    for step in range(3):
        inputs, ys = [batch(10 * step + i) for i in range(2)], []
        for stream, x in zip(streams, inputs):
            stream.wait_stream(default)
            with stream:
                ys.append(model(x))  # its last product is queued
        for stream in streams:
            default.wait_stream(stream)
        sum(y.square().mean() for y in ys).backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs += ys
    return results(model, outputs)


def on_two_streams_traced(overrides):
    """Where codes are used again, as they are."""
    return on_two_streams(overrides, detect_writes=False)


def closed_at_once(overrides):
    """restore() while work is queued."""
    model, _ = made(overrides)
    y = model(batch(0))
    plain = octavo.restore(model)
    return [t.detach().cpu() for t in (y, *plain.parameters())]


def expect_alike(device, run):
    """run() has equal bits late and at once."""
    device.octavo_fake_lazy(0)
    expected = run()
    device.octavo_fake_lazy(SEED)
    found = run()
    assert len(found) == len(expected)
    for i, (a, b) in enumerate(zip(found, expected)):
        assert torch.equal(a, b), f"number {i} differs in {(a != b).sum()} of {a.numel()} elements"


@EACH
@pytest.mark.parametrize("run", [train, recompute, saved_elsewhere, never_stepped, ended_twice, step_left_out, dtypes_mixed,
                                 on_a_stream, on_two_streams, on_two_streams_traced, closed_at_once], ids=lambda f: f.__name__)
def test_late_is_at_once(device, overrides, run):
    expect_alike(device, lambda: run(overrides))


@pytest.mark.parametrize("overrides", [te("delayed"), te("block")], ids=["delayed", "block"])
def test_other_weights_between(device, overrides):
    """Of a backend that reads the program's own weights."""
    expect_alike(device, lambda: other_weights_between(overrides))


def test_late_is_late(device):
    device.octavo_fake_lazy(1)
    model, _ = made(te("delayed"))
    x = batch(0)
    with torch.no_grad():
        y = model(x)
    assert not device.octavo_fake_idle()
    assert y.isfinite().all()

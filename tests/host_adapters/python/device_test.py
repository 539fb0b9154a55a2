"""What is different on a device that is not the CPU: no reads by the host, graphs, moves."""
import ctypes
import os

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import octavo
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import device, ops
from octavo.torch.slots import BACKWARD, FORWARD, TRACED

pytestmark = pytest.mark.skipif("not config.getoption('--device') == 'fake_device'",
                                reason="needs --device fake_device: the CPU is no device of this kind")

EACH = pytest.mark.parametrize("overrides", [te(), msamp()], ids=["te", "msamp"])


class Reads(TorchDispatchMode):
    """Counts what waits for the device: numbers that the host reads, and copies to the CPU."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        to_cpu = func is torch.ops.aten._to_copy.default and (
            kwargs.get("device") == torch.device("cpu"))
        is_read = func is torch.ops.aten._local_scalar_dense.default or to_cpu
        self.count += is_read and args[0].device.type != "cpu"
        return func(*args, **kwargs)


@pytest.fixture
def capturing():
    """Whether the current stream is captured, as the driver says."""
    library = ctypes.CDLL("libcuda.so.1")  # as torch's CUDA would have loaded it
    before = os.environ["OCTAVO_FAKE_GPU"]

    def switch(on):
        os.environ["OCTAVO_FAKE_GPU"] = before + (" capturing=1" if on else "")

    yield switch
    switch(False)
    del library


@pytest.fixture
def losing():
    """Loses the device after so many launches; -1 gives it back."""
    library = ctypes.CDLL(os.environ["OCTAVO_PLUGIN_PATH"] + "/kernels-cuda.so")
    yield library.cuda_on_cpu_lose_device_after
    library.cuda_on_cpu_lose_device_after(-1)


class Full(TorchDispatchMode):
    """Has no memory for the allocation of this number."""

    MAKERS = {torch.ops.aten.empty, torch.ops.aten.empty_strided, torch.ops.aten.zeros,
              torch.ops.aten.zeros_like, torch.ops.aten.empty_like, torch.ops.aten._to_copy,
              torch.ops.aten.clone}

    def __init__(self, number):
        super().__init__()
        self.left = number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in self.MAKERS:
            self.left -= 1
            if self.left < 0:
                raise torch.OutOfMemoryError("planted")
        return func(*args, **(kwargs or {}))


def made(overrides, **options):
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    return octavo.prepare(model, optimizer, overrides=overrides)


def backward(model, scale=1.0):
    (model(torch.randn(64, 32)).square().mean() * scale).backward()


def values(model):
    return [p.detach().cpu().clone() for p in model.parameters()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def end_steps(model):
    return ops.calls(session(model).number, _abi.VERB_END_STEP)


@EACH
def test_a_step_reads_nothing(overrides):
    model, optimizer = made(overrides, fused=True)
    for _ in range(2):
        with Reads() as reads:
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
        assert reads.count == 0


def test_other_optimizers_cost_one_read():
    def reads_of(model, optimizer):
        for _ in range(2):  # the first step makes the optimizer's state
            optimizer.zero_grad()
            backward(model)
            with Reads() as reads:
                optimizer.step()
        return reads.count

    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
    plain = reads_of(model, torch.optim.AdamW(model.parameters(), foreach=True))
    assert reads_of(*made(te(), foreach=True)) == plain + 1


@EACH
def test_a_step_with_inf_is_left_out_on_the_device(overrides):
    model, optimizer = made(overrides, fused=True)
    backward(model)
    optimizer.step()
    before, steps = values(model), end_steps(model)
    optimizer.zero_grad()
    backward(model, scale=float("inf"))
    with Reads() as reads:
        optimizer.step()
    assert reads.count == 0
    assert equal(values(model), before)
    assert session(model).skipped_steps == 1 and end_steps(model) == steps + 1
    assert not hasattr(optimizer, "found_inf")
    for _, tensor in session(model).reduced:
        assert torch.isfinite(tensor.cpu()).all()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert not equal(values(model), before) and session(model).skipped_steps == 1


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}], ids=["fused", "foreach"])
@pytest.mark.parametrize("is_captured", [False, True], ids=["eager", "captured"])
def test_a_second_optimizer_of_a_step_learns_of_inf_too(options, is_captured, capturing):
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
    optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-2, **options)
                  for part in (model[0], model[2])]
    octavo.prepare(model, overrides=te())
    capturing(is_captured)  # what is captured runs at once here, as the replays would
    backward(model)
    capturing(False)

    def step(scale=1.0):
        """Whether each of the two changed its weight."""
        before = values(model)
        for optimizer in optimizers:
            optimizer.zero_grad()
        backward(model, scale)
        if is_captured:  # a replay leaves no trace for the host
            for kind in (FORWARD, BACKWARD):
                session(model).flags.since[kind] = 0
        for optimizer in optimizers:
            optimizer.step()
        return [not equal(*pair) for pair in ((values(model)[:2], before[:2]),
                                              (values(model)[2:], before[2:]))]

    assert step() == [True, True]
    assert step(float("inf")) == [False, False]
    assert session(model).skipped_steps == 1
    assert step() == [True, True]
    assert session(model).skipped_steps == 1


def test_rates_and_factors_on_the_device_stay_there():
    found = []
    for rate in (2.0**-6, torch.tensor(2.0**-6)):
        torch.manual_seed(3)
        model, optimizer = made(msamp())
        for group in optimizer.param_groups:
            group["lr"] = rate
        backward(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with Reads() as reads:
            optimizer.step()
        assert reads.count == 0
        found.append(values(model))
    assert equal(*found)


# What a replay changes leaves no trace for the host: here a write through `data`.
@EACH
def test_after_a_capture_no_codes_are_trusted(overrides, capturing):
    model, _ = made(overrides)
    session(model).flags.since[TRACED] = True  # a forward would else quantize again on this device
    x = torch.randn(8, 32)
    count = lambda: ops.calls(session(model).number, _abi.VERB_QUANTIZE_WEIGHT)
    model(x)
    quantized = count()
    model(x)
    assert count() == quantized
    capturing(True)
    model(x)
    assert count() == quantized + 2, "a graph quantizes in each replay"
    capturing(False)
    if session(model).sites["0"].is_native:
        before = model(x).cpu()
        model[0].weight.data.mul_(0.5)
        assert not torch.equal(model(x).cpu(), before)
    quantized = count()
    model(x)
    assert count() == quantized + 2


@EACH
def test_after_a_capture_every_step_is_a_boundary(overrides, capturing):
    model, optimizer = made(overrides, fused=True)
    backward(model)
    optimizer.step()
    steps = end_steps(model)
    optimizer.step()
    assert end_steps(model) == steps, "nothing ran since"
    capturing(True)
    backward(model)
    capturing(False)
    optimizer.step()
    optimizer.step()  # replays in between would leave no trace
    assert end_steps(model) == steps + 2


def test_a_model_on_two_devices_is_refused():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32, device="cpu"))
    with pytest.raises(octavo.DeviceError, match=r"1\.weight: expected every parameter on fake_device:0.*"
                                                 r"found cpu; call model\.to\('fake_device:0'\)"):
        octavo.prepare(model)
    assert type(model[0]) is nn.Linear


@EACH
def test_inputs_of_another_device_are_refused(overrides):
    model, _ = made(overrides)
    with pytest.raises(octavo.InvalidError, match="linear 0: x: expected .* on another device"):
        model(torch.randn(4, 32, device="cpu"))


def test_a_weight_in_slots_stays_where_it_is():
    model, _ = made(msamp())
    with pytest.raises(octavo.DeviceError, match="expected values on fake_device:0.*octavo.restore"):
        model[0].weight.data = torch.zeros(48, 32, device="cpu")


@EACH
def test_states_move_between_devices(overrides):
    model, optimizer = made(overrides)
    backward(model)
    optimizer.step()
    kept = {k: v.cpu() for k, v in octavo.torch.state_dict(model).items()}
    plain = {k: v.cpu() for k, v in model.state_dict().items()}
    x = torch.randn(8, 32)
    with torch.no_grad():
        expected = model(x).cpu()
    other, _ = made(overrides)
    other.load_state_dict(plain)
    octavo.torch.load_state_dict(other, kept)
    with torch.no_grad():
        assert torch.equal(other(x).cpu(), expected)


def test_a_run_on_another_device_names_both():
    with pytest.raises(octavo.DeviceError, match="expected its parameters on cpu.*fake_device:0.*kind"):
        device.check(torch.device("fake_device:0"), (_abi.DEVICE_CPU, 0))
    with pytest.raises(octavo.DeviceError, match=r"on cuda.*found them on cpu.*model.to\("):
        device.check(torch.device("cpu"), (_abi.DEVICE_CUDA, 1))
    with pytest.raises(octavo.DeviceError, match=r'on fake_device:1, .*found them on fake_device:0.*model.to\("fake_device:1"\)'):
        device.check(torch.device("fake_device:0"), (12, 1))
    device.check(torch.device("fake_device:1"), (12, 1))
    device.check(torch.device("cpu"), None)


@EACH
def test_a_device_lost_in_mid_step_is_named_and_the_model_closes(overrides, losing):
    model, optimizer = made(overrides, fused=True)
    backward(model)
    optimizer.step()
    losing(1)
    with pytest.raises(octavo.DeviceError, match="IllegalAddress.*restart it from a checkpoint"):
        for _ in range(2):
            model(torch.randn(64, 32))
    with pytest.raises(octavo.DeviceError, match="not started, since the device failed before with"):
        model(torch.randn(64, 32))
    losing(-1)  # this process goes on, but the run of the model stays lost
    with pytest.raises(octavo.DeviceError, match="not started, since the device failed before with"):
        model(torch.randn(64, 32))
    session(model).close()
    other, _ = made(overrides)
    assert torch.isfinite(other(torch.randn(8, 32)).cpu()).all()


@EACH
def test_without_memory_prepare_changes_nothing(overrides):
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(8, 32)
    before, expected, number = values(model), model(x).detach().cpu(), 0
    while True:
        try:
            with Full(number):
                prepared, _ = octavo.prepare(model, optimizer, overrides=overrides)
            break
        except torch.OutOfMemoryError:
            number += 1
        assert type(model[0]) is nn.Linear and equal(values(model), before)
        assert torch.equal(model(x).detach().cpu(), expected)
    assert number > 3
    assert session(prepared) is not None

"""A model on a device of torch's that is neither the CPU nor CUDA, with the kernels of tests/devices: a PrivateUse1 by the
name of their kind, "npu", whose memory they read as it is."""
import ctypes
import os
import pathlib
import shutil

import pytest
import torch
from torch import nn

import fake_device
import octavo
from conftest import msamp, session, te

TESTS = pathlib.Path(os.environ["OCTAVO_FAKE"])
WHOLE, LEAST = "npu:1", "npu:0"  # the indices that kernels-npu and kernels_plugin serve


@pytest.fixture(scope="module", autouse=True)
def npu():
    fake_device.register(TESTS, "npu", 2)
    os.environ["OCTAVO_PLUGIN_PATH"] = str(TESTS / "devices")


def prepared(device, overrides, **config):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    small = {"layers.min_gain": "off", **overrides, **config}
    return octavo.prepare(model, optimizer, overrides=small)


def steps(model, optimizer, device, count=5, first=0):
    losses = []
    for step in range(first, first + count):
        torch.manual_seed(100 + step)
        loss = (model(torch.randn(24, 32).to(device)) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def trained(device, overrides, **config):
    model, optimizer = prepared(device, overrides, **config)
    losses = steps(model, optimizer, device)
    octavo.report(model).assert_fp8(min_layers=2)
    return losses, [p.detach().cpu() for p in octavo.restore(model).parameters()]


def expect_equal(one, other):
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1]))


def expect_refusal(device, overrides, *parts, kind=octavo.UnsupportedError, **config):
    """octavo.prepare refuses the model, and says all parts."""
    with pytest.raises(kind) as caught:
        prepared(device, overrides, **config)
    for part in parts:
        assert part in str(caught.value), caught.value


@pytest.mark.parametrize("overrides", [te(), te("current"), te("block"), te("mx"), te(telemetry=True), msamp("O1"),
                                       msamp("O2"), msamp("O3")],
                         ids=["delayed", "current", "block", "mx", "telemetry", "O1", "O2", "O3"])
def test_whole_kernels_train_as_on_the_cpu(overrides):
    expect_equal(trained(WHOLE, overrides), trained("cpu", overrides))


def test_the_least_kernels_train_current_scaling():
    """The first two plugins decline this index, so the third one is taken."""
    expect_equal(trained(LEAST, te("current")), trained("cpu", te("current")))


def test_the_report_names_device_and_kernels():
    model, _ = prepared(WHOLE, te())
    assert session(model).run.device == (12, 1)
    assert "npu:1 (fake), kernels kernels-npu" in str(octavo.report(model))
    model, _ = prepared(LEAST, te("current"), **{"device.kernels": "kernels_plugin"})
    assert session(model).run.device == (12, 0) and session(model).run.kernels == "kernels_plugin"


@pytest.mark.parametrize("overrides, lacks", [
    (te(), "delayed_scale_update: kernels_plugin does not have it"),
    (te("mx"), "lack a product of the recipe"),
    (msamp("O1"), "adam_step: kernels_plugin does not have it"),
    (msamp("O2"), "adam_step: kernels_plugin does not have it"),
], ids=["delayed", "mx", "O1", "O2"])
def test_what_kernels_lack_is_refused_by_name(overrides, lacks):
    expect_refusal(LEAST, overrides, lacks, "the model is on npu:0", "model.cpu() before octavo.prepare")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts these plugins, and no others, where they are searched."""
    def only(*plugins):
        for plugin in plugins:
            for file in (TESTS / "devices").glob(f"{plugin}.*"):
                shutil.copy(file, tmp_path)
        monkeypatch.setenv("OCTAVO_PLUGIN_PATH", str(tmp_path))
    return only


def test_a_refusal_names_the_kernels_that_were_asked_and_their_answers(installed):
    installed("kernels-broken", "kernels-npu")
    expect_refusal(LEAST, te(), "kernels kernels-broken: it is broken", "kernels kernels-npu: it is broken",
                   "the model is on npu:0")
    expect_refusal(WHOLE, te(), "kernels kernels-broken: it is broken", **{"device.kernels": "kernels-broken"})
    installed("kernels_plugin")
    expect_refusal(WHOLE, te(), "there is no such device: expected index 0",
                   **{"device.kernels": "kernels_plugin"})


def test_without_kernels_of_its_kind_a_device_is_refused(installed):
    installed("kernels-cpu2")
    expect_refusal(WHOLE, te(), "no kernels for npu (device type 12) are installed",
                   "installed kernels: kernels-cpu2 for cpu (device type 1)", "install a plugin of kernels")


def test_the_configuration_names_other_kernels():
    expect_refusal(WHOLE, te(), "expected its parameters on cpu, where the configuration runs, found them on npu:1",
                   kind=octavo.DeviceError, **{"device.kind": "cpu"})
    model, _ = prepared(WHOLE, te(), **{"device.kernels": "kernels-npu", "device.kind": "npu"})
    assert session(model).run.kernels == "kernels-npu"
    expect_refusal(WHOLE, te(), "device.kernels: no plugin \"kernels-cpu2\" has kernels for device type 12",
                   **{"device.kernels": "kernels-cpu2"})


@pytest.mark.parametrize("overrides", [te(), te("current"), msamp("O1"), msamp("O2")],
                         ids=["delayed", "current", "O1", "O2"])
@pytest.mark.parametrize("other", [WHOLE, "cpu"])
def test_a_checkpoint_goes_on_there_and_on_the_cpu(overrides, other, tmp_path):
    model, optimizer = prepared(WHOLE, overrides)
    steps(model, optimizer, WHOLE, 3)
    torch.save({"model": model.state_dict(), "octavo": octavo.state_dict(model),
                "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    expected = steps(model, optimizer, WHOLE, 3, first=3)
    model, optimizer = prepared(other, overrides)
    kept = torch.load(tmp_path / "checkpoint.pt", map_location=other)
    model.load_state_dict(kept["model"])
    octavo.load_state_dict(model, kept["octavo"])
    optimizer.load_state_dict(kept["optimizer"])
    assert steps(model, optimizer, other, 3, first=3) == expected


def test_kernels_run_on_the_current_stream(monkeypatch):
    model, optimizer = prepared(WHOLE, te())
    stream, default = torch.Stream(device=WHOLE), torch.accelerator.current_stream(1)
    assert stream.stream_id != default.stream_id == 0
    monkeypatch.setenv("OCTAVO_NPU_STREAM", str(stream.stream_id))
    with pytest.raises(octavo.InvalidError):
        steps(model, optimizer, WHOLE, 1)
    with stream:
        steps(model, optimizer, WHOLE, 1)
    monkeypatch.setenv("OCTAVO_NPU_STREAM", "0")
    steps(model, optimizer, WHOLE, 1)


def test_debug_gives_the_random_numbers_of_the_device_back(monkeypatch):
    own, drawn = torch.Generator(), []
    module = torch.get_device_module("npu")
    monkeypatch.setattr(module, "get_rng_state_all", lambda: [own.get_state()], raising=False)
    monkeypatch.setattr(module, "set_rng_state_all", lambda states: own.set_state(states[0]), raising=False)
    model, optimizer = prepared(WHOLE, te())

    def step():
        drawn.append(torch.randn(24, 32, generator=own))
        return model(drawn[-1].to(WHOLE)).square().mean()

    octavo.debug.bisect(model, step, optimizer, tolerance=0)
    assert len(drawn) > 2 and all(torch.equal(x, drawn[0]) for x in drawn)
    assert torch.equal(torch.randn(24, 32, generator=own), drawn[0])


def test_a_stream_without_a_native_handle_is_refused(monkeypatch):
    """The last one, since the library remembers that this device has no handles."""
    ctypes.CDLL(str(TESTS / "fake_device" / "liboctavo_fake_device.so")).octavo_fake_handles(False)
    model, optimizer = prepared(WHOLE, te())
    monkeypatch.setenv("OCTAVO_NPU_STREAM", "0")
    steps(model, optimizer, WHOLE, 1)
    with pytest.raises(octavo.UnsupportedError, match="the current stream: expected the default one.*native handle.*found "
                                                      "stream"), torch.Stream(device=WHOLE):
        steps(model, optimizer, WHOLE, 1)

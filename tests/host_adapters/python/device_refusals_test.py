"""Machines, torches and process groups that a model on a GPU cannot train with: each is named with what
to do, and the model stays as it was."""
import os
import subprocess
import sys
import types

import pytest
import torch
import torch.distributed as dist
from torch import nn

import octavo
from conftest import msamp, te
from octavo.torch import device
from octavo.torch.ranks.groups import check_gpus

pytestmark = pytest.mark.skipif("not config.getoption('--device') == 'fake_device'",
                                reason="needs --device fake_device: the CPU is no device of this kind")

EACH = pytest.mark.parametrize("overrides", [te(), msamp()], ids=["te", "msamp"])


def refused(kind, match, overrides=te(), **options):
    """octavo.prepare raises it, and model and optimizer are what they were."""
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(8, 32)
    before, expected = [p.detach().cpu().clone() for p in model.parameters()], model(x).detach().cpu()
    parameters = list(model.parameters())
    with pytest.raises(kind, match=match):
        octavo.prepare(model, optimizer, overrides=overrides, **options)
    assert type(model[0]) is nn.Linear and "octavo_session" not in model.__dict__
    assert all(type(p) is nn.Parameter and p is q for p, q in zip(model.parameters(), parameters))
    assert all(torch.equal(p.detach().cpu(), b) for p, b in zip(parameters, before))
    assert torch.equal(model(x).detach().cpu(), expected)
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight.detach().cpu(), before[0])


@EACH
@pytest.mark.parametrize("driver, match", [
    ("cuda=12040 driver=550.54.14", "requires a driver for CUDA 13.0 or later.*found: a driver for CUDA "
     "12.4.*install a newer NVIDIA driver"),
    ("cuda=11080 driver=470.82.01", "requires a driver for CUDA 13.0 or later.*found: a driver for CUDA "
     "11.8.*install a newer NVIDIA driver"),
    ("cuda=13000 init=100", "requires an NVIDIA GPU.*found: no CUDA device, and a driver.*docker run --gpus all"),
    ("cuda=13000 capability=80", r"an NVIDIA GPU of sm_89 \(capability 8.9\) or later.*capability 8.0"),
], ids=["cuda 12", "cuda 11", "does not start", "no FP8 units"])
def test_drivers(driver, match, overrides, monkeypatch):
    monkeypatch.setenv("OCTAVO_FAKE_GPU", driver)
    refused(octavo.UnsupportedError, f"(?s){match}.*the model is on fake_device:0, of torch .*model.cpu()",
            overrides)


def test_no_driver():
    code = ("import fake_device; fake_device.use(); import torch, octavo\n"
            "model = torch.nn.Linear(32, 32)\n"
            "try: octavo.prepare(model)\n"
            "except octavo.UnsupportedError as e: print(type(model).__module__, e)")
    environment = {**os.environ, "LD_LIBRARY_PATH": "",
                   "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.environ["PYTHONPATH"]])}
    text = subprocess.run([sys.executable, "-B", "-c", code], env=environment, text=True,
                          capture_output=True, check=True).stdout
    assert text.startswith("torch.nn.modules.linear te: ")
    assert "found: no driver: libcuda.so.1 was not found" in text
    assert "install the NVIDIA driver" in text and "model.cpu() before octavo.prepare" in text


@EACH
@pytest.mark.parametrize("library, found", [("/none/libcublasLt.so.12", "cannot open shared object"),
                                            ("libm.so.6", "version 0 in libm.so.6")],
                         ids=["missing", "another"])
def test_a_torch_for_cuda_12_without_the_cublas_of_13(library, found, overrides, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("OCTAVO_CUBLASLT", library)
    refused(octavo.VersionError, f"(?s)expected version 130000 or later, of CUDA 13.*{found}.*is built for "
            "CUDA 12.8: install a torch for CUDA 13, or the package nvidia-cublas.*OCTAVO_CUBLASLT",
            overrides)


def test_without_cublas_the_reference_kernel_multiplies(monkeypatch):
    monkeypatch.setenv("OCTAVO_CUBLASLT", "/none/libcublasLt.so.12")
    monkeypatch.setenv("OCTAVO_CUDA_GEMM", "reference")
    model, _ = octavo.prepare(nn.Linear(32, 32), overrides=te())
    assert torch.isfinite(model(torch.randn(8, 32)).cpu()).all()


def test_the_cublas_of_nvidias_package_is_found(monkeypatch, tmp_path):
    """The loader finds a library by the name of one that is open already."""
    folder = tmp_path / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / device.CUBLASLT).symlink_to(os.environ["OCTAVO_CUBLASLT"])
    monkeypatch.delenv("OCTAVO_CUBLASLT")
    monkeypatch.setattr(device, "_folders", lambda: [tmp_path / "none", folder])
    opened, load = [], device._load
    monkeypatch.setattr(device, "_packaged", [])
    monkeypatch.setattr(device, "_load", lambda path: opened.append(path) or (
        (None, "no such file") if path == device.CUBLASLT else load(path)))
    device.find_cublas()
    device.find_cublas()
    assert opened == [device.CUBLASLT, tmp_path / "none" / device.CUBLASLT, folder / device.CUBLASLT]
    assert device._packaged[0].cublasLtGetVersion() >= device.OLDEST_CUBLASLT


def test_a_torch_for_rocm(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    weight = types.SimpleNamespace(parameter=types.SimpleNamespace(
        is_meta=False, device=torch.device("cuda:0")))
    with pytest.raises(octavo.UnsupportedError, match="a GPU of NVIDIA, found cuda:0 .* built for ROCm"):
        device.device_of([weight])


@pytest.fixture
def no_backend():
    """A group of two ranks that carries tensors of other devices."""
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    yield dist.group.WORLD
    dist.destroy_process_group()


@EACH
def test_a_group_that_carries_no_tensors_of_the_device(overrides, no_backend):
    refused(octavo.UnsupportedError, "expected a backend for tensors on fake_device:0, where the model is, "
            "found fake for cpu, fake for cuda.*init_process_group", overrides, group=no_backend)
    octavo.prepare(nn.Linear(32, 32), overrides=overrides)  # alone


def test_a_torch_without_nccl(no_backend, monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    config = dist.distributed_c10d._world.pg_backend_config
    monkeypatch.setitem(config, no_backend, "cpu:gloo")
    session = types.SimpleNamespace(device=torch.device("cuda:1"))
    with pytest.raises(octavo.UnsupportedError, match="tensors on cuda:1, where the model is, found gloo for "
                                                      "cpu; torch .* is built without NCCL: install"):
        check_gpus(session, no_backend)

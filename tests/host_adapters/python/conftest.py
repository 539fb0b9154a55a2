"""What every test of the Python package shares."""
import pytest
import torch

import fake_device
import octavo
import on_cuda


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "fake_device", "cuda"), default="cpu",
                     help="where the tests run: the CPU, a fake device (fake_device.py), or a GPU (on_cuda.py)")


def pytest_configure(config):
    if config.getoption("--device") == "fake_device":
        fake_device.use()
    if config.getoption("--device") == "cuda" and not on_cuda.missing():
        on_cuda.use()


def pytest_collection_modifyitems(config, items):
    if config.getoption("--device") == "fake_device":
        fake_device.skip(items)
        fake_device.use_in_frameworks({item.path.stem for item in items})
    if config.getoption("--device") == "cuda":
        on_cuda.skip(items)


def pytest_sessionfinish(session, exitstatus):
    """A run in which every test was skipped, as without the package of a file, is no pass."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    of_skips = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if of_skips and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = 77


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except octavo.UnsupportedError as error:
        if item.config.getoption("--device") == "cuda":
            on_cuda.skip_what_the_gpu_lacks(error)
        raise


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers in every test, in any order."""
    torch.manual_seed(0)


def kind():
    """What torch.autocast and GradScaler call the device of the tests."""
    return torch.get_default_device().type


def on_every_device(make):
    """A module with the weights that it has on the CPU, on the device of the tests."""
    with torch.device("cpu"):
        module = make()
    return module.to(torch.get_default_device())


def te(recipe="delayed", **options):
    """Overrides that choose the te backend with one recipe, for every layer."""
    return {"fp8.backend": "te", "fp8.te.recipe": recipe, "layers.skip": [],
            **{f"fp8.te.{k}": v for k, v in options.items()}}


def msamp(opt_level="O2", **options):
    """Overrides that choose the msamp backend at one level, for every layer."""
    return {"fp8.backend": "msamp", "fp8.msamp.opt_level": opt_level, "layers.skip": [],
            **{f"fp8.msamp.{k}": v for k, v in options.items()}}


LEVELS = ("avx512_bf16", "avx512", "avx2", "neon", "baseline")  # docs/cpu_kernels.md


def at_level(monkeypatch, level):
    """Chooses the level of the CPU kernels. Skips the test where this CPU has none of this name."""
    monkeypatch.setenv("OCTAVO_FORCE_KERNELS", level)
    try:
        octavo.prepare(torch.nn.Linear(16, 16), overrides=te())
    except octavo.UnsupportedError as error:
        pytest.skip(str(error).splitlines()[0])


def session(model):
    """The session behind a prepared model."""
    return octavo.torch.session_of(model)

"""What every test of the Python package shares."""
import pytest
import torch

import made_up
import octavo


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "made_up"), default="cpu",
                     help="where the tests run: the CPU, or a device that is made up (made_up.py)")


def pytest_configure(config):
    if config.getoption("--device") == "made_up":
        made_up.use()


def pytest_collection_modifyitems(config, items):
    if config.getoption("--device") == "made_up":
        made_up.skip(items)


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers in every test, in any order."""
    torch.manual_seed(0)


def te(recipe="delayed", **options):
    """Overrides that choose the te backend with one recipe."""
    return {"fp8.backend": "te", "fp8.te.recipe": recipe,
            **{f"fp8.te.{k}": v for k, v in options.items()}}


def msamp(opt_level="O2", **options):
    """Overrides that choose the msamp backend at one level."""
    return {"fp8.backend": "msamp", "fp8.msamp.opt_level": opt_level,
            **{f"fp8.msamp.{k}": v for k, v in options.items()}}


def session(model):
    """The session behind a prepared model."""
    return octavo.torch.session_of(model)

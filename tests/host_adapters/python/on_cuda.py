"""`pytest --device cuda`: the same tests on a GPU, with the first GPU as default device.

Without a GPU that torch can use every test is skipped with the reason. As on the made-up device, linears
of any size run in FP8, since the tests are small.
"""
import dataclasses

import pytest
import torch

import octavo.torch

_OVERRIDES = (("layers.min_gain", "off"),)

# What cannot run there: (part of a test's name, why).
_NOT_THERE = (
    ("test_cuda_without_one", "there is a GPU"),
    ("test_dynamic_quantization", "torch quantizes on CPUs only"),
)


def missing():
    """Why there is no GPU to run on, or an empty text."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch.cuda is not available: see nvidia-smi"


def use(index=0):
    """Makes GPU `index` the default device of this process."""
    torch.cuda.set_device(index)
    torch.set_default_device(f"cuda:{index}")
    plain = octavo.run.Config.desc

    def desc(self, host, device):
        there = dataclasses.replace(self, overrides=_OVERRIDES + self.overrides)
        return plain(there, host, device)

    octavo.run.Config.desc = desc


def skip(items):
    """Marks the tests that have a reason not to run there."""
    why_none = missing()
    for item in items:
        for part, why in (("", why_none),) if why_none else _NOT_THERE:
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=why))

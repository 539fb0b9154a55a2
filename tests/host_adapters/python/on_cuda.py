"""`pytest --device cuda`: the same tests on a GPU, with the first GPU as default device.

Without a GPU that torch can use every test is skipped with the reason. As on the fake device, linears
of any size run in FP8, since the tests are small.
"""
import dataclasses
import functools

import pytest
import torch

import octavo.torch

_OVERRIDES = (("layers.min_gain", "off"),)

# What cannot run there: (part of a test's name, why).
_NOT_THERE = (
    ("test_cuda_without_one", "there is a GPU"),
    ("test_dynamic_quantization", "torch quantizes on CPUs only"),
    ("test_fsdp1_afterwards", "its rank is one of gloo, on the CPU"),
    ("test_multi_tensor[Adam", "torch's foreach and fused Adam round otherwise than its loop there"),
    ("export_test.py", "what it exports is loaded on the CPU"),
    ("test_an_export_holds_one_kind_of_scales", "one of the two kinds is that of blocks of 32"),
)
_RANKS = ("ddp_test.py", "test_zero_redundancy_optimizer")
# What a refusal says of formats that a GPU lacks, so that the test has nothing to look at there.
_NO_FORMAT = ("tensor cores read blocks of 32 from compute capability 10.0 on", "float4_e2m1fn")
_RANDOM = ("normal", "rand", "randint", "randn", "randperm")


def missing():
    """Why there is no GPU to run on, or an empty text."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch.cuda is not available: see nvidia-smi"


def _made_on_the_cpu(function):
    """The numbers that the CPU's generator gives, moved to the default device."""
    @functools.wraps(function)
    def made(*args, **options):
        given = (options.get("device"), options.get("out"), *filter(torch.is_tensor, args))
        if any(value is not None for value in given):
            return function(*args, **options)
        wanted = options.pop("requires_grad", False)
        return function(*args, **options, device="cpu").to(torch.get_default_device()).requires_grad_(wanted)
    return made


def use(index=0):
    """Makes GPU `index` the default device of this process."""
    torch.cuda.set_device(index)
    torch.set_default_device(f"cuda:{index}")
    for name in _RANDOM:
        setattr(torch, name, _made_on_the_cpu(getattr(torch, name)))
    plain = octavo.Config.desc

    def desc(self, host, device):
        there = dataclasses.replace(self, overrides=_OVERRIDES + self.overrides)
        return plain(there, host, device)

    octavo.Config.desc = desc


def skip(items):
    """Marks the tests that have a reason not to run there."""
    why_none = missing()
    for item in items:
        for part, why in (("", why_none),) if why_none else _not_there():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=why))


def _not_there():
    if torch.cuda.device_count() > 1:
        return _NOT_THERE
    return _NOT_THERE + tuple((part, "two ranks need a GPU each, and there is one") for part in _RANKS)


def skip_what_the_gpu_lacks(error):
    """Skips a test whose recipe was refused for its formats, an UnsupportedError."""
    if any(part in str(error) for part in _NO_FORMAT):
        pytest.skip("the GPU lacks a format: " + next(line for line in str(error).splitlines() if "found" in line).strip())

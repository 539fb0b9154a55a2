"""`pytest --device fake_device`: the same tests on a device that is not the CPU.

Its memory is sealed: what reads or writes it without torch or a kernel dies. Its kernels are those
of kernels/cuda, which the CPU executes. Tensors that a test makes without a device are there.
"""
import ctypes
import dataclasses
import functools
import os
import pathlib
import re
import types

import pytest
import torch

import octavo.torch

# As tests/host_adapters/torch_cpp/device_test.cpp.
_OVERRIDES = (("plugins.trust", "dev"), ("layers.min_gain", "off"))


def register(tests, name, count=1):
    """Gives torch the fake device under this name. tests: the folder of a build's tests."""
    ctypes.CDLL(str(tests / "fake_device" / "liboctavo_fake_device.so")).octavo_fake_device(name.encode())
    module = types.ModuleType(f"torch.{name}")
    module.is_available = lambda: True
    module.device_count = lambda: count
    module.current_device = torch.accelerator.current_device_index
    module.synchronize = lambda device=None: torch.accelerator.synchronize()
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module.device = lambda device: torch.accelerator.device_index(torch.device(device).index or 0)
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    torch._register_device_module(name, module)


def use():
    """Makes it the device of this process. The environment is that of OCTAVO_FAKE, the folder of
    a build's tests."""
    tests = pathlib.Path(os.environ["OCTAVO_FAKE"])
    os.environ.update({"OCTAVO_FAKE_GPU": "cuda=13000 driver=580.65.06 capability=90",
                       "CUDA_ON_CPU_SEALED": "1",
                       "OCTAVO_CUBLASLT": str(tests / "fake_blas" / "libcublasLt.so.13"),
                       "OCTAVO_PLUGIN_PATH": str(tests / "cuda_on_cpu"),
                       "ACCELERATE_TORCH_DEVICE": "fake_device:0"})  # also of the Trainer
    register(tests, "fake_device")
    torch.set_default_device("fake_device")
    plain = octavo.Config.desc

    def desc(self, host, device):
        # Blocks of 32 begin with compute capability 10.0, where those of 128 end.
        is_mx = ("fp8.te.recipe", "mx") in self.overrides
        os.environ["OCTAVO_FAKE_GPU"] = re.sub(
            "capability=(90|100)", f"capability={100 if is_mx else 90}",
            os.environ["OCTAVO_FAKE_GPU"])
        there = dataclasses.replace(self, overrides=_OVERRIDES + self.overrides)
        return plain(there, host, device)

    octavo.Config.desc = desc
    wanted = octavo.torch.device.wanted
    octavo.torch.device.wanted = lambda device, config: wanted(device, dataclasses.replace(
        config, overrides=(("device.kind", "cuda"), *config.overrides)))


def use_in_frameworks(files):
    """Tells the frameworks that these test files use what they ask of known kinds of devices only:
    transformers, whether there is bf16; Lightning, where its accelerator "cpu" is."""
    if files & {"trainer_test", "models_test", "patterns_test"}:
        from transformers import training_args
        training_args.is_torch_bf16_gpu_available = lambda: True
    if not files & {"lightning_test", "models_test", "patterns_test"}:
        return
    from lightning import fabric, pytorch
    for lightning in (fabric, pytorch):
        lightning.accelerators.CPUAccelerator.setup_device = lambda self, device: None
        strategy = lightning.strategies.SingleDeviceStrategy
        strategy.__init__ = functools.partialmethod(_on_fake, strategy.__init__)


def _on_fake(self, plain, device="cpu", **options):
    plain(self, "fake_device:0", **options)


def movable(model):
    """The same model, whose to() keeps the parameters, as it does from the CPU to a GPU."""
    if torch.get_default_device().type == "cuda":
        return model
    plain = model.to

    def to(device):
        if all(p.device == device for p in model.parameters()):
            return model
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return plain(device)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    model.to = to
    return model


_MESH = "torch's device meshes are for kinds of devices whose names are letters alone"
_STREAMS = "torch asks for the streams of the device, which is without"
_HISTC = "its operators fall back to the CPU's, which lack histc of int"
_RESIZE = "the memory of this device cannot be resized, which a cache that comes and goes needs"
# What cannot run there: (part of a test's name, why).
_NOT_THERE = (
    ("test_inductor", "inductor generates no code for this device"),
    ("[inductor", "inductor generates no code for this device"),
    ("-compiled]", "inductor generates no code for this device"),
    ("nvfp4", "the kernels of CUDA have no codes of four bits"),
    ("test_cuda_without_one", "there is a GPU, which is made up"),
    ("(FSDP2)", _MESH),
    ("(tensor parallelism)", _MESH),
    ("test_fsdp1_afterwards", _STREAMS),
    ("(FSDP1)", _STREAMS),
    ("DCP: save and load", _STREAMS),
    ("test_codes_come_back_elsewhere", _RESIZE),
    ("test_released_memory_is", _RESIZE),
    ("test_dispatch_of_transformers", _HISTC),
    ("-mixtral-", _HISTC),
    ("-vit-", "torch has convolutions of the CPU and of devices that bring their own, as this one does not"),
    ("test_dynamic_quantization", "torch quantizes on CPUs only"),
    ("torch.sparse_coo", "torch has sparse tensors of devices that bring their operators, as this one does not"),
    ("torch._mkldnn", "torch has this layout on CPUs only"),
    ("test_a_programs_own_guard", "what casts met is shown in results on the CPU only: looking waits for the device"),
    ("test_inf_in_a_row_of_x", "the same"),
    ("test_fp8_collectives_begin_before", "torch's profiler records no collectives of a group in Python"),
)


def skip(items):
    """Marks the tests that have a reason not to run on this device."""
    for item in items:
        for part, why in _NOT_THERE:
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=why))

"""Machines that are not what the configuration wants: fake GPUs, kernels, requirements."""
from case import Case, cuda_kernels

CUDA = '[device]\nkind = "cuda"\n'


def gpu(name, reason, profile, **more):
    """A machine with the kernels of CUDA, whose manifest says what they need of it."""
    return Case(name, reason, "device", config=more.pop("config", CUDA), gpu=profile, setup=cuda_kernels, **more)


def bare(name, profile):
    return Case(name, "kernel", "device", config=CUDA, gpu=profile)


CASES = [
    gpu("no driver", "driver", ""),
    gpu("driver that does not start", "driver", "init=999"),
    gpu("driver of another version than its library", "driver", "init=803"),
    gpu("driver too old", "driver", "cuda=11040 driver=470.82.01"),
    gpu("driver for CUDA 11.8", "driver", "cuda=11080 driver=520.61.05"),
    gpu("no device", "device", "cuda=13000 init=100 count=0"),
    gpu("sm_70", "device", "cuda=13000 capability=70"),
    gpu("sm_80", "device", "cuda=13000 capability=80"),
    gpu("sm_86, two of them", "device", "cuda=13000 capability=86 count=2"),
    bare("sm_89", "cuda=13000 capability=89"),
    bare("sm_90", "cuda=13000 capability=90"),
    bare("sm_100", "cuda=13000 capability=100"),
    gpu("MIG without an instance", "device", "cuda=13000 count=0 gpus=1 mig=1"),
    bare("MIG with an instance", "cuda=13000 count=1 gpus=1 mig=1 total=9856"),
    gpu("no memory", "device", "cuda=13000 free=12"),
    gpu("CUDA by override", "driver", "", config=None, config_name="",
        overrides={"device.kind": '"cuda"'}),
    gpu("CUDA and a broken backend", "device", "cuda=13000 capability=80",
        config='fp8.backend = "te"\ndevice.kind = "cuda"\n'),
    Case("kernels that do not exist", "kernel", "device", environment={"OCTAVO_FORCE_KERNELS": "mmx"}),
    Case("native FP8 on a CPU", "require", "device",
         config='[fp8]\nbackend = "te"\n[fp8.require]\nnative = true\ndeterministic = true\n'),
    Case("native speed on a CPU", "require", "device", config='[fp8.require]\nspeed = "native"\n'),
    Case("vector units that are switched off", "require", "device",
         config='[fp8.require]\nspeed = "vector"\n',
         environment={"OCTAVO_FORCE_KERNELS": "baseline"}),
    Case("a recipe that does not run", "require", "device",
         config='[fp8.require]\nrecipes = ["block", "mx"]\n'),
    Case("a recipe that a switch replaces", "require", "device",
         config='[fp8]\nbackend = "te"\nrequire.recipes = ["delayed"]\nte.use_mxfp8_block_scaling = true\n'),
    Case("a recipe of a backend without recipes", "require", "device",
         config='[fp8]\nbackend = "reference"\nrequire.recipes = ["mx"]\n'),
    Case("two requirements", "require", "device", overrides={"fp8.require.native": "true"},
         config='[fp8.require]\nrecipes = ["block"]\n', then=("require",)),
]

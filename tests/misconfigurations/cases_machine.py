"""Machines that are not what the configuration wants: made-up GPUs, kernels, requirements."""
from case import Case

CUDA = '[device]\nkind = "cuda"\n'


def gpu(name, reason, profile, **more):
    return Case(name, reason, "device", config=more.pop("config", CUDA), gpu=profile, **more)


CASES = [
    gpu("no driver", "driver", ""),
    gpu("driver that does not start", "driver", "init=999"),
    gpu("driver of another version than its library", "driver", "init=803"),
    gpu("driver too old", "driver", "cuda=11040 driver=470.82.01"),
    gpu("driver for CUDA 11.8", "driver", "cuda=11080 driver=520.61.05"),
    gpu("no device", "device", "init=100 count=0"),
    gpu("sm_70", "device", "capability=70"),
    gpu("sm_80", "device", "capability=80"),
    gpu("sm_86, two of them", "device", "capability=86 count=2"),
    gpu("sm_89", "kernel", "capability=89"),
    gpu("sm_90", "kernel", "capability=90"),
    gpu("sm_100", "kernel", "capability=100"),
    gpu("MIG without an instance", "device", "count=0 gpus=1 mig=1"),
    gpu("MIG with an instance", "kernel", "count=1 gpus=1 mig=1 total=9856"),
    gpu("no memory", "device", "free=12"),
    gpu("CUDA by override", "driver", "", config=None, config_name="",
        overrides={"device.kind": '"cuda"'}),
    gpu("CUDA and a broken backend", "device", "capability=80",
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

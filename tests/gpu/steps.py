"""The steps of the first hour on a GPU: what each one runs, what it needs, how long it takes.

Paths are those of a clone with build/cuda, which a pack has, too. A need gives the reason why it is not
there, or nothing; a step whose need is not there is not done, and the page says why.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import typing

SANITIZERS = {
    "memcheck": "no access outside of memory, no misaligned one, no leak",
    "racecheck": "no race in shared memory",
    "initcheck": "no read of memory that nothing wrote",
    "synccheck": "no barrier that some threads miss",
}
# Under a sanitizer products of cuBLASLt take long and are not ours to judge.
OURS = "--gtest_filter=-*close_to_the_cpu*:*Graph*"
CONFORMANCE = {
    "te.delayed": ("te", "fp8.te.recipe=delayed"), "te.current": ("te", "fp8.te.recipe=current"),
    "te.block": ("te", "fp8.te.recipe=block"), "te.mx": ("te", "fp8.te.recipe=mx"),
    "msamp.o2": ("msamp", "fp8.msamp.opt_level=O2"), "msamp.o3": ("msamp", "fp8.msamp.opt_level=O3"),
}
# Exit codes that are no failures: (verdict, what they mean).
SKIPPED = {77: ("not done", "the step skipped itself, see its log")}


@dataclasses.dataclass
class Step:
    name: str
    what: str
    command: list
    minutes: int
    needs: tuple = ()
    codes: dict = dataclasses.field(default_factory=lambda: dict(SKIPPED))
    alone: bool = False  # it measures time


class Place:
    """The tree that the steps run in."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.build = self.root / "build" / "cuda"
        self.library = self.build / "lib"
        self.gpu_test = self.build / "tests" / "octavo_gpu_test"
        self.octavo = self.build / "bin" / "octavo"
        self.plugin = self.library / "octavo" / "plugins" / "kernels-cuda.so"
        self.ops = self.library / "liboctavo_torch_ops.so"
        self.python = os.environ.get("OCTAVO_PYTHON", "python3")

    def ask(self, code):
        """(exit code, first line) of a line of Python in the interpreter with torch."""
        try:
            done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, **environment(self)})
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, str(error)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return done.returncode, lines[0 if done.returncode == 0 else -1] if lines else ""


def environment(place):
    """What every step gets in addition."""
    folders = [place.library, cublas_folder(place)]
    kept = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([*(str(f) for f in folders if f), *([kept] if kept else [])]),
            "OCTAVO_LIBRARY_DIR": str(place.library), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join([str(place.root / "host_adapters" / "python"),
                                           *filter(None, [os.environ.get("PYTHONPATH")])])}


def cublas_folder(place):
    """Where libcublasLt.so.13 is; None where the loader finds it by itself, or not at all."""
    found = shutil.which(place.python)
    prefix = pathlib.Path(found).resolve().parent.parent if found else None
    # A virtual environment's interpreter is a link: its packages are next to the link.
    prefixes = [pathlib.Path(found).parent.parent, prefix] if found else []
    places = [pathlib.Path("/usr/local/cuda/lib64")]
    for one in prefixes:
        for kind in ("site-packages", "dist-packages"):
            places += sorted(one.glob(f"lib/python3*/{kind}/nvidia/*/lib"))
    return next((p for p in places if (p / "libcublasLt.so.13").exists()), None)


def gpus():
    """A line of nvidia-smi for each GPU."""
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line.startswith("GPU ")] if done.returncode == 0 else []


def need_gpu(_):
    return "" if gpus() else "no GPU: nvidia-smi is not on PATH, or lists none"


def need_blocks_of_32(_):
    done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True)
    found = done.stdout.split("\n")[0].strip()
    major = found.split(".")[0]
    return "" if major.isdigit() and int(major) >= 10 else \
        f"blocks of 32 need compute capability 10.0, and the first GPU has {found or 'none'}"


def need_two_gpus(_):
    count = len(gpus())
    return "" if count > 1 else f"several ranks need a GPU each, and this machine has {count}"


def need_sanitizer(_):
    return "" if shutil.which("compute-sanitizer") else \
        "compute-sanitizer is not on PATH: it is part of CUDA Toolkit (package cuda-sanitizer)"


def python_tests(suite):
    """The files whose tests run on the fake device, and some more; patterns need many packages."""
    text = (suite / "CMakeLists.txt").read_text(encoding="utf-8") if suite.is_dir() else ""
    names = re.findall(r"set\(fake_device ([^)]*)\)", text)
    wanted = {*(names[0].split() if names else ()), "casts", "debug", "layer_rules", "moments"} - {"patterns"}
    return [str(suite / f"{name}_test.py") for name in sorted(wanted)]


def need_program(path):
    def need(place):
        at = getattr(place, path)
        return "" if at.exists() else f"{at} was not built"
    return need


def need_torch(place):
    code, said = place.ask("import torch; assert torch.cuda.is_available(), 'torch.cuda is not available'; "
                           "print(torch.__version__)")
    return "" if code == 0 else f"{place.python} has no torch that finds a GPU: {said}"


def need_pytest(place):
    code, said = place.ask("import pytest; print(pytest.__version__)")
    return "" if code == 0 else f"{place.python} has no pytest: {said}"


def need_ops(place):
    return "" if place.ops.exists() else f"{place.ops} was not built: torch was not found when the tree was built"


def steps(place, out):
    """All steps, in the order in which they run: what fails first, and fastest, comes first."""
    test = str(place.gpu_test)
    found = [
        Step("graph", "steps captured as CUDA graphs, with cuBLASLt in global mode",
             [test, "--gtest_brief=1", "--gtest_filter=*Graph*"], 1, (need_program("gpu_test"),)),
        Step("kernels", "every kernel against kernels/cpu, bit for bit; products of cuBLASLt within bounds",
             [test, "--gtest_brief=1"], 1, (need_program("gpu_test"),)),
    ]
    for tool, what in SANITIZERS.items():
        found.append(Step(tool, f"compute-sanitizer: {what}",
                          ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1",
                           *(["--leak-check", "full"] if tool == "memcheck" else []),
                           test, "--gtest_brief=1", OURS], 2, (need_sanitizer, need_program("gpu_test"))))
    for name, (backend, option) in CONFORMANCE.items():
        options = ("plugins.trust=dev", "device.kind=cuda", option)
        found.append(Step(f"conformance.{name}", f"the contract, by {backend} with {option}",
                          [str(place.octavo), "plugin", "verify", backend, "--plugin-dir", str(place.plugin.parent),
                           *(word for o in options for word in ("--set", o))], 5,
                          (need_program("octavo"), *([need_blocks_of_32] if name == "te.mx" else []))))
    pytest = [place.python, "-B", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--device", "cuda"]
    suite = place.root / "tests" / "host_adapters" / "python"
    packages = (need_torch, need_pytest, need_ops)
    found += [
        Step("python", "tests of the Python package on cuda",
             [*pytest, *(["-n", "8", "--dist", "worksteal"] if place.ask("import xdist")[0] == 0 else []),
              *python_tests(suite)], 9, packages),
        Step("ddp", "two ranks of DistributedDataParallel on NCCL, as on the CPU",
             [*pytest, str(suite / "ddp_test.py")], 2, (need_two_gpus, *packages)),
        Step("all_gpus", "a rank on every GPU: states of te and msamp are equal on all of them",
             [place.python, "-B", str(place.root / "tests" / "gpu" / "all_gpus.py")], 2,
             (need_torch, need_ops)),
        bench_step(place, out, "goals", "G1 to G12 against torch", "G([1-9]|1[0-2])[bcd]?$", 1),
        bench_step(place, out, "training", "G13, a GPT of 1.2 billion parameters in bf16 and FP8", "G13$", 3),
    ]
    for step in found:
        step.needs = (need_gpu, *step.needs)
    return found


def bench_step(place, out, name, what, only, minutes):
    return Step(name, what, [place.python, "-B", str(place.root / "tests" / "gpu" / "bench" / "bench.py"),
                             "--plugin", str(place.plugin), "--only", only, "--out", f"{out}/{name}.bench.json"],
                minutes, (need_program("plugin"), need_torch),
                {4: ("failed", "a goal was missed"), 5: ("not done", "a goal was not measured, see the log"),
                 **SKIPPED}, alone=True)

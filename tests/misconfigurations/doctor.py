"""`octavo doctor` names the one thing that is missing, with what to do, on its last line.

  doctor.py <octavo> --zoo DIR --fake-gpu DIR --schema FILE [--only NAME]   machines of this file
  doctor.py ... --every   instead: on every misconfiguration it names what `octavo check` refuses first

Each machine is looked at as JSON, which must keep to the schema, and as a page, which must be 80 columns
wide but for words that are longer and for the last line, which people paste.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import run
import schema
from case import Case, Place, cuda_kernels, fake

COLUMNS = 80
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "host_adapters/python/octavo"


@dataclasses.dataclass
class Machine:
    case: Case                    # its reason: of the first finding; "" where it has none
    exit_code: int
    about: str = ""               # of the first finding; "": nothing is wrong
    says: tuple = ()              # words of the first finding
    last: str = ""                # words of the last line
    repair: str = ""              # of the GPU, in front of the edit
    more: tuple = ()              # arguments
    umask: int = 0o022
    loads: bool = False           # its Python loads liboctavo
    executes: bool = False        # kernels(): a build with AddressSanitizer or for another processor has none


def machine(name, exit_code, about="", reason="", says=(), last="", more=(), umask=0o022, repair="", **case):
    case.setdefault("gpu", "")    # whatever this machine has
    setup = case.get("setup")
    return Machine(Case(name, reason, **case), exit_code, about, says, last, repair, more, umask, getattr(setup, "loads", False),
                   setup in (kernels, kernels_of_the_group, kernels_of_another_release))


def requires(text):
    def setup(place):
        fake("good")(place)
        path = place.plugins / "fake.octavo-plugin.toml"
        path.write_text(path.read_text() + "[requires]\n" + text + "\n")
    return setup


def writable_folder(place):
    fake("good")(place)
    place.plugins.chmod(0o775)


def empty_writable_folder(place):
    place.plugins.mkdir()
    place.plugins.chmod(0o777)


def cache_of_all(place):
    (place.directory / "cache/octavo").mkdir(parents=True)
    (place.directory / "cache/octavo").chmod(0o777)


def python_without_octavo(place):
    place.write("python", '#!/bin/sh\nexec python3 -S -I "$@"\n', 0o755)


def python_that_says(**answer):
    """A program that prints this answer, whatever it is asked."""
    def setup(place):
        place.write("python", f"#!/bin/sh\necho '{json.dumps({'python': '3.12.0', 'package': '/x/octavo', **answer})}'\n", 0o755)
    return setup


def python_with(*installed, wheels=(), path=("site", str(PACKAGE.parent)), library=True, ops=True, entry=""):
    """A Python with these distributions ("torch 2.11.0") in the folder site, this package, and the liboctavo of the
    program. wheels: (folder, version) of octavo as a wheel; path: sys.path; entry: what octavo.backends names."""
    def distribution(place, folder, name, version, points=""):
        info = f"{folder}/{name}-{version}.dist-info"
        place.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        place.write(f"{info}/entry_points.txt", points)

    def setup(place):
        for each in installed:
            distribution(place, "site", *each.split())
        if entry:
            distribution(place, "site", "someone", "1.0", f"[octavo.backends]\nsomeone = {entry}\n")
        for folder, version in wheels:
            distribution(place, folder, "octavo", version)
            (place.directory / folder / "octavo").symlink_to(PACKAGE)
        (place.directory / "lib").mkdir()
        if library:
            build = pathlib.Path(sys.argv[1]).resolve().parents[1] / "lib"
            (place.directory / "lib/liboctavo.so").symlink_to(build / "liboctavo.so")
        if ops:
            place.write("lib/liboctavo_torch_ops.so", "")
        place.write("python", f"#!/bin/sh\nexport PYTHONPATH={':'.join(str(place.directory / each) for each in path)} "
                              f'OCTAVO_LIBRARY_DIR={place.directory}/lib\nexec python3 -S -B "$@"\n', 0o755)
    setup.loads = library
    return setup


def kernels(place, change=None):
    """The kernels for NVIDIA GPUs, executed by the CPU."""
    place.plugins.mkdir()
    for file in (place.zoo.parent / "cuda_on_cpu").glob("kernels-cuda.*"):
        shutil.copyfile(file, place.plugins / file.name)
    (place.plugins / "kernels-cuda.so").chmod(0o755)
    if change is not None:
        manifest = place.plugins / "kernels-cuda.octavo-plugin.toml"
        manifest.write_text(change(manifest.read_text()))


def kernels_of_the_group(place):
    kernels(place)
    (place.plugins / "kernels-cuda.so").chmod(0o775)


def kernels_of_another_release(place):
    kernels(place, lambda text: text.replace("major = 1", "major = 2"))


def missing_feature():
    """A feature that manifests may require and this processor lacks; None: it has all."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        has = set(file.read().split())
    known = ("avx512_bf16", "avx512_vnni", "avx512vbmi", "avx512f", "avx2")
    if platform.machine() != "x86_64":
        known = ("sve2", "sve", "i8mm", "bf16")
    return next((k.replace("_", "") for k in known if k not in has), None)


VERSION = subprocess.run([sys.argv[1], "--version"], capture_output=True, text=True, check=True).stdout.split()[1].strip(",")
FAKE = '[fp8]\nbackend = "fake"\n'
CUDA = '[device]\nkind = "cuda"\n'
MACHINES = [
    machine("sound", 0, last="nothing is wrong: FP8 runs on the CPU, emulated"),
    machine("plugin that is missing", 1, "run", "manifest", ("quantum_tunnel",), "replace line 2",
            config='[fp8]\nbackend = "quantum_tunnel"\n'),
    machine("plugins that the group may write", 1, "run", "trust", ("mode 0775",), "run `chmod g-w ",
            config=FAKE, setup=writable_folder),
    machine("hash that is not pinned", 1, "run", "trust", ("its hash is not pinned",), "replace line 4",
            config=FAKE + '[plugins]\npins = ["fake:' + 64 * "0" + '"]\ntrust = "pinned"\n', setup=fake("good")),
    machine("C library that is too old", 1, "run", "require", ("glibc",), "", config=FAKE,
            setup=requires('libc = "glibc-9.99"')),
    machine("no driver", 1, "run", "driver", ("an NVIDIA driver",), "replace line 2",
            repair="install the NVIDIA driver, or in a container start it with the GPU", config=CUDA, setup=cuda_kernels),
    machine("driver that is too old, and the CPU will do", 0, "plugin", "driver", ("driver for CUDA 13.0",),
            "install a newer NVIDIA driver", gpu="cuda=11080 driver=520.61.05", setup=cuda_kernels),
    machine("driver that is too old", 1, "run", "driver", ("a driver for CUDA 13.0 or later",), "replace line 2",
            repair="install a newer NVIDIA driver", config=CUDA, gpu="cuda=11080 driver=520.61.05", setup=cuda_kernels),
    machine("driver that does not start", 0, "plugin", "driver", ("requires an NVIDIA driver",),
            "restart the machine", gpu="init=803", setup=cuda_kernels),
    machine("GPU without FP8 units", 1, "run", "device", ("sm_89 (capability 8.9) or later",), "replace line 2",
            repair="run on a machine with such a GPU", config=CUDA, gpu="cuda=13000 capability=80", setup=cuda_kernels),
    machine("GPU whose kernels are not installed, and the CPU will do", 0, "gpu", "",
            ("no kernels for cuda are installed",), "pip install octavo_cuda-*.whl", gpu="capability=90"),
    machine("GPU without free memory, and the CPU will do", 0, "plugin", "device", ("512 MiB of free memory",),
            "end what fills it", gpu="cuda=13000 capability=90 free=100", setup=cuda_kernels),
    machine("GPU whose kernels are not installed", 1, "run", "kernel", ("no kernels for cuda are installed",),
            "replace line 2", repair="pip install octavo_cuda-*.whl", config=CUDA, gpu="capability=90"),
    machine("unknown variable", 2, "run", "config", ("OCTAVO_BAKEND", "OCTAVO_BACKEND"), "run `",
            environment={"OCTAVO_BAKEND": "te"}),
    machine("misspelt key", 2, "run", "config", ("fp8.bakend",), "replace line 2",
            config='[fp8]\nbakend = "te"\n'),
    machine("file that is not there", 2, "run", "config", ("cannot be read",), "", config=None,
            config_name="absent.toml"),
    machine("kernels that do not exist", 1, "run", "kernel", ("mmx",), "run `unset OCTAVO_FORCE_KERNELS`",
            environment={"OCTAVO_FORCE_KERNELS": "mmx"}),
    machine("another precision, by fallback", 4, "run", "require", ("native",), "replace line 2 of ",
            config='[fp8]\nrequire.native = true\nfallback = ["bf16"]\n'),
    machine("another precision, as asked", 4, "run", "", ("sets \"bf16\"",),
            'replace line 1 of ', config='mixed_precision = "bf16"\n'),
    machine("plugin that crashes and is not used", 0, "plugin", "probe", ("SIGSEGV",), "",
            setup=fake("load_crashes")),
    machine("folder that is open to all", 0, "folder", "", ("mode 0777",), "run `chmod go-w ",
            setup=empty_writable_folder),
    machine("cache that is open to all", 0, "cache", "", ("can be written by others",), "run `chmod go-w ",
            setup=cache_of_all),
    machine("umask that lets the group write", 0, "umask", "", ("0002",), "run `umask 022`", umask=0o002),
    machine("lock file that is missing", 1, "run", "lock", ("there is no lock file",), "run `octavo plugin lock ",
            config='[fp8]\nbackend = "te"\n[plugins]\nlocked = true\n'),
]


def of_python(name, says, last="", about="python", setup=None, program="./python", **more):
    return machine(name, 0, about, "", says, last, more=("--python", program), setup=setup, **more)


TORCH = "torch 2.11.0"
MACHINES += [
    of_python("Python that is sound", (), "nothing is wrong", about="", setup=python_with(TORCH)),
    of_python("Python that is sound, with a wheel", (), "nothing is wrong", about="", setup=python_with(TORCH, wheels=[("site", VERSION)], path=["site"])),
    of_python("Python with jax alone", (), "nothing is wrong", about="", setup=python_with("jax 0.10.2", ops=False)),
    of_python("Python without octavo", ("no package octavo", "install the wheel"), setup=python_without_octavo),
    of_python("Python with another octavo", ("octavo 0.0.9", "this program is octavo"),
              setup=python_that_says(octavo="0.0.9", torch="2.11.0")),
    of_python("Python that is not there", ("cannot be run: No such file",), program="./absent"),
    of_python("Python that fails", ("found a program that fails",),
              setup=lambda place: place.write("python", "#!/bin/sh\nexit 3\n", 0o755)),
    of_python("Python that says something else", ("expected an answer in JSON",),
              setup=lambda place: place.write("python", "#!/bin/sh\necho hello\n", 0o755)),
    of_python("Python without liboctavo", ("liboctavo.so: expected it in", "OCTAVO_LIBRARY_DIR"),
              setup=python_with(TORCH, library=False)),
    of_python("Python without torch and jax", ("expected torch or jax, found neither",), "run `python -m pip install torch`",
              setup=python_with()),
    of_python("torch that is too old", ("expected torch 2.11 or later, below 3.0, found 2.10.1+cpu",),
              "run `python -m pip install 'torch>=2.11,<3.0'`", setup=python_with("torch 2.10.1+cpu")),
    of_python("torch that is too new", ("expected torch 2.11 or later, below 3.0, found 3.0.0",),
              "run `python -m pip install 'torch>=2.11,<3.0'`", setup=python_with("torch 3.0.0")),
    of_python("octavo that was built without torch", ("liboctavo_torch_ops.so", "built without torch"),
              setup=python_with(TORCH, ops=False)),
    of_python("two octavos", (f"expected one octavo, found {VERSION} in ", f" and {VERSION} in "),
              "run `python -m pip uninstall octavo`",
              setup=python_with(TORCH, wheels=[("first", VERSION), ("site", VERSION)], path=["first", "site"])),
    of_python("wheel with another liboctavo", ("expected liboctavo 9.9.9, the package's version, found " + VERSION,),
              setup=python_with(TORCH, wheels=[("site", "9.9.9")], path=["site"])),
    of_python("checkout before the wheel", ("expected the octavo that is installed in", "take that folder out of PYTHONPATH"),
              setup=python_with(TORCH, wheels=[("site", VERSION)], path=[str(PACKAGE.parent), "site"])),
    of_python("backend whose package is gone", ("expected the package absent_backend",),
              setup=python_with(TORCH, entry="absent_backend")),
    of_python("torch without CUDA on a machine with a GPU", ("expected a torch for CUDA", "found 2.11.0+cpu"),
              setup=python_with("torch 2.11.0+cpu"), gpu="capability=90"),
]
HOPPER = "cuda=13000 capability=90"
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
INSTALL = "install the kernels from the file of this release: `python -m pip install octavo_cuda-*.whl`"
# A machine with a GPU, and the first thing that keeps a model on it from FP8. None of them has nothing wrong while a GPU is idle.
MACHINES += [
    machine("GPU that is used", 0, last="nothing is wrong: FP8 runs on the GPU", gpu=HOPPER, setup=kernels),
    machine("GPU whose kernels are not installed, though the file asks for the CPU", 0, "gpu", "",
            ("no kernels for cuda are installed",), INSTALL, config='[device]\nkind = "cpu"\n', gpu=HOPPER),
    machine("GPU that the file leaves idle", 0, "gpu", "", ("the GPU is idle, since device.kind is \"cpu\"",),
            'replace line 2 of ', config='[device]\nkind = "cpu"\n', gpu=HOPPER, setup=kernels),
    machine("driver too old for kernels that are not installed", 0, "gpu", "", ("no kernels for cuda",),
            "install a newer NVIDIA driver (kernels-cuda requires a driver for CUDA 13.0 or later, found a driver for CUDA 12.4); "
            "then " + INSTALL, gpu="cuda=12040"),
    machine("GPU too old for kernels that are not installed", 0, "gpu", "", ("no kernels for cuda",),
            "run on a machine with such a GPU (kernels-cuda requires an NVIDIA GPU of sm_89 (capability 8.9) or later, found "
            "fake GPU sm_80 of device 0 of capability 8.0)", gpu="cuda=13000 capability=80"),
    machine("GPU too old, and the CPU will do", 0, "plugin", "device", ("sm_89 (capability 8.9) or later",),
            "run on a machine with such a GPU", gpu="cuda=13000 capability=80", setup=kernels),
    machine("GPU that a variable hides", 0, "plugin", "device", ('CUDA_VISIBLE_DEVICES = ""',),
            "run `unset CUDA_VISIBLE_DEVICES`, or name the GPU in it", gpu="cuda=13000 init=100 count=0 gpus=1",
            environment=HIDDEN, setup=kernels),
    machine("GPU that a variable hides, without kernels", 0, "gpu", "", ("no kernels for cuda",),
            "run `unset CUDA_VISIBLE_DEVICES`, or name the GPU in it", gpu="cuda=13000 init=100 count=0 gpus=1", environment=HIDDEN),
    machine("container without the GPU's device nodes", 0, "plugin", "device", ("no CUDA device",),
            "in a container start it with the GPU, as by `docker run --gpus all`", gpu="cuda=13000 init=100 count=0 nvml=9",
            setup=kernels),
    machine("kernels that the group may write", 0, "plugin", "trust", ("mode 0775",), "run `chmod g-w ", gpu=HOPPER,
            setup=kernels_of_the_group),
    machine("kernels of another release", 0, "plugin", "abi", ("ABI",), "", gpu=HOPPER, setup=kernels_of_another_release),
    machine("second GPU too old", 0, "gpu", "", ("GPU 1 cannot be used", "sm_89"), "place your model on cuda:0",
            gpu=HOPPER + " count=2 second=80", setup=kernels),
    of_python("kernels and torch for different CUDA", ("expected cuBLAS of CUDA 13", "found torch 2.11.0+cu126"),
              "run `python -m pip install 'nvidia-cublas>=13,<14'`",
              setup=python_with("torch 2.11.0+cu126", f"octavo_cuda {VERSION}"), gpu="capability=90"),
    of_python("kernels and torch for different CUDA, with cuBLAS of CUDA 13", (), "nothing is wrong", about="",
              setup=python_with("torch 2.11.0+cu126", f"octavo_cuda {VERSION}", "nvidia_cublas 13.1.0.3")),
]
if FEATURE := missing_feature():
    MACHINES.append(machine("processor without a feature", 1, "run", "require", (FEATURE,), "replace line 2",
                            config=FAKE, setup=requires(f'cpu = ["{FEATURE}"]')))
else:
    print("left out: a processor without a feature, since this one has all")


def ask(situation, m, *more):
    return situation.ask("doctor", *more, *m.more, umask=m.umask)


def page_faults(text):
    """Words of a row are at most 80 columns wide together; one longer word has a line to itself."""
    return [f"wider than {COLUMNS} columns: {line}" for line in text.splitlines()[:-1]
            if len(line) > COLUMNS and len(line[11:].split(" ")) > 1]


def check(m, place, options, validator):
    situation = run.Situation(m.case, place, options)
    done = ask(situation, m, "--json")
    assert done.returncode == m.exit_code, (
        f"expected exit code {m.exit_code}, found {done.returncode}: {done.stderr.decode()}{done.stdout.decode()}")
    model = json.loads(done.stdout)
    faults = validator.faults(model)
    assert not faults, f"not as the schema says: {faults}"
    assert (model["runs"] == "fp8") == (m.exit_code == 0), model["runs"]
    first = model["first"]
    found = (first["about"], first.get("reason", "")) if first else ("", "")
    assert found == (m.about, m.case.reason), f"expected {(m.about, m.case.reason)}, found {found}: {first}"
    assert first == (model["findings"] or [None])[0], "the first is not the first"
    said = json.dumps(first, ensure_ascii=False).replace('\\"', '"')
    for words in m.says:
        assert words in said, f"expected {words!r} in {said}"
    if m.about and m.about != "plugin":
        assert len([f for f in model["findings"] if f["about"] == m.about]) == 1, model["findings"]
    page = ask(situation, m).stdout.decode()
    faults = page_faults(page)
    assert not faults, faults
    last = page.splitlines()[-1]
    assert last.startswith("fix first  ") and m.last in last, f"expected {m.last!r} in {last!r}"
    if first and "apply" in first:
        assert last.endswith(first["apply"]), last
        repaired = last != "fix first  " + first["apply"]
        assert repaired == bool(m.repair) and m.repair in last, last


def check_case(case, place, options, validator):
    """What explain refuses first is the first thing to fix, in the same words."""
    situation = run.Situation(case, place, options)
    report = situation.json(validator)
    model = json.loads(situation.ask("doctor", "--json").stdout)
    wanted = {k: report["first_refusal"].get(k) for k in ("text", "apply", "reason")}
    found = {k: model["first"].get(k) for k in wanted}
    assert found == wanted, f"expected {wanted}, found {found}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("octavo")
    for name in ("--zoo", "--fake-gpu", "--schema"):
        parser.add_argument(name, required=True)
    parser.add_argument("--every", metavar="EXPLAIN_SCHEMA")
    parser.add_argument("--only")
    parser.add_argument("--kernels-cuda", action="store_true", help="the machines whose kernels-cuda the CPU executes, alone")
    parser.add_argument("--sanitized", action="store_true", help="a plain Python cannot load this liboctavo")
    options = parser.parse_args()
    options.zoo, options.fake_gpu = os.path.abspath(options.zoo), os.path.abspath(options.fake_gpu)
    validator = schema.Validator.of_file(options.schema)
    machines = [m for m in MACHINES if not (options.sanitized and m.loads)]
    if len(machines) < len(MACHINES):
        print(f"left out: {len(MACHINES) - len(machines)} Pythons that load liboctavo, which a sanitizer is part of")
    machines = [m for m in machines if m.executes == options.kernels_cuda]
    todo = [(m.case.name, check, m, validator) for m in machines]
    if options.every:
        explained = schema.Validator.of_file(options.every)
        todo = [(c.name, check_case, c, explained) for c in run.CASES]
    todo = [t for t in todo if options.only in (None, t[0])]
    failures = []
    for name, body, what, keeps in todo:
        with tempfile.TemporaryDirectory(prefix="octavo-doctor-") as directory:
            try:
                os.umask(0o022)
                body(what, Place(directory, options.zoo), options, keeps)
            except Exception as fault:  # one broken case must not hide the others
                failures.append(f"{name}: {type(fault).__name__}: {fault}")
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(todo) - len(failures)} of {len(todo)}")
    sys.exit(1 if failures or not todo else 0)


if __name__ == "__main__":
    main()

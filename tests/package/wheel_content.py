#!/usr/bin/env python3
"""What the wheel of host_adapters/python has to hold, compared with what a file holds.

Usage: wheel_content.py <root of the repository> <wheel> [--without <name in the wheel>]

--without looks at the wheel as if that file were missing, which shows that the comparison sees it.
The platform tag, for x86-64 or aarch64, is compared with auditwheel's tables. Exit code 1 and one line for each fault; needs readelf.
"""

import email
import hashlib
from importlib import resources
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

LIBRARIES = "octavo/lib"
PROGRAMS = ("octavo", "octavo-check-elf", "octavo-probe")
NOTICES = ("boost", "cli11", "nlohmann_json", "tomlplusplus", "yaml-cpp")
# What every Linux with torch has. Anything else has to be in the wheel.
SYSTEM = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|ld-linux-(x86-64|aarch64)|libtorch_cpu|libc10)\.so(\.\d+)?")


def expected_files(root):
    """(names without the folder of metadata, the version) by the sources, not by a build."""
    package = root / "host_adapters/python"
    names = {str(p.relative_to(package)) for p in (package / "octavo").rglob("*.py")}
    names |= {f"{LIBRARIES}/liboctavo.so", f"{LIBRARIES}/liboctavo_torch_ops.so",
              *(f"{LIBRARIES}/octavo/{program}" for program in PROGRAMS)}
    names.add("octavo/docs/reasons.md")
    plugins = [plugin for lists in (root / "plugins").glob("*/CMakeLists.txt")
               for plugin in re.findall(r"^\s*octavo_add_plugin\((\S+)", lists.read_text(), re.M)]
    for plugin in plugins:
        names |= {f"{LIBRARIES}/octavo/plugins/{plugin}{suffix}"
                  for suffix in (".so", ".octavo-plugin.toml")}
    header = (root / "sdk/include/octavo/abi.h").read_text()
    version = ".".join(re.search(rf"define OCTAVO_VERSION_{part} (\d+)", header).group(1)
                       for part in ("MAJOR", "MINOR", "PATCH"))
    return names, plugins, version


def dynamic(path):
    """(tag, value) of the dynamic section, for the tags that name files."""
    output = subprocess.run(["readelf", "-W", "-d", str(path)], check=True, capture_output=True,
                            text=True).stdout
    return re.findall(r"\((NEEDED|RPATH|RUNPATH)\)[^\[]*\[(.*?)\]", output)


def library_faults(folder, names):
    libraries = [name for name in sorted(names) if re.search(r"(\.so(\.\d+)*|/octavo|/octavo-probe)$", name)]
    inside = {pathlib.PurePosixPath(name).name for name in libraries}
    for name in libraries:
        for tag, value in dynamic(folder / name):
            if tag == "NEEDED" and value not in inside and not SYSTEM.fullmatch(value):
                yield f"{name} needs {value}, which is neither in the wheel nor on every Linux"
            if tag != "NEEDED":
                for entry in value.split(":"):
                    if not re.match(r"\$ORIGIN(/|$)", entry):
                        yield f"{name}: expected {tag} entries below $ORIGIN, found '{entry}'"


def policy(libc, processor):
    """auditwheel's newest symbol versions for distributions of a processor with a C library (x, y), by family."""
    policies = json.loads(resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text())
    versions, = (one["symbol_versions"][processor] for one in policies if one["name"] == f"manylinux_{libc[0]}_{libc[1]}")
    return {family: max(map(key, numbers)) for family, numbers in versions.items() if numbers}


def key(version):
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def tag_faults(folder, names, libc, processor):
    """Symbols that are newer than the tag promises, and libraries with a symbol table."""
    allowed = policy(libc, processor)
    for name in sorted(names):
        if name.endswith("/") or (folder / name).open("rb").read(4) != b"\x7fELF":
            continue
        tables = subprocess.run(["readelf", "-W", "-V", "-S", str(folder / name)], check=True, capture_output=True,
                                text=True).stdout
        for family, number in sorted(set(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\b", tables))):
            if key(number) > allowed[family]:
                yield f"{name}: the tag promises C library {libc[0]}.{libc[1]}, but needs {family}_{number}"
        if re.search(r" \.(symtab|debug_info) ", tables):
            yield f"{name} is not stripped"


# Name of an extra -> the distributions that it asks for, none of them without an extra.
EXTRAS = {"torch": {"torch"}, "jax": {"jax", "flax", "optax"}, "cuda": {"octavo-cuda"},
          "all": {"torch", "jax", "flax", "optax", "octavo-cuda"}}


def metadata_faults(text, version):
    """What pip and an index show of the wheel."""
    stated = email.message_from_string(text)
    for field, wanted in {"Name": "octavo", "Version": version, "Requires-Python": ">=3.10", "License-Expression": "Apache-2.0",
                          "Description-Content-Type": "text/markdown"}.items():
        if stated[field] != wanted:
            yield f"METADATA: expected {field}: {wanted}, found {stated[field]}"
    if not stated.get_payload().lstrip().startswith("# Octavo\n"):
        yield "METADATA: expected README.md as the description"
    classifiers = stated.get_all("Classifier", [])
    for wanted in ("Operating System :: POSIX :: Linux", "Environment :: GPU :: NVIDIA CUDA", "Typing :: Typed"):
        if wanted not in classifiers:
            yield f"METADATA: expected the classifier {wanted}, found {classifiers}"
    found = {extra: set() for extra in stated.get_all("Provides-Extra", [])}
    for line in stated.get_all("Requires-Dist", []):
        match = re.fullmatch(r"([\w.-]+)([^;]*); extra == [\"'](\w+)[\"']", line)
        if not match:
            yield f"METADATA: expected requirements of extras only, found {line}"
            continue
        found.setdefault(match[3], set()).add(match[1])
        # Another release has another ABI, and a name without a version is that of whoever registers it.
        if match[1] == "octavo-cuda" and match[2] != f"=={version}":
            yield f"METADATA: expected octavo-cuda=={version}, found {line}"
    if found != EXTRAS:
        yield f"METADATA: expected the extras {EXTRAS}, found {found}"


def check(root, wheel, without):
    expected, plugins, version = expected_files(root)
    metadata = f"octavo-{version}.dist-info"
    expected |= {f"{metadata}/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")}
    expected |= {f"{metadata}/licenses/{library}.txt" for library in NOTICES}
    if not plugins:
        yield f"expected plugins in {root / 'plugins'}, found none"
    tag = re.fullmatch(rf"octavo-{version}-py3-none-manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl", wheel.name)
    if not tag:
        yield f"expected the file name octavo-{version}-py3-none-manylinux_<x>_<y>_<processor>.whl, found {wheel.name}"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if name != without}
        for name in sorted(expected - names):
            yield f"missing in the wheel: {name}"
        if f"{LIBRARIES}/libsodium.so.23" in names:
            if f"{metadata}/licenses/libsodium.txt" not in names:
                yield "the wheel holds libsodium without its notice, licenses/libsodium.txt"
        for name in sorted(names):
            if "__pycache__" in name or name.endswith((".a", ".h", ".cmake")):
                yield f"not wanted in the wheel: {name}"
        content.extractall(folder)
        yield from metadata_faults(pathlib.Path(folder, metadata, "METADATA").read_text(encoding="utf-8"), version)
        for plugin in plugins:
            stem = pathlib.Path(folder, LIBRARIES, "octavo/plugins", plugin)
            digest = hashlib.sha256(stem.with_suffix(".so").read_bytes()).hexdigest()
            if f'sha256 = "{digest}"' not in pathlib.Path(f"{stem}.octavo-plugin.toml").read_text():
                yield f"the manifest of {plugin} does not state the hash {digest} of its library"
        yield from library_faults(pathlib.Path(folder), names)
        if tag:
            yield from tag_faults(pathlib.Path(folder), names, (int(tag[1]), int(tag[2])), tag[3])
            stated = pathlib.Path(folder, metadata, "WHEEL").read_text()
            if f"Tag: py3-none-{wheel.name.split('-')[-1][:-4]}\n" not in stated:
                yield f"the file name states another tag than {metadata}/WHEEL:\n{stated}"


def main():
    arguments = sys.argv[1:]
    without = None
    if len(arguments) == 4 and arguments[2] == "--without":
        without = arguments[3]
    elif len(arguments) != 2:
        sys.exit(__doc__)
    faults = list(check(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), without))
    for fault in faults:
        print(f"wheel: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Lets the CUDA build of torch, the only one that PyPI has for Linux, be imported where no CUDA is.

libtorch_python.so needs a dozen libraries (cuBLAS, cuDNN, NCCL, ...; 2 GB) that nothing on a CPU
calls. For each one that is absent this program compiles a shared library of that name, with every
symbol that torch's libraries want from it. Calling one ends the process with its name in print, so
that nothing can take a stand-in for the real library.

Usage: cuda_stand_ins.py <site-packages>     (needs readelf and a C compiler)
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = "libtorch_python.so"  # what `import torch` loads
FOREIGN = re.compile(r"lib(cu|nccl|nvshmem)")  # names of NVIDIA's libraries
UNVERSIONED = re.compile(r"(cu|nccl|nvshmem|_Z\w*nvshmem)")  # names of their plain symbols

CODE = """#include <stdio.h>
#include <stdlib.h>
#define STAND_IN(name)                                                             \\
  void name(void);                                                                 \\
  void name(void) {                                                                \\
    fputs("error: " #name " of CUDA was called; only a stand-in is here\\n", stderr); \\
    abort();                                                                       \\
  }
"""


def readelf(option, path):
    return subprocess.run(
        ["readelf", "-W", option, str(path)], check=True, capture_output=True, text=True
    ).stdout


def needed(path):
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", readelf("-d", path))


def wanted_versions(path):
    """Version name -> the library that has to define it."""
    owner, library = {}, None
    for line in readelf("-V", path).splitlines():
        found = re.search(r"File: (\S+)", line)
        library = found.group(1) if found else library
        found = re.search(r"Name: (\S+)\s+Flags:", line)
        if found and library:
            owner[found.group(1)] = library
    return owner


def symbols(path):
    """(name, version or '', is defined) of every global dynamic symbol."""
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[4] != "GLOBAL":
            continue
        name, _, version = fields[7].partition("@")
        yield name, version.lstrip("@"), fields[6] != "UND"


def closure(torch_lib):
    """torch's own libraries that ROOT loads, and NVIDIA's names among what they need."""
    own, foreign, queue = [], [], [ROOT]
    while queue:
        name = queue.pop()
        if (torch_lib / name).exists():
            if torch_lib / name not in own:
                own.append(torch_lib / name)
                queue += needed(torch_lib / name)
        elif FOREIGN.match(name) and name not in foreign:
            foreign.append(name)
    return own, foreign


def compile_library(path, versions, compiler):
    """versions: version name ('' for none) -> symbol names."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "code.c"), pathlib.Path(folder, "versions.map")
        names = sorted({n for group in versions.values() for n in group})
        source.write_text(CODE + "".join(f"STAND_IN({n})\n" for n in names))
        # A script without a named version may not name others, so unversioned symbols stay outside.
        script.write_text("".join(
            "%s { global: %s };\n" % (version, " ".join(f"{n};" for n in sorted(group)))
            for version, group in versions.items() if version))
        command = [compiler, "-O1", "-fPIC", "-shared", f"-Wl,-soname,{path.name}", "-o", str(path),
                   str(source)]
        if any(versions):
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run(command, check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site = pathlib.Path(sys.argv[1])
    torch_lib, cuda_lib = site / "torch/lib", site / "nvidia/cu13/lib"
    own, foreign = closure(torch_lib)
    absent = [name for name in foreign if not (cuda_lib / name).exists()]
    real = [cuda_lib / name for name in foreign if name not in absent]

    defined = {n for path in own + real for n, _, is_defined in symbols(path) if is_defined}
    wanted = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in own:
        owner = wanted_versions(path)
        for name, version, is_defined in symbols(path):
            if is_defined or name in defined:
                continue
            if version and owner[version] in absent:
                wanted[owner[version]][version].add(name)
            elif not version and UNVERSIONED.match(name):
                # The loader looks for such a name everywhere, so any library will do.
                wanted[absent[0]][version].add(name)

    cuda_lib.mkdir(parents=True, exist_ok=True)
    for name in absent:
        compile_library(cuda_lib / name, wanted[name], "cc")
    count = sum(len(group) for versions in wanted.values() for group in versions.values())
    print(f"{len(absent)} stand-ins with {count} symbols in {cuda_lib}: {' '.join(absent)}")


if __name__ == "__main__":
    main()

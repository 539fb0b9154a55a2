#!/usr/bin/env python3
"""Checks that plugins load nothing but the C and C++ run-times and touch no other library's names.

A plugin that linked or interposed a collective or tensor library would work on its author's machine
only. Both tables of dynamic symbols count, defined and undefined, mangled names as they stand.

    check_needed.py READELF DIRECTORY [--sanitizer NAME]
"""
import argparse
import pathlib
import re
import subprocess
import sys

# Shared objects of the C and C++ run-times; a version follows ".so".
RUNTIME = {"libc", "libm", "libstdc++", "libgcc_s", "libpthread", "ld-linux-x86-64",
           "ld-linux-aarch64"}
SANITIZER = {"address": {"libasan", "libubsan"}, "thread": {"libtsan"}}

# C names begin so. In mangled C++ names a namespace stands first in a nested name, behind its length;
# a function of C++ linkage stands behind _Z and its length.
FOREIGN_C = ("nccl", "torch", "cublas", "cuda", "c10", "at::")
FOREIGN_CPP = re.compile(r"N[KVrRO]*(?:2at|3c10|5torch|4nccl)(?=[A-Z0-9])"
                         r"|^_ZN?[KVrRO]*\d+(?:nccl|torch|cublas|cuda|c10)")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(readelf, library):
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", run(readelf, "-d", "-W", library))


def dynamic_symbols(readelf, library):
    """Names without their versions; the last column of readelf's table."""
    names = []
    for line in run(readelf, "--dyn-syms", "-W", library).splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[0].rstrip(":").isdigit():
            names.append(columns[7].split("@")[0])
    return names


def is_foreign(name):
    return name.startswith(FOREIGN_C) or FOREIGN_CPP.search(name) is not None


def check(readelf, library, allowed):
    errors = []
    for name in needed(readelf, library):
        if name.split(".so")[0] not in allowed:
            errors.append(f"{library.name}: needs {name}; expected only {', '.join(sorted(allowed))}: "
                          "load it at run-time through the kernels, or not at all")
    symbols = dynamic_symbols(readelf, library)
    if "octavo_plugin_query_v1" not in symbols:
        errors.append(f"{library.name}: expected octavo_plugin_query_v1 in its dynamic symbols, found "
                      f"{len(symbols)} others: readelf's table was not understood")
    errors += [f"{library.name}: dynamic symbol {name} belongs to another library"
               for name in symbols if is_foreign(name)]
    return errors


def self_test():
    """What must be found and what must not, so that an empty answer means something."""
    foreign = ["ncclAllReduce", "torch_version", "c10_x", "cublasCreate_v2", "cudaMalloc", "at::empty",
               "_ZN2at5emptyEv", "_ZN3c106DeviceC1Ev", "_ZN5torch8autogradEv", "_ZNK2at6Tensor3dimEv",
               "_Z9ncclThingv", "_Z10cudaThing2v", "_ZN4nccl4initEv"]
    own = ["octavo_plugin_query_v1", "malloc", "_Znwm", "_ZNSt6vectorIfE2atEm", "_ITM_registerTMClone",
           "_ZN6octavo5msamp4atEv", "atexit", "_ZNSs2atEm"]
    return ([f"self-test: {n} was not recognised" for n in foreign if not is_foreign(n)] +
            [f"self-test: {n} was taken for foreign" for n in own if is_foreign(n)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readelf")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--sanitizer", default="")
    arguments = parser.parse_args()
    libraries = sorted(arguments.directory.glob("*.so"))
    errors = self_test()
    if not libraries:
        errors.append(f"{arguments.directory}: expected plugins, found no .so; build them first")
    allowed = RUNTIME | SANITIZER.get(arguments.sanitizer, set())
    for library in libraries:
        errors += check(arguments.readelf, library, allowed)
    print("\n".join(errors) or f"{len(libraries)} plugins: nothing but the run-times")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

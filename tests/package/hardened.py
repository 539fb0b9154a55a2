#!/usr/bin/env python3
"""Every program and library of an installation, judged as `octavo plugin check-elf --strict` judges plugins.

  hardened.py <source folder> <build folder> <cmake>       installs the build into a temporary folder
  hardened.py <source folder> --aarch64 <folder> <number>  looks at a folder that a package for linux-aarch64 was unpacked
                                                           to, which holds <number> programs and libraries

Each file must have full RELRO and no path of this machine, find libraries relative to itself, load at any address, have
its writable memory apart from its code, and need no library or symbol that Debian 12 lacks.
Of all files together, some functions must check their stacks and some copies their sizes. Files for linux-aarch64 are of
that processor and ask for the loader that its systems have.
A build's programs hold no path of this machine before they are installed, either: their build IDs would depend on it.
Exit code 1 and one line for each fault.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

if len(sys.argv) != 4 and not (len(sys.argv) == 5 and sys.argv[2] == "--aarch64"):
    sys.exit(__doc__)
source = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(source / "sdk" / "cli"))
import check_elf  # noqa: E402

FEWEST = 7  # octavo, octavo-probe, liboctavo, three plugins, and a link to a library


LOADER = "/lib/ld-linux-aarch64.so.1"
KNOWN = check_elf.RUNTIME | {"libc10", "liboctavo", "libmpi", "libsodium", "libtorch_cpu", "libyaml-cpp"}


def foreign_faults(path, elf, header):
    machine = re.search(r"Machine:\s+(.*)", header)[1]
    if machine != "AArch64":
        yield f"expected a file for AArch64, found one for {machine}"
    loader = re.search(r"program interpreter: (.*)\]", header)
    is_program = ".so" not in path.name
    if is_program and (not loader or loader[1] != LOADER):
        yield f"expected that the program asks for the loader {LOADER}, found {loader[1] if loader else 'none'}"


def faults(path, elf, build):
    yield from check_elf.memory_faults(elf)
    yield from check_elf.advice(elf)
    yield from check_elf.system_faults(elf, check_elf.FLOORS)
    yield from (f"needs {name}, expected only {', '.join(sorted(KNOWN))}" for name in elf.foreign(KNOWN))
    header = subprocess.run(["readelf", "-W", "-h", "-l", path], check=True, capture_output=True, text=True).stdout
    if not re.search(r"Type:\s+DYN", header):
        yield "has a fixed address; link it with -pie"
    if not build:
        yield from foreign_faults(path, elf, header)
    for folder in (str(source).encode(), (build or "octavo-release.").encode()):
        if folder in path.read_bytes():
            yield f"holds the path {folder.decode()}"


def linked_faults(build):
    for name in ("bin/octavo", "bin/octavo-probe", "lib/liboctavo.so"):
        content = pathlib.Path(build, name).read_bytes()
        for folder in (str(source), build):
            if folder.encode() in content:
                yield f"{name} of the build holds the path {folder}, so its build ID depends on it"


def main():
    found, wrong, symbols = 0, [], set()
    build, least = ("", int(sys.argv[4])) if len(sys.argv) == 5 else (sys.argv[2], FEWEST)
    with tempfile.TemporaryDirectory() as folder:
        if build:
            subprocess.run([sys.argv[3], "--install", build, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
        else:
            folder = sys.argv[3]
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
                continue
            found += 1
            elf = check_elf.Elf("readelf", path)
            wrong += [f"{path.relative_to(folder)}: {fault}" for fault in faults(path, elf, build)]
            symbols |= {name for name, _, defined in elf.symbols if not defined}
    if build:
        wrong += linked_faults(build)
    if found < least:
        wrong.append(f"expected at least {least} programs and libraries, found {found}")
    if "__stack_chk_fail" not in symbols:
        wrong.append("no function checks its stack; compile with -fstack-protector-strong")
    if not any(re.fullmatch(r"__\w+_chk", name) for name in symbols):
        wrong.append("no copy checks its size; compile with -D_FORTIFY_SOURCE=2")
    print("\n".join([*wrong, f"{found} files, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Every program and library of an installation, judged as `octavo check-elf --strict` judges plugins.

  hardened.py <source folder> <build folder> <cmake>

Installs the build into a temporary folder. Each file must have full RELRO and no path of this machine,
find libraries relative to itself, load at any address, and have its writable memory apart from its code.
Of all files together, some functions must check their stacks and some copies their sizes.
Exit code 1 and one line for each fault.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

source, build, cmake = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path.insert(0, str(source / "sdk" / "cli"))
import check_elf  # noqa: E402

FEWEST = 7  # octavo, octavo-probe, liboctavo, three plugins, and a link to a library


def faults(path, elf):
    yield from check_elf.memory_faults(elf)
    yield from check_elf.advice(elf)
    yield from check_elf.path_faults(elf)
    header = subprocess.run(["readelf", "-h", path], check=True, capture_output=True, text=True).stdout
    if not re.search(r"Type:\s+DYN", header):
        yield "has a fixed address; link it with -pie"
    for folder in (str(source).encode(), build.encode()):
        if folder in path.read_bytes():
            yield f"holds the path {folder.decode()}"


def main():
    found, wrong, symbols = 0, [], set()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cmake, "--install", build, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
                continue
            found += 1
            elf = check_elf.Elf("readelf", path)
            wrong += [f"{path.relative_to(folder)}: {fault}" for fault in faults(path, elf)]
            symbols |= {name for name, _, defined in elf.symbols if not defined}
    if found < FEWEST:
        wrong.append(f"expected at least {FEWEST} programs and libraries, found {found}")
    if "__stack_chk_fail" not in symbols:
        wrong.append("no function checks its stack; compile with -fstack-protector-strong")
    if not any(re.fullmatch(r"__\w+_chk", name) for name in symbols):
        wrong.append("no copy checks its size; compile with -D_FORTIFY_SOURCE=2")
    print("\n".join([*wrong, f"{found} files, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

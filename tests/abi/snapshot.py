"""Freezes today's ABI as tests/abi/<name>, once: `snapshot.py v1_rc1`. A snapshot is never overwritten.

What it holds, and what tests compare with for as long as the major is supported:
  include/octavo/*.h   the C headers as they are
  layout.inc           their table, see abi_table.py
  abi.xml              libabigail's description of them, see witness.py
  golden/<compiler>/   plugins built from these headers, with their manifests
                       (gcc, clang: C; cpp: C++; rust: Rust)
  golden/host, golden/program   two small hosts, likewise: without and over liboctavo
  BUILT.txt            with which compilers, on which system, from which folders, by git's hash of their
                       content, which `git log --find-object=HASH` finds
  SHA256SUMS           of every file above

Needs gcc, g++, clang, cargo, bindgen, strip and abidw (Debian: abigail-tools), and a work tree without
changes, so that git holds what was frozen.
"""
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import abi_table
import check_snapshots
import witness

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INCLUDE = ROOT / "sdk" / "include"
COMMON = ["-Os", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-missing-field-initializers",
          "-ffile-prefix-map=" + str(ROOT) + "=."]
C = ["-std=gnu11", *COMMON]
CPP = ["-std=c++17", *COMMON, '-DOCTAVO_PLUGIN_ID="current"', '-DOCTAVO_PLUGIN_VERSION="1.0.0"']
LINK = ["-s", "-Wl,--build-id=sha1", "-Wl,-z,noseparate-code", "-Wl,--hash-style=gnu"]
PLUGIN = ["-shared", "-fPIC", f"-Wl,--version-script={ROOT}/sdk/cmake/plugin_exports.map"]
# output -> compiler, source, options
BINARIES = {
    "gcc/minimal.so": ("gcc", "samples/minimal_plugin/minimal.c", PLUGIN),
    "gcc/stateful.so": ("gcc", "tests/abi/golden/stateful.c", PLUGIN),
    "clang/minimal.so": ("clang", "samples/minimal_plugin/minimal.c", PLUGIN),
    "cpp/current.so": ("g++", "samples/current_plugin/current.cpp", PLUGIN),
    "rust/rustcurrent.so": ("cargo", "samples/rust_plugin", []),
    "host": ("gcc", "tests/abi/golden/host.c", ["-lm", "-ldl"]),
    "program": ("gcc", "tests/abi/golden/program.c", ["-ldl"]),
}
SOURCES = ("sdk/include/octavo", "sdk/rust/octavo-sys", "samples/minimal_plugin", "samples/current_plugin",
           "samples/rust_plugin", "tests/abi/golden")
MANIFEST = """\
manifest_version = 1
[plugin]
name = "{name}"
version = "1.0.0"
description = "golden plugin of the ABI snapshot {snapshot}, built by {compiler} and never again"
[abi]
major = {major}
minor = 0
[library]
linux-x86_64 = {{ file = "{name}.so", sha256 = "{sha256}" }}
"""


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*command, **environment):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, **environment}).stdout.strip()


def build_rust(include, source, binary):
    """A small library of cargo's, from the frozen headers and without a path of this machine."""
    with tempfile.TemporaryDirectory() as name:
        release = {"OPT_LEVEL": "s", "LTO": "true", "CODEGEN_UNITS": "1", "STRIP": "true"}
        run("cargo", "build", "--release", "--offline", "--manifest-path", f"{source}/Cargo.toml",
            CARGO_TARGET_DIR=name, OCTAVO_INCLUDE_DIR=str(include),
            RUSTFLAGS=f"--remap-path-prefix={ROOT}=. --remap-path-prefix={name}=target",
            **{f"CARGO_PROFILE_RELEASE_{key}": value for key, value in release.items()})
        shutil.copy(pathlib.Path(name, "release", f"lib{binary.name}"), binary)


def build_golden(target):
    major = re.search(r"#define OCTAVO_ABI_MAJOR (\d+)", (INCLUDE / "octavo" / "abi.h").read_text())[1]
    for output, (compiler, source, options) in BINARIES.items():
        binary = target / "golden" / output
        binary.parent.mkdir(parents=True, exist_ok=True)
        if compiler == "cargo":
            build_rust(target / "include", source, binary)
        else:
            # The C++ headers are compiled into the plugin, and not part of the ABI.
            run(compiler, *(CPP if compiler == "g++" else C), f"-I{target}/include", f"-I{INCLUDE}", f"-I{ROOT}",
                source, "-o", str(binary), *LINK, *options)
        size, most = binary.stat().st_size, check_snapshots.most_bytes(binary)
        if size > most:
            sys.exit(f"{binary}: expected at most {most} bytes, found {size}")
        if binary.suffix == ".so":
            binary.with_suffix(".octavo-plugin.toml").write_text(MANIFEST.format(
                name=binary.stem, snapshot=target.name, compiler=compiler, major=major, sha256=sha256(binary)))


def write_record(target):
    system = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())[1]
    lines = [*(f"{run('git', 'rev-parse', f'HEAD:{f}')} {f}" for f in SOURCES),
             f"system   {system}, {platform.machine()}, {' '.join(platform.libc_ver())}",
             f"gcc      {run('gcc', '--version').splitlines()[0]}",
             f"g++      {run('g++', '--version').splitlines()[0]}",
             f"clang    {run('clang', '--version').splitlines()[0]}",
             f"rustc    {run('rustc', '--version')}, {run('bindgen', '--version')}",
             f"abidw    {run('abidw', '--version')}", f"options  {' '.join(C[:4] + LINK)}"]
    (target / "BUILT.txt").write_text("\n".join(lines) + "\n")
    files = sorted(p for p in target.rglob("*") if p.is_file())
    (target / "SHA256SUMS").write_text("".join(f"{sha256(p)}  {p.relative_to(target)}\n" for p in files))


def main(name):
    target = HERE / name
    if not re.fullmatch(r"v\d+(_\w+)?", name):
        sys.exit(f"expected a name such as v1 or v1_rc1, found {name}")
    if target.exists():
        sys.exit(f"{target} exists. A snapshot is frozen: what was released stays as it was. Take a new "
                 "name, and write a change that is meant into tests/abi/approved_changes")
    if platform.machine() != "x86_64":
        sys.exit(f"expected x86_64, for which golden binaries are built, found {platform.machine()}")
    for tool in ("gcc", "g++", "clang", "cargo", "rustc", "bindgen", "abidw"):
        if not shutil.which(tool):
            sys.exit(f"expected {tool}, found none: apt-get install g++ clang cargo rustc bindgen abigail-tools")
    changed = run("git", "status", "--porcelain")
    if changed:
        sys.exit(f"expected a work tree without changes, found:\n{changed}\nCommit them first")
    if abi_table.check(INCLUDE, HERE / "layout_v1.inc") != 0:
        sys.exit("the committed table is not that of the headers")
    try:
        shutil.copytree(INCLUDE / "octavo", target / "include" / "octavo",
                        ignore=lambda _, names: [n for n in names if not n.endswith(".h")])
        shutil.copy(HERE / "layout_v1.inc", target / "layout.inc")
        build_golden(target)
        library = target / "witness.so"
        witness.build(target / "include", library)
        run("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--out-file",
            str(target / "abi.xml"), str(library))
        library.unlink()
        write_record(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)  # half a snapshot is none
        raise
    print(f"{target}: commit it, and never change it")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

"""Freezes today's ABI as tests/abi/<name>, once. A snapshot is never overwritten.

  snapshot.py v1_rc1             everything
  snapshot.py --missing v1_rc1   the binaries that a snapshot lacks, with its headers; all else stays as it is

What it holds, and what tests compare with for as long as the major is supported:
  include/octavo/*.h   the C headers as they are
  layout.inc           their table, see abi_table.py
  abi.xml              libabigail's description of them, see witness.py
  golden/<compiler>/   plugins built from these headers, with their manifests
                       (gcc, clang: C; cpp: C++; rust: Rust)
  golden/host, golden/program   two small hosts, likewise: without and over liboctavo
  golden/parallel      the second one, with threads for the kernels
  golden/aarch64       C and C++ once more, for linux-aarch64 by Debian's cross compiler, with a BUILT.txt of its own
  BUILT.txt            with which compilers, on which system, from which folders, by git's hash of their
                       content, which `git log --find-object=HASH` finds
  SHA256SUMS           of every file above

Needs gcc, g++, both also for aarch64, clang, cargo, bindgen, strip and abidw (Debian: abigail-tools), and a work tree
without changes, so that git holds what was frozen.
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
          "-ffile-prefix-map=" + str(ROOT) + "=.", '-DOCTAVO_PLUGIN_VERSION="1.0.0"']
C = ["-std=gnu11", *COMMON]
CPP = ["-std=c++17", *COMMON]
LINK = ["-s", "-Wl,--build-id=sha1", "-Wl,-z,noseparate-code", "-Wl,--hash-style=gnu"]
PLUGIN = ["-shared", "-fPIC", f"-Wl,--version-script={ROOT}/sdk/cmake/plugin_exports.map"]
# output -> compiler, source, options
BINARIES = {
    "gcc/minimal.so": ("gcc", "samples/minimal_plugin/minimal.c", PLUGIN),
    "gcc/stateful.so": ("gcc", "tests/abi/golden/stateful.c", PLUGIN),
    "clang/minimal.so": ("clang", "samples/minimal_plugin/minimal.c", PLUGIN),
    "cpp/current.so": ("g++", "samples/current_plugin/current.cpp", PLUGIN),
    # Fused forwards, shards, blocks, MX, rows, options of a linear.
    "cpp/te.so": ("g++", "plugins/te/*.cpp", ["-fno-math-errno", *PLUGIN]),
    # A provider: a table of kernels for a device of its own.
    "kernels/npu.so": ("gcc", "samples/kernels_plugin/kernels.c", ["-ffp-contract=off", *PLUGIN, "-lm"]),
    "rust/rustcurrent.so": ("cargo", "samples/rust_plugin", []),
    "host": ("gcc", "tests/abi/golden/host.c", ["-lm", "-ldl"]),
    "program": ("gcc", "tests/abi/golden/program.c", ["-ldl"]),
    "parallel": ("gcc", "tests/abi/golden/parallel.c", ["-ldl"]),
}
# Pages of 64 KiB: the one that RELRO would protect would fill each file with zeros.
CROSS = "aarch64-linux-gnu-"
CROSS_BINARIES = {output: (CROSS + compiler, source, ["-Wl,-z,norelro", *options])
                  for output, (compiler, source, options) in BINARIES.items() if compiler in ("gcc", "g++")}
SOURCES = ("sdk/include/octavo", "sdk/rust/octavo-sys", "samples/minimal_plugin", "samples/current_plugin",
           "samples/rust_plugin", "samples/kernels_plugin", "plugins/te", "tests/abi/golden")
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
{platform} = {{ file = "{name}.so", sha256 = "{sha256}" }}
"""
DEVICE = "[kernels]\nkind = \"npu\"\ndevice_type = 12\n"


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


def build_golden(target, folder, binaries, platform_name):
    major = re.search(r"#define OCTAVO_ABI_MAJOR (\d+)", (target / "include" / "octavo" / "abi.h").read_text())[1]
    for output, (compiler, source, options) in binaries.items():
        binary = folder / output
        binary.parent.mkdir(parents=True, exist_ok=True)
        if compiler == "cargo":
            build_rust(target / "include", source, binary)
        else:
            # The C++ headers are compiled into the plugin, and not part of the ABI.
            run(compiler, *(CPP if compiler.endswith("g++") else C), f'-DOCTAVO_PLUGIN_ID="{binary.stem}"', f"-I{target}/include", f"-I{INCLUDE}", f"-I{ROOT}",
                *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob(source)), "-o", str(binary), *LINK, *options)
        size, most = binary.stat().st_size, check_snapshots.most_bytes(binary)
        if size > most:
            sys.exit(f"{binary}: expected at most {most} bytes, found {size}")
        if binary.suffix == ".so":
            binary.with_suffix(".octavo-plugin.toml").write_text(MANIFEST.format(
                name=binary.stem, platform=platform_name, snapshot=target.name, compiler=compiler, major=major, sha256=sha256(binary)) + (DEVICE if binary.parent.name == "kernels" else ""))


def write_built(folder, sources, tools, link):
    system = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())[1]
    lines = [*(f"{run('git', 'rev-parse', f'HEAD:{f}')} {f}" for f in sources),
             f"system   {system}, {platform.machine()}, {' '.join(platform.libc_ver())}", *tools,
             f"options  {' '.join(C[:4] + link)}"]
    (folder / "BUILT.txt").write_text("\n".join(lines) + "\n")


def version_of(compiler):
    return run(compiler, "--version").splitlines()[0]


def write_sums(target):
    files = sorted(p for p in target.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    (target / "SHA256SUMS").write_text("".join(f"{sha256(p)}  {p.relative_to(target)}\n" for p in files))


def build_native(target):
    build_golden(target, target / "golden", BINARIES, "linux-x86_64")
    write_built(target, SOURCES, [*(f"{name:8} {version_of(name)}" for name in ("gcc", "g++", "clang")),
                                  f"rustc    {run('rustc', '--version')}, {run('bindgen', '--version')}",
                                  f"abidw    {run('abidw', '--version')}"], LINK)


def build_cross(target):
    folder = target / "golden" / "aarch64"
    build_golden(target, folder, CROSS_BINARIES, "linux-aarch64")
    headers = str((target / "include" / "octavo").relative_to(ROOT))
    write_built(folder, [headers if in_git(headers) else SOURCES[0], *(s for s in SOURCES if "rust" not in s)],
                [f"{name:8} {version_of(CROSS + name)}" for name in ("gcc", "g++")], [*LINK, "-Wl,-z,norelro"])


def in_git(path):
    return bool(run("git", "ls-tree", "HEAD", path))


def refuse_changes():
    changed = run("git", "status", "--porcelain")
    if changed:
        sys.exit(f"expected a work tree without changes, found:\n{changed}\nCommit them first")


def add_missing(name):
    target = HERE / name
    if not (target / "SHA256SUMS").is_file():
        sys.exit(f"expected a snapshot in {target}, found none")
    if not shutil.which(f"{CROSS}g++"):
        sys.exit(f"expected {CROSS}g++, found none: bash tests/environment/aarch64.sh")
    faults = check_snapshots.check_snapshot(target)
    if faults:
        sys.exit("\n".join(faults))
    refuse_changes()
    cross, added = target / "golden" / "aarch64", []
    for folder, built, binaries, system in ((target / "golden", target, BINARIES, "linux-x86_64"),
                                            (cross, cross, CROSS_BINARIES, "linux-aarch64")):
        if not folder.exists():
            build_cross(target)
            added.append(folder)
            continue
        lacking = {output: how for output, how in binaries.items() if not (folder / output).exists()}
        if not lacking:
            continue
        build_golden(target, folder, lacking, system)
        sources = sorted({pathlib.Path(source).parent for _, source, _ in lacking.values()})
        with open(built / "BUILT.txt", "a") as file:
            file.writelines(f"{run('git', 'rev-parse', f'HEAD:{s}')} {s}, later: {' '.join(lacking)}\n" for s in sources)
        added += [folder / output for output in lacking]
    if not added:
        sys.exit(f"{target} has every binary. A snapshot is frozen: what was released stays as it was")
    write_sums(target)
    print(*added, "commit them, and never change them", sep="\n")


def main(name):
    target = HERE / name
    if not re.fullmatch(r"v\d+(_\w+)?", name):
        sys.exit(f"expected a name such as v1 or v1_rc1, found {name}")
    if target.exists():
        sys.exit(f"{target} exists. A snapshot is frozen: what was released stays as it was. Take a new "
                 "name, and write a change that is meant into tests/abi/approved_changes")
    if platform.machine() != "x86_64":
        sys.exit(f"expected x86_64, for which golden binaries are built, found {platform.machine()}")
    for tool in ("gcc", "g++", f"{CROSS}g++", "clang", "cargo", "rustc", "bindgen", "abidw"):
        if not shutil.which(tool):
            sys.exit(f"expected {tool}, found none: apt-get install g++ g++-aarch64-linux-gnu clang cargo rustc bindgen "
                     "abigail-tools")
    refuse_changes()
    if abi_table.check(INCLUDE, HERE / "layout_v1.inc") != 0:
        sys.exit("the committed table is not that of the headers")
    try:
        shutil.copytree(INCLUDE / "octavo", target / "include" / "octavo",
                        ignore=lambda _, names: [n for n in names if not n.endswith(".h") and n != "draft"])
        shutil.copy(HERE / "layout_v1.inc", target / "layout.inc")
        build_native(target)
        build_cross(target)
        library = target / "witness.so"
        witness.build(target / "include", library)
        run("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--out-file",
            str(target / "abi.xml"), str(library))
        library.unlink()
        write_sums(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)  # half a snapshot is none
        raise
    print(f"{target}: commit it, and never change it")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--missing":
        add_missing(sys.argv[2])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)

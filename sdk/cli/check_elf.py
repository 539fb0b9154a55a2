#!/usr/bin/env python3
"""What a shared library asks of the system and leaves in the process, read from its ELF tables.

A plugin that exports a second symbol collides with another plugin; one that needs a collective library
or a newer libc works on its author's machine only. Needs nothing but Python and binutils' readelf, so
authors of plugins can run it on their own files. Further libraries that a plugin may need are
[requires] libraries of the manifest next to it, mine.octavo-plugin.toml for mine.so:

    octavo plugin check-elf my_plugin.so                          or a directory of plugins
    octavo plugin check-elf --exports octavo.h liboctavo.so.1     a library, with the headers that declare it

  --libc 2.36             the newest GLIBC_ version that may be needed; --libstdcxx and --cxxabi likewise
  --may-need libz         with --exports: a further library that may be needed, without ".so"; may be repeated
  --sanitizer address     the run-time of this sanitizer may be needed, too
  --strict                advice counts as a fault, too: tables of addresses that stay writable, and
                          paths of the machine that built the file
  --readelf PROGRAM       instead of readelf
  --json                  print JSON

Exits with 1 after printing every fault, and prints the floor that it found for each file.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

try:
    import tomllib  # since Python 3.11
except ImportError:
    tomllib = None

QUERY = "octavo_plugin_query_rc4"
# Shared objects of the C and C++ run-times; a version follows ".so".
RUNTIME = {"libc", "libm", "libstdc++", "libgcc_s", "libpthread", "libdl", "ld-linux-x86-64",
           "ld-linux-aarch64"}
SANITIZER = {"address": {"libasan", "libubsan"}, "thread": {"libtsan"}}
# Debian 12, the oldest system that Octavo is built and tested on.
FLOORS = {"GLIBC": "2.36", "GLIBCXX": "3.4.30", "CXXABI": "1.3.13", "GCC": "12.0.0"}
# Marks that the linker and sanitizers' start-up code leave in every library.
LINKER_MARKS = {"_init", "_fini", "_edata", "_end", "__bss_start"}
# C names begin so. In mangled C++ names a namespace stands first in a nested name, behind its length;
# a function of C++ linkage stands behind _Z and its length.
FOREIGN_C = ("nccl", "torch", "cublas", "cuda", "c10", "at::")
FOREIGN_CPP = re.compile(r"N[KVrRO]*(?:2at|3c10|5torch|4nccl)(?=[A-Z0-9])"
                         r"|^_ZN?[KVrRO]*\d+(?:nccl|torch|cublas|cuda|c10)")


# Paths of sources that a compiler writes into debug information and messages, in a folder: fewer bytes are
# found in machine code by chance. The C and C++ libraries and Rust's bring some of their own.
SOURCE_PATH = re.compile(rb"(?<![\w.$)}-])/[\w.+ -]{1,100}/[\w.+/ -]{1,200}\.(?:c|cc|cpp|cxx|cu|h|hpp|rs)\b")
SYSTEM_PATH = (b"/usr/", b"/rustc")


class Finding(str):
    """The text of a fault or of advice, and the rule that the file breaks."""
    rule: str

    def __new__(cls, rule, text):
        finding = super().__new__(cls, text)
        finding.rule = rule
        return finding


def is_foreign(name):
    return name.startswith(FOREIGN_C) or FOREIGN_CPP.search(name) is not None


class Elf:
    """The tables of one file, as far as they are checked."""

    def __init__(self, readelf, path):
        def read(*options):
            try:
                done = subprocess.run([readelf, "-W", *options, path], capture_output=True, text=True)
            except FileNotFoundError:
                sys.exit(f"{readelf}: expected the program, which reads ELF files, found none; install binutils, or name it "
                         "with --readelf")
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix(f"{readelf}: ")
                sys.exit(f"{path}: expected an ELF library, {readelf} found: {said}")
            return done.stdout
        dynamic = read("-d")
        self.needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
        self.paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*?)\]", dynamic)
        self.has_textrel = re.search(r"\(TEXTREL\)|\(FLAGS\).*\bTEXTREL\b", dynamic) is not None
        content = path.read_bytes()
        # Rust's standard library puts one function there, which keeps the arguments of the program.
        # Debian 12's leaves no mark in .comment, only paths in its messages.
        self.start_up = 1 + (re.search(rb"\brustc version |/rustc[-/][\w.]+/library/", content) is not None)
        # nvcc's objects register their device code, 24 bytes of this section each, and its static runtime has two.
        modules = re.search(r"\.nvFatBinSegment\s+PROGBITS\s+\S+ \S+ ([0-9a-f]+)", read("-S"))
        if modules:
            self.start_up += int(modules[1], 16) // 24
            self.start_up += 2 * (not any(name.startswith("libcudart.so") for name in self.needed))
        self.is_bound_at_load = re.search(r"\(BIND_NOW\)|\(FLAGS(?:_1)?\).*\bNOW\b", dynamic) is not None
        self.source_paths = sorted({found for found in SOURCE_PATH.findall(content)
                                    if not found.startswith(SYSTEM_PATH)})
        constructors = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+) ", dynamic)
        self.constructors = int(constructors[1]) // 8 if constructors else 0
        segments = re.findall(r"^\s+(\w+)\s+0x\S+ 0x\S+ 0x\S+ 0x\S+ 0x\S+ (.{3}) (?:0x)?[0-9a-f]+$",
                              read("-l"), re.M)
        self.segments = [(kind, flags.replace(" ", "")) for kind, flags in segments]
        self.symbols = []  # name, binding, whether it is defined here
        for line in read("--dyn-syms").splitlines():
            columns = line.split()
            if len(columns) >= 8 and columns[0].rstrip(":").isdigit():
                self.symbols.append((columns[7].split("@")[0], columns[4], columns[6] != "UND"))
        self.versions = {}  # family -> newest version needed
        given, _, needs = read("-V").partition("Version needs section")
        nodes = set(re.findall(r"Name: (\S+)", given.partition("Version definition section")[2]))
        self.symbols = [s for s in self.symbols if s[0] not in nodes]  # each is a symbol, too
        for family, number in re.findall(r"Name: ([A-Z]+)_(\d+(?:\.\d+)*)\s", needs):
            if key(number) > key(self.versions.get(family, "0")):
                self.versions[family] = number

    def exported(self):
        return {n for n, binding, defined in self.symbols
                if defined and binding in ("GLOBAL", "WEAK", "UNIQUE")} - LINKER_MARKS

    def foreign(self, allowed):
        """The libraries that the file needs and `allowed` does not name."""
        return [name for name in self.needed if name.split(".so")[0] not in allowed]


def key(version):
    return [int(part) for part in version.split(".")]


def declared(headers):
    """The functions that headers export."""
    texts = [re.sub(r"/\*.*?\*/|//[^\n]*", " ", h.read_text(), flags=re.S) for h in headers]
    return set(re.findall(r"\bOCTAVO_EXPORT\b[^;{]*?\b(octavo_\w+)\s*\(", "".join(texts)))


def symbol_faults(elf, expected, sanitized):
    found = elf.exported()
    for name in sorted(found - expected):
        yield Finding("exports", f"exports {name}, expected only declared names; hide it with a version script")
    for name in sorted(expected - found):
        yield Finding("exports", f"expected to export {name}, found {len(found)} other symbols")
    for name, binding, _ in elf.symbols:
        if is_foreign(name):
            yield Finding("foreign", f"dynamic symbol {name} belongs to another library")
        if binding == "UNIQUE":
            yield Finding("unique", f"symbol {name} is unique in the process, so two plugins would share it; build "
                                    "with -fvisibility=hidden or -fno-gnu-unique")
    # The compilers' own start-up code is no fault of the plugin.
    if QUERY in expected and elf.constructors > elf.start_up and not sanitized:
        yield Finding("constructors", f"runs {elf.constructors - elf.start_up} static constructors when it is loaded, "
                                      "expected none: construct on first use, inside a function")


def stated_libraries(path):
    """The manifest of a plugin's library, and what it states as [requires] libraries."""
    manifest = path.with_name(f"{path.stem}.octavo-plugin.toml")
    if not manifest.is_file():
        return manifest, []
    if tomllib is None:
        sys.exit(f"{manifest}: expected Python 3.11 or later, which reads TOML, found {sys.version.split()[0]}")
    try:
        stated = tomllib.loads(manifest.read_text()).get("requires", {}).get("libraries", [])
    except (OSError, ValueError) as problem:
        sys.exit(f"{manifest}: expected a manifest, found: {problem}")
    if not isinstance(stated, list) or not all(isinstance(name, str) for name in stated):
        sys.exit(f"{manifest}: [requires] libraries: expected a list of texts, found {stated!r}")
    return manifest, stated


def needed_faults(elf, path, arguments):
    allowed = RUNTIME | SANITIZER.get(arguments.sanitizer, set()) | set(arguments.may_need)
    foreign = elf.foreign(allowed)
    remedy, stated = "load it at run time, or not at all", []
    if foreign and not arguments.exports:
        manifest, stated = stated_libraries(path)
        remedy = f"load it at run time, or state it in {manifest.name} as [requires] libraries"
    for name in foreign:
        if name not in stated:
            yield Finding("needed", f"needs {name}; expected only {', '.join([*sorted(allowed), *stated])}: {remedy}")


def system_faults(elf, floors):
    for family, version in sorted(elf.versions.items()):
        if family in floors and key(version) > key(floors[family]):
            yield Finding("floor", f"needs {family}_{version}, expected at most {family}_{floors[family]}; build it on "
                                   "an older system, or state the floor in the manifest as [requires] libc")
    yield from path_faults(elf)


def path_faults(elf):
    for path in elf.paths:
        if not all(part.startswith("$ORIGIN") for part in path.split(":")):
            yield Finding("search_path", f"searches libraries in {path}, expected no path or one below $ORIGIN")


def memory_faults(elf):
    stack = [flags for kind, flags in elf.segments if kind == "GNU_STACK"]
    if not elf.segments:
        yield Finding("headers", "no program headers found: readelf's table was not understood")
    if not stack:
        yield Finding("stack", "has no GNU_STACK header, so its stack would be executable; link with -z noexecstack")
    if any("E" in flags for flags in stack):
        yield Finding("stack", "wants an executable stack; find the object with readelf -S, or link with "
                               "-z noexecstack")
    if any(kind == "LOAD" and "W" in flags and "E" in flags for kind, flags in elf.segments):
        yield Finding("segments", "has a segment that is writable and executable")
    if elf.has_textrel:
        yield Finding("relocations", "has text relocations; compile everything with -fPIC")


def advice(elf):
    if not any(kind == "GNU_RELRO" for kind, _ in elf.segments) or not elf.is_bound_at_load:
        yield Finding("relro", "keeps its table of addresses writable; link with -Wl,-z,relro,-z,now")
    if elf.source_paths:
        yield Finding("source_paths", f"holds {len(elf.source_paths)} paths of the machine that built it, such as "
                                      f"{elf.source_paths[0].decode()}; compile with -ffile-prefix-map=<folder>/=, "
                                      "or strip it")


def check(path, arguments):
    elf = Elf(arguments.readelf, path)
    expected = declared(arguments.exports) if arguments.exports else {QUERY}
    floors = {**FLOORS, "GLIBC": arguments.libc, "GLIBCXX": arguments.libstdcxx,
              "CXXABI": arguments.cxxabi}
    faults = [*symbol_faults(elf, expected, bool(arguments.sanitizer)),
              *needed_faults(elf, path, arguments), *system_faults(elf, floors), *memory_faults(elf)]
    advised = list(advice(elf))
    if arguments.strict:
        faults += advised
    return {"file": str(path), "exports": len(elf.exported()), "needs": dict(sorted(elf.versions.items())),
            "ok": not faults, "faults": faults, "advice": [] if arguments.strict else advised}


def print_report(report):
    path = report["file"]
    for fault in report["faults"]:
        print(f"{path}: {fault}")
    for text in report["advice"]:
        print(f"{path}: advice: {text}")
    needs = ", ".join(f"{f}_{v}" for f, v in report["needs"].items()) or "no versioned symbol"
    print(f"{pathlib.Path(path).name}: exports {report['exports']}, needs {needs}")


def print_json(reports):
    for report in reports:
        for key in ("faults", "advice"):
            report[key] = [{"rule": finding.rule, "text": finding} for finding in report[key]]
    print(json.dumps({"ok": all(report["ok"] for report in reports), "files": reports}, indent=2))


def files_of(paths):
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.so"))
            if not found:
                sys.exit(f"{path}: expected plugins, found no .so; build them first")
            yield from found
        elif path.is_file():
            yield path
        else:
            sys.exit(f"{path}: expected a library or a directory, found nothing")


def main():
    parser = argparse.ArgumentParser(prog="octavo plugin check-elf", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--exports", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--libc", default=FLOORS["GLIBC"])
    parser.add_argument("--libstdcxx", default=FLOORS["GLIBCXX"])
    parser.add_argument("--cxxabi", default=FLOORS["CXXABI"])
    parser.add_argument("--may-need", action="append", default=[])
    parser.add_argument("--sanitizer", default="")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.may_need and not arguments.exports:
        parser.error("--may-need is for a library with --exports; what a plugin needs is [requires] libraries of its manifest")
    if arguments.exports and not declared(arguments.exports):
        sys.exit(f"{', '.join(map(str, arguments.exports))}: no declaration with OCTAVO_EXPORT found")
    reports = []
    for path in files_of(arguments.paths):
        reports.append(check(path, arguments))
        if not arguments.json:
            print_report(reports[-1])
    faulty = sum(not report["ok"] for report in reports)
    if arguments.json:
        print_json(reports)
    else:
        print(f"{len(reports)} files, {faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())

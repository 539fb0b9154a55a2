"""Generators of bindings read the headers as they are, and find what layout_v1.inc promises.

  generators_test.py cffi <include dir> <table> <C compiler>      runs in a Python that has cffi
  generators_test.py bindgen <include dir> <table> <bindgen>

cffi reads what the preprocessor leaves of OCTAVO_DECLARATIONS_ONLY, bindgen reads the headers themselves.
Exit code 77: the generator is not installed.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = "".join(f'#include "octavo/{name}.h"\n' for name in (
    "draft/fp4", "draft/grouped", "draft/layer", "draft/msamp", "draft/one_pass", "draft/reduction",
    "draft/streams"))


def promised(table):
    """Sizes of structs, offsets of fields and values of constants of both tables, by name."""
    text = "".join(t.read_text() for t in (pathlib.Path(table), pathlib.Path(table).with_name("layout_draft.inc")))
    sizes = {n: int(s) for n, s in re.findall(r"^(?:FROZEN|GROWABLE)\((\w+), (\d+)", text, re.M)}
    offsets = {(n, f): int(o) for n, f, o in re.findall(r"^FIELD\((\w+), (\w+), (\d+)", text, re.M)}
    values = {n: int(v) for n, v in re.findall(r"^VALUE\((\w+), (\d+)\)", text, re.M)}
    if len(sizes) < 40 or len(values) < 200:
        sys.exit(f"{table}: only {len(sizes)} structs and {len(values)} values were understood")
    return sizes, offsets, values


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def cffi_faults(include, table, compiler):
    try:
        import cffi
    except ImportError:
        print("skipped: python3-cffi is not installed in", sys.executable)
        sys.exit(77)
    sizes, offsets, values = promised(table)
    flags = ["-E", "-DOCTAVO_DECLARATIONS_ONLY", f"-I{include}", "-xc", "-"]
    declarations = run(compiler, "-P", *flags, text=HEADERS)
    # Constants of the preprocessor are gone after it: those with one plain number are declared again.
    macros = re.findall(r"^#define (OCTAVO_\w+) (0x[0-9A-Fa-f]+u?|\d+u?)$",
                        run(compiler, "-dM", *flags, text=HEADERS), re.M)
    ffi = cffi.FFI()
    ffi.cdef(declarations + "".join(f"#define {n} {v}\n" for n, v in macros))
    constants = ffi.dlopen(None)
    for name, size in sizes.items():
        if ffi.sizeof(name) != size:
            yield f"{name}: expected {size} bytes, cffi found {ffi.sizeof(name)}"
    for (name, field), offset in offsets.items():
        if ffi.offsetof(name, field) != offset:
            yield f"{name}.{field}: expected offset {offset}, cffi found {ffi.offsetof(name, field)}"
    for name, value in values.items():
        found = getattr(constants, name, None)
        if found != value:
            yield f"{name}: expected {value}, cffi found {found}"


def bindgen_faults(include, table, bindgen):
    sizes, offsets, values = promised(table)
    with tempfile.TemporaryDirectory() as folder:
        header = pathlib.Path(folder, "all.h")
        header.write_text(HEADERS)
        try:
            rust = run(bindgen, header, "--allowlist-type", "octavo_.*", "--allowlist-var", "OCTAVO_.*",
                       "--allowlist-function", "octavo_.*", "--no-prepend-enum-name", "--no-rustfmt-bindings", "--",
                       f"-I{include}")
        except FileNotFoundError:
            print("skipped: bindgen is not installed")
            sys.exit(77)
    rust = re.sub(r"\s*([:;=(),<>])\s*", r"\1", rust)  # a rustfmt may be there or not
    found = dict(re.findall(r"pub const (OCTAVO_\w+):\w+=(-?\d+);", rust))
    for name, value in values.items():
        if int(found.get(name, -1)) != value:
            yield f"{name}: expected {value}, bindgen found {found.get(name)}"
    for status in ("OCTAVO_OK", "OCTAVO_INTERNAL"):
        if f"pub const {status}:u32" not in rust or "pub type octavo_status=u32;" not in rust:
            yield f"{status}: expected the type of octavo_status, u32"
    # The tests that bindgen writes state the sizes and offsets that it found.
    stated = dict(re.findall(r"size_of::<(\w+)>\(\),(\d+)usize", rust))
    for name, size in sizes.items():
        if int(stated.get(name, -1)) != size:
            yield f"{name}: expected {size} bytes, bindgen found {stated.get(name)}"


def main(arguments):
    if len(arguments) != 4 or arguments[0] not in ("cffi", "bindgen"):
        sys.exit(__doc__)
    find = cffi_faults if arguments[0] == "cffi" else bindgen_faults
    faults = list(find(*arguments[1:]))
    print(*faults, f"{arguments[0]}: {len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

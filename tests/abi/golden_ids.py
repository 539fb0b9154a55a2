"""Every interface and extension that the released headers freeze has a golden binary, which other tests run.

  golden_ids.py <snapshot>

A plugin answers get_interface with a table; a host extension has a program of a host that gives it.
"""
import ctypes
import pathlib
import platform
import re
import sys


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class Plugin(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("id", Text), ("version", Text), ("get_interface", ctypes.CFUNCTYPE(ctypes.c_void_p, Text))]


class Host(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("ctx", ctypes.c_void_p), ("diagnose", ctypes.c_void_p), ("get_extension", ctypes.c_void_p)]


def define(text, name):
    return re.search(rf"^#define {name} (\S+)|^  {name} = (\d+)", text, re.M)


def number(text, name):
    found = define(text, name)
    return int(found[1] or found[2])


def frozen_ids(include):
    """Id -> header. Extensions of a host are those of host.h."""
    return {m[1]: header.name for header in sorted(include.glob("*.h"))
            for m in re.finditer(r'^#define OCTAVO_\w+_ID "(octavo\.\S+)"', header.read_text(), re.M)}


def table_of(binary, include):
    abi, entry = (include / "abi.h").read_text(), (include / "plugin.h").read_text()
    silent = ctypes.cast(ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None), ctypes.c_void_p)
    host = Host(ctypes.sizeof(Host), number(abi, "OCTAVO_KIND_HOST"), number(abi, "OCTAVO_ABI_MAJOR"),
                number(abi, "OCTAVO_ABI_MINOR"), None, silent, silent)
    plugin = ctypes.POINTER(Plugin)()
    query = getattr(ctypes.CDLL(str(binary)), define(entry, "OCTAVO_PLUGIN_SYMBOL")[1].strip('"'))
    if query(ctypes.byref(host), ctypes.byref(plugin)) != 0:
        sys.exit(f"{binary}: its entry refuses")
    table_of.kept = getattr(table_of, "kept", []) + [host]
    return plugin.contents


def main(snapshot):
    if platform.machine() != "x86_64":
        print("SKIPPED: these binaries of snapshots are for x86_64, this is", platform.machine())
        return 77
    include, golden, wrong = snapshot / "include/octavo", snapshot / "golden", 0
    plugins = {b: table_of(b, include) for b in sorted(golden.glob("*/*.so"))}
    hosts = [p for p in golden.iterdir() if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    for name, header in [*frozen_ids(include).items(), ("octavo.never/1", None)]:
        if header == "host.h":
            found = [p.name for p in hosts if name.encode() + b"\0" in p.read_bytes()]
        else:
            found = [b.name for b, p in plugins.items() if p.get_interface(Text(name.encode(), len(name)))]
        print(f"{name}: {' '.join(found) or 'no binary'}")
        wrong += bool(found) != bool(header)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1])))

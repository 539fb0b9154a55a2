"""The ctypes structs and constants of octavo/_abi.py are those of the C headers."""
import ctypes
import pathlib
import re

from octavo import _abi

TABLES = [pathlib.Path(__file__).parents[2] / "abi" / name for name in ("layout_v1.inc", "layout_draft.inc")]
ROWS = [re.match(r"(\w+)\((.*)\)", line).groups() for table in TABLES for line in table.read_text().splitlines()
        if re.match(r"[A-Z]+\(", line)]


def rows(kind, count):
    return [[a.strip() for a in arguments.split(",", count - 1)]
            for name, arguments in ROWS if name == kind]


def test_sizes_are_those_of_the_headers():
    sizes = {r[0]: int(r[1]) for r in rows("FROZEN", 3) + rows("GROWABLE", 4)}
    assert {n: ctypes.sizeof(s) for n, s in _abi.STRUCTS.items()} == {n: sizes[n]
                                                                    for n in _abi.STRUCTS}


def test_fields_are_those_of_the_headers():
    for name, struct in _abi.STRUCTS.items():
        expected = [(f, int(o), int(b)) for s, f, o, b, _ in rows("FIELD", 5) if s == name]
        found = [(f, getattr(struct, f).offset, getattr(struct, f).size) for f, _ in struct._fields_]
        assert found == expected, name


def test_constants_are_those_of_the_headers():
    values = {n: int(v) for n, v in rows("VALUE", 2)}
    prefixes = ("KIND_", "VALUE_", "DEVICE_", "PARAMETER_", "OWNER_", "VERB_", "ACCESS_",
                "COMBINE_", "SLOT_", "GRADIENT_", "LINEAR_", "FORWARD_", "BACKWARD_", "ROLE_",
                "SEVERITY_")
    plain = ("NONE", "DECLINE", "ABI_MAJOR", "I32", "U8", "F16", "F32", "BF16", "E4M3FN", "E5M2",
             "E8M0FNU")
    ours = {n: v for n, v in vars(_abi).items() if n.startswith(prefixes) or n in plain}
    assert len(ours) > 60
    assert {n: values[f"OCTAVO_{n}"] for n in ours} == ours


def test_extent_is_the_formula_of_the_header():
    extent = _abi.Extent(16, 3, 5)
    assert [extent.bytes(m) for m in (0, 1, 16, 17)] == [5, 53, 53, 101]

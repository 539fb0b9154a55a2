"""Builds a library whose debug information describes the whole ABI, for tools that read DWARF.

  witness.py <include dir> <output.so> [C compiler]

A plugin's one symbol says nothing about the tables behind it. So the witness exports one function for
every struct, which takes a pointer to it, and one variable for every function of octavo.h, of its
type. Values of enumerations and macros are in the table of abi_table.py, not here.
"""
import pathlib
import subprocess
import sys
import tempfile

import abi_table


def source(include):
    lines = ["/* The whole ABI, for its debug information. */", *abi_table.includes(include)]
    for row in abi_table.parse(include):
        if row[0] in ("GROWABLE", "FROZEN"):
            lines.append(f"OCTAVO_EXPORT void witness_{row[1]}(const {row[1]} *p);\n"
                         f"void witness_{row[1]}(const {row[1]} *p) {{ (void)p; }}")
        elif row[0] == "DECLARATION" and not row[2].startswith("typedef"):
            lines.append(f"OCTAVO_EXPORT __typeof__(&{row[1]}) witness_{row[1]};\n"
                         f"__typeof__(&{row[1]}) witness_{row[1]} = 0;")
    return "\n".join(lines) + "\n"


def build(include, output, compiler="gcc"):
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "witness.c")
        file.write_text(source(include))
        subprocess.run([compiler, "-std=gnu11", "-g", "-O0", "-fPIC", "-shared",
                        "-fvisibility=hidden", f"-I{include}", file, "-o", output], check=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    build(*sys.argv[1:])

"""Keeps layout_v1.inc, the committed table of the ABI, complete and equal to the headers' text.

The table is the promise: `check` never changes it. Run `write` only when the ABI is meant to change,
and read the difference: a line that changes or goes away breaks every plugin that exists.

  abi_table.py check <include dir> <table>            names, order, declarations
  abi_table.py write <include dir> <table> <C compiler>   writes the table anew, with found numbers
"""
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

BANNER = """\
/* layout_v1.inc: the ABI of major 1, one line a struct, field, value and function.
 *
 * Written by abi_table.py and then frozen: a released line never changes, new ones are added.
 *   FROZEN(struct, size, alignment)           never grows; may stand in arrays
 *   GROWABLE(struct, size, alignment, kind)   starts with size and kind
 *   FIELD(struct, field, offset, size, declaration)
 *   VALUE(name, value)   TEXT(name, text)   DECLARATION(name, declaration)
 */
"""
# Change with every release or every minor, so they are no promise.
NOT_FROZEN = {"OCTAVO_VERSION_MAJOR", "OCTAVO_VERSION_MINOR", "OCTAVO_VERSION_PATCH",
              "OCTAVO_ABI_MINOR", "OCTAVO_ABI_HEADERS"}
HEADER_OF_HASH = "octavo/abi.h"
# Macros that expand to attributes and keywords, not to values.
NOT_VALUES = {"OCTAVO_EXTERN_C", "OCTAVO_EXPORT"}


def normal(declaration):
    """One spelling for a declaration, whatever its line breaks were."""
    text = re.sub(r"\bOCTAVO_(THREAD|PHASE)_\w+", "", declaration)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*([(),\[\]])\s*", r"\1", text).replace(",", ", ")
    return re.sub(r"\s*\*\s*", " *", text).replace("( *", "(*").replace("* *", "**")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def parse(include_dir):
    """Every promise that the headers make, as table rows without numbers, in order of appearance."""
    rows = []
    for header in sorted(pathlib.Path(include_dir, "octavo").glob("*.h")):
        text = without_comments(header.read_text()).replace("\\\n", " ")
        for name, value in re.findall(r"^[ ]*#define (OCTAVO_\w+) +(\S.*)$", text, re.M):
            if name in NOT_FROZEN or name in NOT_VALUES:
                continue
            rows.append(("TEXT" if value.startswith('"') else "VALUE", name))
        code = re.sub(r"^[ ]*#.*$", "", text, flags=re.M)
        for body in re.findall(r"\benum\s*\{(.*?)\}\s*;", code, re.S):
            rows += [("VALUE", e.split("=")[0].strip()) for e in body.split(",") if e.strip()]
        for name, body in re.findall(r"\bstruct\s+(octavo_\w+)\s*\{(.*?)\}\s*(?:octavo_\w+)?\s*;",
                                     code, re.S):
            fields = [normal(f) for f in body.split(";") if f.strip()]
            growable = fields[:2] == ["uint32_t size", "uint32_t kind"]
            rows.append(("GROWABLE" if growable else "FROZEN", name))
            for field in fields:
                match = re.search(r"\(\*(\w+)\)", field) or re.search(r"(\w+)(\[\w+\])?$", field)
                rows.append(("FIELD", name, match.group(1), field))
        for function in re.findall(r"\bOCTAVO_EXPORT\b([^;{]*);", code):
            name = re.search(r"\b(octavo_\w+)\s*\(", function).group(1)
            rows.append(("DECLARATION", name, normal(function)))
        for typedef in re.findall(r"\b(typedef[^;{]*);", code):
            if not re.match(r"typedef\s+struct\b", typedef):
                name = (re.search(r"\(\*(\w+)\)", typedef) or re.search(r"(\w+)$", typedef)).group(1)
                rows.append(("DECLARATION", name, normal(typedef)))
    return rows


def key(row):
    """What identifies a row: everything but numbers that only a compiler knows."""
    return row if row[0] in ("FIELD", "DECLARATION") else row[:2]


def read_table(path):
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        match = re.match(r'(\w+)\((\w+)(?:, (\w+), \d+, \d+)?(?:, "(.*)")?', line)
        if not match or line.startswith(" *"):
            continue
        macro, name, field, declaration = match.groups()
        if macro == "FIELD":
            rows.append((macro, name, field, declaration))
        elif macro == "DECLARATION":
            rows.append((macro, name, declaration))
        else:
            rows.append((macro, name))
    return rows


def declarations_hash(table):
    """The eight digits of OCTAVO_ABI_HEADERS: a hash of every line of the table."""
    rows = re.findall(r"^[A-Z]+\(.*$", pathlib.Path(table).read_text(), re.M)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:8]


def check(include_dir, table):
    declared, committed = [key(r) for r in parse(include_dir)], read_table(table)
    faults = [f"the table promises {' '.join(r)}, the headers no longer say so"
              for r in committed if r not in declared]
    faults += [f"the headers declare {' '.join(r)}, the table does not have it"
               for r in declared if r not in committed]
    wanted = declarations_hash(table)
    header = pathlib.Path(include_dir, HEADER_OF_HASH).read_text()
    if not re.search(rf'#define OCTAVO_ABI_HEADERS "\w+-{wanted}"', header):
        faults.append(f"OCTAVO_ABI_HEADERS has other digits than {wanted}, the hash of the table")
    entry = pathlib.Path(include_dir, "octavo/plugin.h").read_text()
    candidate = re.search(r'#define OCTAVO_ABI_HEADERS "(\w+)-', header)
    if not candidate or f'"octavo_plugin_query_{candidate[1]}"' not in entry:
        faults.append("OCTAVO_ABI_HEADERS and OCTAVO_PLUGIN_SYMBOL name different candidates")
    if not faults and declared != committed:
        faults = ["headers and table have the same lines in different order"]
    for fault in faults:
        print(f"{table}: {fault}")
    if faults:
        print("A change that is meant is written with abi_table.py write; see CONTRIBUTING.md.")
        return 1
    if len(declared) < 300:  # a parser that finds nothing would agree with an empty table
        print(f"only {len(declared)} declarations found in {include_dir}; the parser is broken")
        return 1
    print(f"{len(declared)} declarations agree")
    return 0


def printer(rows):
    """A C program that prints the table, because only the compiler knows sizes and offsets."""
    kinds = {r[1] for r in rows if r[1].startswith("OCTAVO_KIND_")}
    lines = ['#include <stdio.h>', '#include "octavo/draft.h"', '#include "octavo/octavo.h"', "int main(void) {"]
    for row in rows:
        macro, name = row[:2]
        if macro == "VALUE":
            lines.append(f'printf("VALUE({name}, %lld)\\n", (long long){name});')
        elif macro == "TEXT":
            lines.append(f'printf("TEXT({name}, \\"%s\\")\\n", {name});')
        elif macro == "FIELD":
            lines.append(f'printf("FIELD({name}, {row[2]}, %zu, %zu, \\"{row[3]}\\")\\n", '
                         f"offsetof({name}, {row[2]}), sizeof((({name} *)0)->{row[2]}));")
        elif macro == "DECLARATION":
            lines.append(f'puts("DECLARATION({name}, \\"{row[2]}\\")");')
        else:
            kind = "OCTAVO_KIND_" + name[len("octavo_"):].upper()
            tail = f", {kind}" if macro == "GROWABLE" else ""
            if tail and kind not in kinds:
                sys.exit(f"{name} can grow, so abi.h needs {kind}")
            lines.append(f'printf("\\n{macro}({name}, %zu, %zu{tail})\\n", sizeof({name}), '
                         f"_Alignof({name}));")
    return "\n".join(lines + ["return 0;", "}"])


def write(include_dir, table, compiler):
    with tempfile.TemporaryDirectory() as directory:
        source, program = pathlib.Path(directory, "print.c"), pathlib.Path(directory, "print")
        source.write_text(printer(parse(include_dir)))
        subprocess.run([compiler, "-std=c11", f"-I{include_dir}", source, "-o", program], check=True)
        found = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    pathlib.Path(table).write_text(BANNER + found)
    header = pathlib.Path(include_dir, HEADER_OF_HASH)
    text = re.sub(r'("\w+-)[0-9a-f]{8}"', rf'\g<1>{declarations_hash(table)}"', header.read_text())
    header.write_text(text)
    return check(include_dir, table)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "check":
        sys.exit(check(*sys.argv[2:]))
    if len(sys.argv) == 5 and sys.argv[1] == "write":
        sys.exit(write(*sys.argv[2:]))
    sys.exit(__doc__)

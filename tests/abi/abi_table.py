"""Keeps layout_v1.inc and layout_draft.inc, the committed tables of the ABI and of its provisional part,
complete and equal to the headers' text.

The first table is the promise: `check` never changes it. Run `write` only when the ABI is meant to change,
and read the difference: a line that changes or goes away breaks every plugin that exists. The second is
written next to it. A struct of octavo/draft that changes gets a new number as its kind: each number that
was ever given out stays in the file draft_kinds, with a hash of what it stands for.

  abi_table.py check <include dir> <table>            names, order, declarations
  abi_table.py write <include dir> <table> <C compiler>   writes the tables anew, with found numbers
"""
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

BANNER = """\
/* {name}: {what}, one line a struct, field, value and function.
 *
 * Written by abi_table.py{then}.
 *   FROZEN(struct, size, alignment)           never grows; may stand in arrays
 *   GROWABLE(struct, size, alignment, kind)   starts with size and kind
 *   FIELD(struct, field, offset, size, declaration)
 *   VALUE(name, value)   TEXT(name, text)   DECLARATION(name, declaration)
 */
"""
FROZEN, DRAFT = "octavo", "octavo/draft"
WORDS = {FROZEN: ("the ABI of major 1", " and then frozen: a released line never changes, new ones are added"),
         DRAFT: ("the provisional part of the ABI", "; a struct that changes gets another kind")}
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


def parse(include_dir, part=FROZEN):
    """Every promise that the headers make, as table rows without numbers, in order of appearance."""
    rows = []
    for header in sorted(pathlib.Path(include_dir, part).glob("*.h")):
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


def draft_kinds(table):
    """Kind -> (struct, hash of its lines), of each struct of a table of octavo/draft that can grow."""
    text, found = pathlib.Path(table).read_text(), {}
    for name, size, kind in re.findall(r"^GROWABLE\((\w+), (\d+), \d+, (\w+)\)$", text, re.M):
        number = int(re.search(rf"^VALUE\({kind}, (\d+)\)$", text, re.M)[1])
        lines = re.findall(rf"^FIELD\({name}, .*$", text, re.M)
        found[number] = name, hashlib.sha256("\n".join([size] + lines).encode()).hexdigest()[:8]
    return found


def read_kinds(path):
    if not path.is_file():
        return {}
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {int(number, 0): (name, digest) for number, name, digest in lines}


def check_drafts(include_dir, folder):
    """Faults of the table of octavo/draft and of the numbers of its structs."""
    table, given = folder / "layout_draft.inc", read_kinds(folder / "draft_kinds")
    if [key(r) for r in parse(include_dir, DRAFT)] != read_table(table):
        return [f"{table.name} and the headers of octavo/draft differ"]
    faults = []
    for number, (name, digest) in draft_kinds(table).items():
        if number < 0x8000:
            faults.append(f"{name}: expected a kind from 0x8000 on, found {number:#x}")
        elif number not in given:
            faults.append(f"{name}: its kind {number:#x} is not in draft_kinds")
        elif given[number] != (name, digest):
            faults.append(f"{name} has changed, or {number:#x} was {given[number][0]}'s: a draft that changes "
                          "gets a new number")
    return faults


def write_drafts(include_dir, folder, compiler):
    table, kinds = folder / "layout_draft.inc", folder / "draft_kinds"
    table.write_text(banner(DRAFT, table) + numbers(parse(include_dir, DRAFT), include_dir, compiler))
    given = read_kinds(kinds)
    with kinds.open("a") as file:
        for number, (name, digest) in sorted(draft_kinds(table).items()):
            if number not in given:
                file.write(f"{number:#x} {name} {digest}\n")


def check_nodes(include_dir, script, candidate):
    """Faults of the version nodes of liboctavo's functions: a minor's node has those that it brought."""
    def declared(part):
        return {row[1] for row in parse(include_dir, part) if row[0] == "DECLARATION" and row[1] in functions}
    functions = set(re.findall(r"OCTAVO_EXPORT[^;{]*?\b(octavo_\w+)\s*\(", "".join(
        without_comments(h.read_text()) for h in pathlib.Path(include_dir, "octavo").rglob("*.h"))))
    header = pathlib.Path(include_dir, HEADER_OF_HASH).read_text()
    version = ".".join(re.search(rf"#define OCTAVO_ABI_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    found = {name: set(re.findall(r"\b(octavo_\w+);", body))
             for name, body in re.findall(r"^(\w[\w.]*) \{(.*?)^\}", without_comments(script.read_text()), re.S | re.M)}
    newest, drafts = f"OCTAVO_{version}{f'_{candidate}' if candidate else ''}", found.pop("OCTAVO_DRAFT", set())
    faults = [] if newest in found else [f"expected the node {newest}, found {', '.join(found)}"]
    frozen = set().union(*found.values())
    frozen_declared = declared(FROZEN) - {"octavo_plugin_query_1"}
    faults += [f"{name}: expected it in a node, once" for name in sorted(frozen_declared ^ frozen)]
    faults += [f"{name}: expected it in OCTAVO_DRAFT, where the drafts are" for name in sorted(declared(DRAFT) ^ drafts)]
    return [f"{script.name}: {fault}" for fault in faults]


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
    script = pathlib.Path(include_dir).parent / "src/api/octavo_exports.map"
    if script.is_file():
        faults += check_nodes(include_dir, script, candidate and candidate[1])
    if not faults and declared != committed:
        faults = ["headers and table have the same lines in different order"]
    if pathlib.Path(include_dir, DRAFT).is_dir():  # older headers have none
        faults += check_drafts(include_dir, pathlib.Path(table).parent)
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


def includes(include_dir):
    """The lines that include every header of the ABI."""
    folder = pathlib.Path(include_dir)
    headers = [*folder.glob("octavo/*.h"), *folder.glob("octavo/draft/*.h")]
    return [f'#include "{h.relative_to(folder)}"' for h in sorted(headers)]


def banner(part, table):
    what, then = WORDS[part]
    return BANNER.format(name=pathlib.Path(table).name, what=what, then=then)


def printer(rows, include_dir):
    """A C program that prints the table, because only the compiler knows sizes and offsets."""
    kinds = {r[1] for r in rows if r[1].startswith("OCTAVO_KIND_")}
    lines = ["#include <stdio.h>", *includes(include_dir), "int main(void) {"]
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


def numbers(rows, include_dir, compiler):
    """The rows as lines of a table."""
    with tempfile.TemporaryDirectory() as directory:
        source, program = pathlib.Path(directory, "print.c"), pathlib.Path(directory, "print")
        source.write_text(printer(rows, include_dir))
        subprocess.run([compiler, "-std=c11", f"-I{include_dir}", source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def write(include_dir, table, compiler):
    pathlib.Path(table).write_text(banner(FROZEN, table) + numbers(parse(include_dir), include_dir, compiler))
    if pathlib.Path(include_dir, DRAFT).is_dir():
        write_drafts(include_dir, pathlib.Path(table).parent, compiler)
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

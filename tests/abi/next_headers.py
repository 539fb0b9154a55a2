"""Writes the headers of an imaginary next minor: today's, with one thing more in each place that may grow.

  next_headers.py <include dir> <output include dir>

Every struct that can grow gets the field next_value, or the function next_function where it is a
table; there is one new role, flag of a slot, way to combine, way to shard, kind of owner, flag of a plan and
dtype, one new interface id with its table, and the minor is one higher. What is provisional stays as it is. A
program built with them is "new" for everything that exists, so both sides' checks of sizes are used
before a real minor needs them.
"""
import pathlib
import re
import shutil
import sys

import abi_table

FIELD = "  uint64_t next_value;\n"
FUNCTION = "  octavo_status (*next_function)(uint64_t *out);\n"
ADDITIONS = """
#define OCTAVO_NEXT_ID "octavo.next/1"
#define OCTAVO_NEXT_MARK UINT64_C(0x7478656e)
"""
INTERFACE = """
typedef struct octavo_next {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_NEXT */
  octavo_status (*answer)(uint64_t *out);
} octavo_next;

#endif
"""


def growing(rows):
    """Struct -> whether it is a table: nothing but functions behind size and kind."""
    structs = {row[1]: [] for row in rows if row[0] == "GROWABLE"}
    for row in rows:
        if row[0] == "FIELD" and row[1] in structs:
            structs[row[1]].append(row[3])
    return {name: all("(*" in f for f in fields[2:]) for name, fields in structs.items()}


def one_more(text, prefix, name, flag=False):
    """Appends an enumerator behind the highest of those with this prefix: the next number or the next bit."""
    values = [(int(m[2]), m) for m in re.finditer(rf"\b({prefix}\w+) = (\d+)(?=,|\s)", text)]
    highest, last = max(values, key=lambda v: v[0])
    return f"{text[:last.end()]},\n  {prefix}{name} = {highest * 2 if flag else highest + 1}{text[last.end():]}"


def grow(text, structs):
    """The header with one field more in each of these structs, and the number of them found."""
    found = 0

    def longer(match):
        nonlocal found
        if match[1] not in structs:
            return match[0]
        found += 1
        return match[0][:match[0].rindex("\n}") + 1] + (FUNCTION if structs[match[1]] else FIELD) + \
            match[0][match[0].rindex("\n}") + 1:]
    text = re.sub(r"^(?:typedef )?struct (octavo_\w+) \{.*?^\}[^\n]*;", longer, text,
                  flags=re.M | re.S)
    return text, found


def main(include, output):
    structs = growing(abi_table.parse(include))
    target = pathlib.Path(output, "octavo")
    target.mkdir(parents=True, exist_ok=True)
    total = 0
    for header in sorted(pathlib.Path(include, "octavo").glob("*.h")):
        text, found = grow(header.read_text(), structs)
        total += found
        if header.name == "abi.h":
            minor = re.search(r"#define OCTAVO_ABI_MINOR (\d+)", text)
            text = text.replace(minor[0], f"#define OCTAVO_ABI_MINOR {int(minor[1]) + 1}" + ADDITIONS)
            text = one_more(text, "OCTAVO_KIND_", "NEXT")
        if header.name == "slots.h":
            for prefix in ("OCTAVO_ROLE_", "OCTAVO_COMBINE_", "OCTAVO_SHARD_", "OCTAVO_OWNER_"):
                text = one_more(text, prefix, "NEXT")
            text = one_more(text, "OCTAVO_SLOT_", "NEXT", flag=True)
        if header.name == "tensor.h":
            text = text.replace("#define OCTAVO_I32 ", "#define OCTAVO_NEXT_DTYPE 0x0420u\n#define OCTAVO_I32 ")
        if header.name == "backend.h":
            text = one_more(text, "OCTAVO_LINEAR_", "NEXT", flag=True)
            text = text[:text.rindex("#endif")].rstrip() + "\n" + INTERFACE
        (target / header.name).write_text(text)
    shutil.copytree(pathlib.Path(include, "octavo/draft"), target / "draft", dirs_exist_ok=True)
    if total != len(structs):
        sys.exit(f"{include}: {len(structs)} structs can grow, {total} were found to be written; "
                 "grow() does not understand how one of them is laid out")
    print(f"{total} structs grown in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

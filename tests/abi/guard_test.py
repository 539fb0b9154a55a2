"""guard.py on headers that were altered: each change must be found, and by both witnesses where they can.

  guard_test.py <snapshot dir> <C compiler>

The snapshot's own headers are altered one way at a time and compared with the snapshot. Exits with 77
where abidiff is not installed, after the comparison of tables.
"""
import contextlib
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

import abi_table

GUARD = pathlib.Path(__file__).with_name("guard.py")
TABLES, ABIDIFF = "breaks: ", "[abidiff]"
# name -> header, old text, new text, who must find it, what must be named
CASES = {
    "nothing": ("abi.h", "", "", set(), None),
    "comment": ("abi.h", "UTF-8 text, not", "UTF-8 bytes, not", set(), None),
    "fields_swapped": ("backend.h", "  uint32_t weight; /* id of a LINEAR_WEIGHT; another one is answered with OCTAVO_INVALID */\n"
                       "  uint32_t flags;  /* 0 */\n", "  uint32_t flags;\n  uint32_t weight;\n",
                       {TABLES, ABIDIFF}, "octavo_linear_desc"),
    "type_changed": ("shard.h", "  uint64_t cast_workspace;", "  int64_t cast_workspace;",
                     {TABLES, ABIDIFF}, "octavo_shard_plan"),
    "type_narrowed": ("kernels.h", "  uint64_t length;  /* >= 1 */",
                      "  uint32_t length;  /* >= 1 */\n  uint32_t more;",
                      {TABLES, ABIDIFF}, "octavo_delayed_scale_update"),
    "function_removed": ("fused.h", "  octavo_status (*linear_forward)(const octavo_session *s, "
                         "const octavo_fused_forward_call *c)\n"
                         "      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;\n", "",
                         {TABLES, ABIDIFF}, "octavo_fused"),
    "parameter_changed": ("host.h", "void (*verdict)(void *ctx, const octavo_verdict *v);",
                          "void (*verdict)(void *ctx, const octavo_diagnostic *v);",
                          {TABLES, ABIDIFF}, "octavo_verdict_sink"),
    "field_inserted": ("host.h", "  octavo_str domain;", "  uint64_t more;\n  octavo_str domain;",
                       {TABLES, ABIDIFF}, "octavo_diagnostic"),
    "frozen_struct_grown": ("tensor.h", "  uint64_t fixed_bytes;", "  uint64_t fixed_bytes;\n"
                            "  uint64_t more;", {TABLES, ABIDIFF}, "octavo_extent"),
    "half_a_word_appended": ("prologue.h", "  float *rstd;", "  uint32_t more;\n  float *rstd;",
                             {TABLES, ABIDIFF}, "octavo_prologue"),
    "value_changed": ("slots.h", "OCTAVO_ROLE_OTHER = 13", "OCTAVO_ROLE_OTHER = 18", {TABLES},
                      "OCTAVO_ROLE_OTHER"),
    "id_changed": ("fused.h", 'ID "octavo.fused/1"', 'ID "octavo.fused/2"', {TABLES}, "OCTAVO_FUSED_ID"),
    "function_of_the_library_removed": (
        "octavo.h", "OCTAVO_EXPORT octavo_status octavo_store_extend(octavo_store *s);\n", "",
        {TABLES, ABIDIFF}, "octavo_store_extend"),
    "function_of_the_library_changed": (
        "octavo.h", "octavo_store_clear(octavo_store *s, uint32_t role);",
        "octavo_store_clear(octavo_store *s, uint64_t role);", {TABLES, ABIDIFF},
        "octavo_store_clear"),
    # What the rules allow: the tables are silent, and abidiff still wants an entry.
    "field_appended": ("shard.h", "} octavo_gathered_call;", "  uint64_t more;\n} octavo_gathered_call;",
                       {ABIDIFF}, "octavo_gathered_call"),
    "value_added": ("slots.h", "OCTAVO_ROLE_OTHER = 13,", "OCTAVO_ROLE_OTHER = 13,\n"
                    "  OCTAVO_ROLE_MORE = 18,", set(), None),
    "struct_added": ("rules.h", "#endif", "typedef struct octavo_more {\n  uint64_t more;\n} "
                     "octavo_more;\n#endif", set(), None),
}


def run_guard(snapshot, include, table, approved, compiler):
    result = subprocess.run([sys.executable, GUARD, snapshot, include, table, "--approved", approved,
                             "--cc", compiler], capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def entry_of(said):
    """The entry that the guard proposes, with a reason."""
    lines = said.split("this is its entry:\n", 1)[1].splitlines()
    end = next((i for i, line in enumerate(lines) if i > 0 and not line.startswith("  ")), len(lines))
    return "\n".join(lines[:end]).replace("<reason>", "a test") + "\n"


def try_case(name, case, snapshot, compiler, has_abidiff, directory):
    header, old, new, finders, subject = case
    include, table = directory / "include", directory / "layout.inc"
    shutil.copytree(snapshot / "include", include)
    file = include / "octavo" / header
    text = file.read_text()
    if old not in text:
        return [f"{name}: {header} no longer has '{old}'; adapt the case"]
    # The last #endif of a file is the guard's.
    where = text.rindex(old) if old == "#endif" else text.index(old)
    file.write_text(text[:where] + new + text[where + len(old):])
    with contextlib.redirect_stdout(io.StringIO()):
        abi_table.write(include, table, compiler)
    approved = directory / "approved"
    approved.write_text("# none\n")
    code, said = run_guard(snapshot, include, table, approved, compiler)
    finders = finders if has_abidiff else finders - {ABIDIFF}
    passed = 0 if has_abidiff else 77
    if not finders:
        return [] if code == passed else [f"{name}: expected no change, found {code}: {said}"]
    if code != 1 or f"{subject}: changed" not in said:
        return [f"{name}: expected a change of {subject}, found {code}: {said}"]
    entry = entry_of(said)
    by_tables = "  breaks: " in entry
    by_abidiff = any(line.startswith("  ") and not line.startswith("  breaks: ")
                     for line in entry.splitlines())
    if by_tables != (TABLES in finders) or by_abidiff != (ABIDIFF in finders):
        return [f"{name}: expected {sorted(finders)} to find it, found {entry}"]
    return try_entries(name, entry, said.count("this is its entry"), snapshot, include, table,
                       approved, compiler, passed)


def try_entries(name, entry, changes, snapshot, include, table, approved, compiler, passed):
    """The proposed entry lets the change pass; one line less, and an entry too many, do not."""
    if changes != 1:
        return []  # one change that shows in several places; what follows is tried by the others
    approved.write_text(entry)
    code, said = run_guard(snapshot, include, table, approved, compiler)
    if code != passed:
        return [f"{name}: expected its entry to approve it, found {code}: {said}"]
    if name != "type_changed":
        return []
    approved.write_text(entry + "octavo_nothing: a test\n  breaks: nothing\n")
    code, said = run_guard(snapshot, include, table, approved, compiler)
    if code != 1 or "octavo_nothing has not changed; remove the entry" not in said:
        return [f"{name}: expected the unused entry to be refused, found {code}: {said}"]
    released = include.parent / "v1"
    shutil.copytree(snapshot, released, ignore=shutil.ignore_patterns("golden"))
    approved.write_text(entry)
    code, said = run_guard(released, include, table, approved, compiler)
    if code != 1 or "a change that breaks v1 cannot be approved" not in said:
        return [f"{name}: expected no entry to approve a break of a release, found {code}: {said}"]
    approved.write_text("\n".join(entry.splitlines()[:-1]) + "\n")
    code, said = run_guard(snapshot, include, table, approved, compiler)
    if code != 1 or "approves another change" not in said:
        return [f"{name}: expected the shortened entry to be refused, found {code}: {said}"]
    return []


# Old text, new text of octavo/draft/rounding.h, and what the check of its table says.
DRAFTS = (("", "", None),
          ("  float *count;\n", "  double *count;\n", "octavo_count has changed, or 0x8003 was octavo_count's: a draft"),
          ("KIND_COUNT 0x8003u", "KIND_COUNT 0x8001u", "octavo_count has changed, or 0x8001 was octavo_adam_rounded's"),
          ("KIND_COUNT 0x8003u", "KIND_COUNT 0x7000u", "octavo_count: expected a kind from 0x8000 on, found 0x7000"))


def try_drafts(compiler):
    """A struct of octavo/draft that changed under its number, or took another one's."""
    wrong = []
    for old, new, words in DRAFTS:
        with tempfile.TemporaryDirectory() as directory:
            include, folder = pathlib.Path(directory, "include"), pathlib.Path(directory)
            shutil.copytree(GUARD.parents[2] / "sdk/include", include)
            shutil.copy(GUARD.with_name("draft_kinds"), folder)
            header = include / "octavo/draft/rounding.h"
            header.write_text(header.read_text().replace(old, new))
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                code = abi_table.write(include, folder / "layout_v1.inc", compiler)
            if code != (words is not None) or (words or "") not in said.getvalue():
                wrong.append(f"draft {new!r}: expected {words!r}, found {code}: {said.getvalue()}")
    return wrong


def main(snapshot, compiler):
    has_abidiff = shutil.which("abidiff") is not None
    wrong = []
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            wrong += try_case(name, case, pathlib.Path(snapshot), compiler, has_abidiff,
                              pathlib.Path(directory))
    wrong += try_drafts(compiler)
    print("\n".join(wrong) or f"{len(CASES) + len(DRAFTS)} altered headers judged rightly")
    if not has_abidiff:
        print("SKIPPED: abidiff is not installed, so only the tables were tried "
              "(apt-get install abigail-tools)")
    return 1 if wrong else 0 if has_abidiff else 77


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

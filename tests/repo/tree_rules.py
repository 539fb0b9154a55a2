"""What the tree as a whole keeps to: its folders, the length of files and samples, their first comment.

  tree_rules.py <root>
  tree_rules.py --self-test
"""
import collections
import pathlib
import re
import tempfile

import tree

FOLDERS = {"sdk", "plugins", "host_adapters", "kernels", "samples", "tests", "docs"}
SOURCES = tree.C_SUFFIXES | {".py", ".rs", ".sh", ".cmake"}
MAX_LINES = 500
# A sample is read from its first line to its last one.
MAX_SAMPLE_LINES = 3500
# file -> why one idea needs more lines
LONG_FILES = {
    "sdk/include/octavo/kernels.h": "one table with its call structs, which readers compare",
    "tests/clean_room/backend/backend.c": "a whole plugin, as its author wrote it",
    "tests/abi/layout_v1.inc": "a table, one line a promise of the ABI",
}
# Frozen copies are as long as what they were made of.
FROZEN = re.compile(r"tests/abi/v\d+(_\w+)?/")
# Spelt apart, so that this file does not name itself.
FORBIDDEN = {
    "TO" + "DO": re.compile(r"\bTO" + r"DO\b"),
    "FIX" + "ME": re.compile(r"\bFIX" + r"ME\b"),
    "a path of one machine": re.compile(r"(?<![\w.$}>/])/(work|root|home/\w+|Users/\w+)/\w"),
}


# Commands of octavo print by say, which escapes what files and plugins say; these print none of it.
PRINTS = re.compile(r"std::(printf|puts|fputs|fputc|putchar|fwrite|fprintf|cout|cerr)\b")
RAW_PRINTS = {
    "sdk/cli/common.cpp": "holds say",
    "sdk/cli/main.cpp": "has no memory left",
    "sdk/cli/man.cpp": "writes manual pages of its own words",
    "sdk/cli/wizard/menu.cpp": "moves the cursor; its rows are escaped before",
}

# Reports are for people, and their words change. A program that asks for one in a format of its own choice, and
# does not print it, means to read it: octavo_settings, octavo_run_setting, octavo_run_option, octavo_run_plugin,
# octavo_run_slot_key and octavo_run_session_desc have the same as values.
REPORT = re.compile(r"\b(?:octavo_)?(?:report|explain|list|list_plugins|probe|check_config|schema)\s*[(,][^;{}\"']{0,120}?"
                    r"(?<![=] )(?<!=)[\"'](?:text|tree|json)[\"'][^;\n]*")
READS_CONFIG = re.compile(r"""find\(["']distributed|["']distributed["'] (?:not )?in """)
HOSTS = re.compile(r"(host_adapters|samples|sdk/cli|sdk/verify|sdk/page|sdk/include/octavo/hpp/host)/")
READS_REPORTS = {
    "host_adapters/python/octavo/torch/report.py": "lays the JSON out as text, HTML and data, and decides nothing by it",
    "sdk/cli/abilities.cpp": "prints what explain has about each device's kernels, as docs/kernels.schema.json has it",
    "sdk/cli/common.cpp": "octavo plugin list --json, as docs/list.schema.json has it, for commands that go through all plugins",
    "sdk/cli/doctor/examine.cpp": "one page of what explain, probe and list print, as docs/*.schema.json have it",
    "sdk/cli/wizard/wizard.cpp": "shows the refusal and some lines of explain, and takes no value from them",
}


# Where the program has its earlier commands, which no page, message or script may name.
FORMER_COMMANDS = "sdk/cli/main.cpp"


def former_command(root):
    """A pattern of a text that tells somebody to call a command of before; None for a tree without the program."""
    path = pathlib.Path(root) / FORMER_COMMANDS
    if not path.is_file():
        return None
    names = re.findall(r'\{"([^"]+)", "[^"]+"\},', path.read_text())
    return re.compile(r"(?:`|\brun |\$ |^)octavo (" + "|".join(map(re.escape, names)) + r")(?![\w-])(?! import)", re.MULTILINE)


def reads_of_reports(text):
    """The lines at which a text asks for a report that it does not print."""
    found = [match for match in REPORT.finditer(text) if "print" not in match.group()]
    return [text.count("\n", 0, match.start()) + 1 for match in (*found, *READS_CONFIG.finditer(text))]


def is_text(root, path):
    with open(pathlib.Path(root) / path, "rb") as file:
        return b"\0" not in file.read(4096)


def check(root):
    faults, samples, former = [], collections.Counter(), former_command(root)
    for path in tree.files(root):
        top = path.parts[0]
        if len(path.parts) > 1 and not top.startswith(".") and top not in FOLDERS:
            faults.append(f"{path}: expected a top-level folder of {', '.join(sorted(FOLDERS))}")
        if path.name == "LICENSE" or not is_text(root, path):
            continue
        lines = tree.text(root, path).splitlines()
        if top == "samples" and len(path.parts) > 2:
            samples["/".join(path.parts[:2])] += len(lines)
        if former and top != "tests" and str(path) not in ("CHANGELOG.md", FORMER_COMMANDS):
            for number, line in enumerate(lines, 1):
                if found := former.search(line):
                    faults.append(f"{path}:{number}: names octavo {found[1]}, a command of before; {FORMER_COMMANDS} has the one now")
        for what, pattern in FORBIDDEN.items():
            for number, line in enumerate(lines, 1):
                if pattern.search(line):
                    faults.append(f"{path}:{number}: contains {what}; finish it or say it otherwise")
        if path.parts[:2] == ("sdk", "cli") and str(path) not in RAW_PRINTS:
            for number, line in enumerate(lines, 1):
                if PRINTS.search(line):
                    faults.append(f"{path}:{number}: prints by itself; say, say_error and put_json of common.h "
                                  "escape what a terminal would obey")
        if path.suffix in SOURCES and HOSTS.match(str(path)) and str(path) not in READS_REPORTS:
            for number in reads_of_reports(tree.text(root, path)):
                faults.append(f"{path}:{number}: reads a report or the text of a configuration; ask octavo_settings, "
                              "octavo_run_setting, octavo_run_option, octavo_run_plugin or octavo_run_slot_key")
        if path.suffix in SOURCES and len(lines) > MAX_LINES and not (
                str(path) in LONG_FILES or FROZEN.match(str(path))):
            faults.append(f"{path}: has {len(lines)} lines, expected at most {MAX_LINES}; split it "
                          "by topic, or give the reason in LONG_FILES of tests/repo/tree_rules.py")
        if path.suffix in tree.C_SUFFIXES | {".rs"}:
            first = next((line for line in lines if line.strip()), "")
            if not first.startswith(("/*", "//")):
                faults.append(f"{path}: expected a comment first, one sentence of purpose, found "
                              f"'{first[:40]}'")
    for sample, count in sorted(samples.items()):
        if count > MAX_SAMPLE_LINES:
            faults.append(f"{sample}: has {count} lines, expected at most {MAX_SAMPLE_LINES}; what other programs also "
                          "need is a library, what only tests need is in tests/")
    for table, names in {"LONG_FILES": LONG_FILES, "READS_REPORTS": READS_REPORTS}.items():
        for name in names:
            if not (pathlib.Path(root) / name).is_file():
                faults.append(f"{table} names {name}, which does not exist")
    return faults


def self_test():
    planted = {
        "tools/x.py": ("", "expected a top-level folder"),
        "sdk/src/long.cpp": ("// Long.\n" * (MAX_LINES + 1), "expected at most 500"),
        "sdk/rust/long.rs": ("//! Long.\n" * (MAX_LINES + 1), "expected at most 500"),
        "sdk/rust/bare.rs": ("use std::mem;\n", "expected a comment first"),
        "sdk/rust/fine.rs": ("//! Fine.\n", None),
        "sdk/src/bare.c": ("\n#include <stdio.h>\n", "expected a comment first"),
        "sdk/src/later.c": ("/* Later. */\n// TO" "DO: more\n", "contains TO" "DO"),
        "sdk/cli/raw.cpp": ("// Raw.\nvoid f() { std::puts(text); }\n", "prints by itself"),
        FORMER_COMMANDS: ("// Main.\n    {\"explain\", \"check\"},\n    {\"config check\", \"check\"},\n", None),
        "docs/former.md": ("Run `octavo explain`.\n", "docs/former.md:1: names octavo explain"),
        "sdk/src/advises.cpp": ("// Advises.\nauto a = \"run octavo config check\";\n", "names octavo config check"),
        "docs/present.md": ("Run `octavo check`, or `octavo explain-all`.\n", None),
        "sdk/cli/said.cpp": ("// Said.\nvoid f() { say(\"%s\", text); }\n", None),
        "host_adapters/h/reads.py": ("x = json.loads(run.report(\"json\"))\n", "h/reads.py:1: reads a report"),
        "host_adapters/h/finds.cpp": ("// Finds.\nbool b = toml.find(\"distributed\") != npos;\n", "reads a report"),
        "host_adapters/h/shows.py": ("def report(format=\"text\"):\n    return run.report(format)\n", None),
        "samples/s/reads.cpp": ("// Reads.\nauto a = check_config(settings,\n  \"json\");\n", "reads a report"),
        "samples/s/prints.c": ("/* Prints. */\nint s = octavo_report(r, text(\"text\"), print_line, 0);\n", None),
        "samples/big/text.txt": ("A line.\n" * (MAX_SAMPLE_LINES + 1), None),
        "docs/place.md": ("run /ho" "me/someone/x\n", "a path of one machine"),
        "docs/fine.md": ("https://example.org/work/x and build/root/x and $HOME/root/x\n", None),
        "sdk/src/fine.c": ("/* Fine. */\nint octavo_x;\n", None),
        "tests/abi/layout_v1.inc": ("/* Table. */\n" * 500, None),
        "tests/abi/v1_rc4/include/octavo/kernels.h": ("/* Frozen. */\n" * 500, None),
    }
    with tempfile.TemporaryDirectory() as directory:
        for name, (content, _) in planted.items():
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        faults = check(directory)
    wrong = [] if any(f.startswith("samples/big: has 3501 lines, expected at most 3500") for f in faults) else [
        "samples/big: expected a fault for its lines, found none"]
    for name, (_, message) in planted.items():
        mine = [f for f in faults if f.startswith(f"{name}:")]
        if (message is None) != (not mine) or (message and message not in mine[0]):
            wrong.append(f"{name}: expected {message}, found {mine}")
    return tree.report(wrong, f"{len(planted)} planted files")


if __name__ == "__main__":
    tree.main(__doc__, check, self_test, "tree rules")

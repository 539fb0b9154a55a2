"""docs/config.md and the programs agree on every key, its values and its default.

  config_keys.py <octavo> <config.md> <backend>...
  config_keys.py --update <octavo> <config.md> <backend>...   writes values and defaults into the rows

What a key may be is asked for by giving it what it cannot be: the error names what was expected. The last
column, what a key means, is written by hand.
"""
import json
import pathlib
import re
import subprocess
import sys

ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| (.*?) \| (\S.*?) \| ([^|]+) \|$", re.M)
WRONG = {bool: "?", int: -10**15, float: -1.5, str: "?", list: "?"}
TYPES = {int: "whole number", float: "number", str: "text", list: "list of texts", bool: "`true`, `false`"}


def number(text):
    """1099511627776 -> 2^40, as people write it."""
    value = float(text)
    for less in (0, 1):
        power = int(value) + less
        if value >= 2**30 and value == int(value) and power & (power - 1) == 0:
            return f"2^{power.bit_length() - 1}" + (" - 1" if less else "")
    return str(int(value)) if value == int(value) and value < 1e15 else f"{value:g}".replace("e+", "e")


def values(key, kind, error):
    """The cell for a key of this type, from what was said against a wrong value of it, if anything was."""
    said = re.search(rf"{re.escape(key)}: expected (.*), found ", error)
    # Else a text in quotes is the value of another key, which this one needs.
    choices = re.findall(r'"([^"]+)"', said.group(1)) if said and said.group(1).startswith('"') else []
    between = re.match(r"(\S+) to (\S+)$", said.group(1)) if said else None
    if choices:
        listed = ", ".join(f'`"{c}"`' for c in choices)
        return f"list of {listed}" if kind is list else listed
    if between:
        return f"{number(between.group(1))} to {number(between.group(2))}"
    only = re.match(r"(\d+), the only one", said.group(1)) if said else None
    return only.group(1) if only else TYPES[kind]


class Program:
    def __init__(self, octavo):
        self.octavo = octavo

    def run(self, *arguments):
        return subprocess.run([self.octavo, *arguments], capture_output=True, text=True, check=False)

    def ask(self, *arguments):
        done = self.run(*arguments, "--json")
        if done.returncode != 0:
            sys.exit(f"octavo {' '.join(arguments)} failed: {done.stderr}")
        return json.loads(done.stdout)

    def keys(self, backends):
        """key -> (values, default), as the columns of the page."""
        found = {k: v["value"] for k, v in self.ask("config", "show")["settings"].items()}
        for backend in backends:
            options = self.ask("check", "--set", f"fp8.backend={backend}")["options"]
            found.update({f"fp8.{backend}.{k}": v["value"] for k, v in options.items()})
        return {key: (self.values(key, default), f"`{json.dumps(default)}`") for key, default in found.items()}

    def values(self, key, default):
        if isinstance(default, bool):
            return TYPES[bool]
        return values(key, type(default), self.run("config", "show", "--set", f"{key}={WRONG[type(default)]}").stderr)


def agrees(written, found):
    """Whether a cell says what the program does: a text may be described, and a switch have one position."""
    return written == found or (found == "text" and written.startswith("text:")) or (
        found == TYPES[bool] and written == "`false`")


def differences(page, code):
    """(what is wrong, the page with values and defaults put right)."""
    faults, seen = [], set()

    def right(match):
        key, written, default, meaning = match.groups()
        if key not in code:
            faults.append(f"{key}: in the page, but no program knows it")
            return match.group(0)
        seen.add(key)
        found, initial = code[key]
        if not agrees(written, found):
            faults.append(f"{key}: expected the values {found}, found {written}")
            written = found
        if default.strip("`") != initial.strip("`"):
            faults.append(f"{key}: expected the default {initial}, found {default}")
            default = initial
        return f"| `{key}` | {written} | {default} | {meaning} |"

    text = ROW.sub(right, page)
    return faults + [f"{key}: expected a row, found none" for key in code.keys() - seen], text


def self_test():
    said = {"x: expected \"a\", \"b\" or \"c\", found \"?\"": (str, '`"a"`, `"b"`, `"c"`'),
            "x: expected 0 to 1099511627776, found -1": (int, "0 to 2^40"),
            "x: expected 0 to 4294967295, found -1": (int, "0 to 2^32 - 1"),
            "x: expected 0.0 to 1e+38, found -1.5": (float, "0 to 1e38"),
            "x: expected y = \"a\", the only value that reads it, found \"b\"": (str, "text"),
            "x: expected 1, the only one that this version reads, found 2": (int, "1"),
            "y: expected \"a\" or \"b\", found \"?\"": (list, "list of texts"), "": (str, "text")}
    wrong = [error for error, (kind, cell) in said.items() if values("x", kind, error) != cell]
    page = "| `a` | 0 to 3 | 1 | one |\n| `b` | text | `\"\"` | two |\n| `gone` | text | 1 | three |\n"
    faults, text = differences(page, {"a": ("0 to 4", "`2`"), "b": ("text", '`""`'), "new": ("text", "`1`")})
    if len(faults) != 4 or "| `a` | 0 to 4 | `2` | one |" not in text:
        wrong.append(f"planted page: {faults}, {text}")
    sys.exit("\n".join(wrong) if wrong else 0)


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    update = sys.argv[1] == "--update"
    octavo, name, *backends = sys.argv[2 if update else 1:]
    path = pathlib.Path(name)
    code = Program(octavo).keys(backends)
    page = path.read_text(encoding="utf-8")
    faults, text = differences(page, code)
    if update and text != page:
        path.write_text(text, encoding="utf-8")
    print(f"{len(code)} keys")
    print("\n".join(sorted(f"{path}: {fault}" for fault in faults)))
    if faults and not update:
        print(f"Write rows that are missing; for the rest: config_keys.py --update {octavo} {name} {' '.join(backends)}")
    sys.exit(1 if faults or not code else 0)


main()

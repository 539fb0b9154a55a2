"""The fenced blocks of a Markdown page, with the marker that says where each comes from.

A marker is a comment on the line before the fence:

  <!-- from: FILE#REGION -->   quoted from a built file; without #REGION, the whole file
  <!-- diff: OLD NEW -->       the lines that differ between two files
  <!-- run -->                 a shell block that tests/docs/docs_run.py executes; options, separated
                               by commas: `exit 1`, the status it ends with; `with ARGUMENTS`, added
                               to its last line to make it shorter
  <!-- output -->              what the shell block before it prints; `part`: among other lines;
                               `numbers vary`: any number stands for any other; ... is any text
  <!-- config -->              an octavo.toml, or a part of one, that `octavo config show` accepts
  <!-- not run: REASON -->     neither, and why
"""
import re

MARKER = re.compile(r"<!-- (from|diff|run|output|config|not run)(?:: (.*?))? -->")
FENCE = re.compile(r"( *)```(\w*)$")
# Languages that a kind of marker may stand before; None: any.
LANGUAGES = {"from": None, "diff": {"diff"}, "run": {"sh"}, "output": {"text"}, "config": {"toml"},
             "not run": None}


class Block:
    """One fenced block; `line` counts from 1 and is that of its fence, `last` of the closing one."""

    def __init__(self, line, language, indent):
        self.line, self.language, self.indent = line, language, indent
        self.lines, self.last = [], None
        self.kind, self.argument = None, ""

    @property
    def text(self):
        return "\n".join(self.lines)

    def options(self):
        return [o.strip() for o in self.argument.split(",") if o.strip()]


def blocks(text):
    """Every fenced block of a page, in order; one that never ends has last None."""
    found, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        fence = FENCE.fullmatch(lines[at])
        at += 1
        if not fence:
            continue
        block = Block(at, fence.group(2), len(fence.group(1)))
        marker = MARKER.fullmatch(lines[at - 2].strip()) if at > 1 else None
        if marker:
            block.kind, block.argument = marker.group(1), marker.group(2) or ""
        while at < len(lines) and lines[at].strip() != "```":
            line = lines[at]
            block.lines.append((line[block.indent:] if line[:block.indent].isspace() else line).rstrip())
            at += 1
        if at < len(lines):
            block.last = at + 1
        at += 1
        found.append(block)
    return found


def marker_faults(text):
    """(line, what is wrong) of blocks without a marker that fits, and of markers without a block."""
    faults, shell = [], None
    found = blocks(text)
    for b in found:
        if b.last is None:
            faults.append((b.line, "opens a block that never ends"))
        elif b.kind is None:
            faults.append((b.line, "a code block without a marker: expected `<!-- from: ... -->`, "
                                   "`<!-- run -->`, `<!-- output -->`, `<!-- config -->` or "
                                   "`<!-- not run: REASON -->` on the line before"))
        elif LANGUAGES[b.kind] is not None and b.language not in LANGUAGES[b.kind]:
            wanted = " or ".join(sorted(LANGUAGES[b.kind]))
            faults.append((b.line, f"`{b.kind}` expects a block of {wanted}, found "
                                   f"{b.language or 'no language'}"))
        elif b.kind == "not run" and len(b.argument.split()) < 3:
            faults.append((b.line, f"`not run` expects a reason in words, found '{b.argument}'"))
        elif b.kind == "output" and shell is None:
            faults.append((b.line, "`output` expects a block marked `run` earlier on the page"))
        elif (wrong := wrong_options(b)):
            faults.append((b.line, f"`{b.kind}` has no option {', '.join(wrong)}"))
        shell = b if b.kind == "run" else shell
    inside = {n for b in found for n in range(b.line, (b.last or b.line) + 1)}
    opened = {b.line for b in found}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if number in inside:
            continue
        if MARKER.fullmatch(line.strip()) and number + 1 not in opened:
            faults.append((number, "a marker, expected a fenced block on the next line"))
        if re.match(r" {4,}\S", line) and not lines[number - 2].strip() and not listed(lines, number):
            faults.append((number, "an indented code block: expected a fenced one with a marker"))
    return faults


def wrong_options(block):
    known = {"run": r"exit \d+|with .+", "output": "part|numbers vary"}.get(block.kind)
    return [o for o in block.options() if known and not re.fullmatch(known, o)]


def listed(lines, number):
    """Whether an indented line continues an item of a list."""
    for line in reversed(lines[:number - 1]):
        if re.match(r"\s*([-*]|\d+\.)\s", line):
            return True
        if line.strip() and not line.startswith(" "):
            return False
    return False

"""gcov for gcovr: marks branches that lie in blocks which only an exception reaches.

  coverage_gcov.py <arguments of gcov>

gcov writes "(throw)" beside an edge to an exception's handler, and gcovr leaves such branches out. The
branches inside of those handlers, which destroy what was half made, carry no mark; but gcov knows
their blocks and prints them with --all-blocks as "$$$$$". This program runs gcov so, adds the mark to
branches that were never executed in such a block, and drops the lines of blocks again. A handler that
the source states counts once a test runs it, which the lines of coverage.sh --report show.
"""
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"\s*([^:\s]+):\s*\d+-block\s+\d+")
CREATED = re.compile(r"^Creating '(.*)'$", re.MULTILINE)
NEVER = re.compile(r"(branch\s+\d+) never executed$")


def marked(lines):
    """The lines of one .gcov file with the marks completed."""
    exceptional = False
    for line in lines:
        block = BLOCK.match(line)
        if block:
            exceptional = block[1] == "$$$$$"
            continue
        never = NEVER.match(line)
        if exceptional and never:
            line = f"{never[1]} taken 0 (throw)"
        elif not line.startswith(("branch", "call", "unconditional")):
            exceptional = False
        yield line


def main():
    done = subprocess.run(["gcov", "--all-blocks", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")  # gcovr reads the names of the files there
    for name in CREATED.findall(done.stdout):
        path = pathlib.Path(name)
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        path.write_text("\n".join(marked(text.split("\n"))), encoding="utf-8",
                        errors="surrogateescape")
    return done.returncode


sys.exit(main())

"""Whether a mutant is C++ at all, in a fraction of a compilation: most are not."""
import json
import re
import shlex
import subprocess

DROPPED = {"-o": 2, "-MT": 2, "-MF": 2, "-MD": 1, "-c": 1}
INCLUDE = re.compile(r"^#include .*$", re.M)


def words_of(command):
    """The words of a compiler call without its launcher, its source and what it writes."""
    words, kept = shlex.split(command)[:-1], []
    words = words[1:] if words[0].endswith("ccache") else words
    while words:
        count = DROPPED.get(words[0], 0)
        kept += words[:1] if count == 0 else []
        words = words[max(1, count):]
    return kept


class Parser:
    """Of one source, whose headers are compiled once."""

    def __init__(self, build, path):
        entries = json.loads((build / "compile_commands.json").read_text())
        command, = (e["command"] for e in entries if e["file"] == str(path) and "/octavo.dir/" in e["command"])
        self.path, self.build, self.words = path, build, [*words_of(command), "-iquote", path.parent]
        self.headers = build / f"{path.stem}.headers.h"
        self.headers.write_text("\n".join(INCLUDE.findall(path.read_text())) + "\n")
        subprocess.run([*self.words, "-x", "c++-header", self.headers, "-o", f"{self.headers}.gch"], cwd=build, check=True,
                       capture_output=True)

    def accepts(self):
        done = subprocess.run([*self.words, "-include", self.headers, "-fsyntax-only", "-Wfatal-errors", self.path],
                              cwd=self.build, capture_output=True, check=False)
        return done.returncode == 0

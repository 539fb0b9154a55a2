"""Mutants that universalmutator makes of C++ sources, in an order that a seed draws."""
import contextlib
import dataclasses
import io
import os
import random
import sys

from groups import ROOT

RULES = ["universal.rules", "cpp.rules", "c_like.rules"]  # its own for C++


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One line of a file in other words; `put` may be several lines."""
    file: str
    line: int
    found: str
    put: str

    def key(self):
        """What stays when the lines above change."""
        return self.file, self.found.strip(), self.put.strip()

    def text(self):
        lines = (ROOT / self.file).read_text().splitlines(keepends=True)
        return "".join([*lines[:self.line - 1], self.put, *lines[self.line:]])

    def diff(self):
        put = "".join(f"\n+{line}" for line in self.put.splitlines())
        return f"{self.file}:{self.line}\n-{self.found.rstrip()}{put}"


def tool():
    """universalmutator's module, or None where the group mutation of tests/environment is missing."""
    sys.path.append(str((os.environ.get("OCTAVO_TORCH_ENV") or ROOT / ".cache/torch")) + "/apart/mutation")
    try:
        from universalmutator import mutator
    except ImportError:
        return None
    return mutator


def of_file(mutator, file):
    lines = (ROOT / file).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(lines, ruleFiles=RULES, ignorePatterns=[])
    return [Mutant(file, line, lines[line - 1], put) for line, put, *_ in made]


def drawn(mutator, files, seed):
    """All mutants of these files in the order of this seed."""
    mutants = [m for file in files for m in of_file(mutator, file)]
    random.Random(seed).shuffle(mutants)
    return mutants

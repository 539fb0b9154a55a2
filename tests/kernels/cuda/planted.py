"""Plants each defect of planted_defects.py in a copy of the sources and expects its test to fail.

    planted.py <sources> <build folder>

The test programs are built; of the sources only the changed ones are compiled again, with the commands
of the build (Ninja), and linked before the rest. A test that fails without a defect, a text that is not
found, a copy that does not compile and a defect that no test sees are faults.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from planted_defects import DEFECTS


class Fault(Exception):
    pass


def sources_of(compiled: Path) -> list:
    """The sources of a compiler call, which may be one unit of several."""
    if compiled.parent.name != "Unity":
        return [str(compiled)]
    return re.findall(r'^#include "(.+)"$', compiled.read_text(), re.MULTILINE)


class Program:
    """A test program of the build, and how it came about."""

    def __init__(self, build: Path, name: str):
        self.build, self.file = build, build / "tests" / name
        answer = subprocess.run(["ninja", "-C", build, "-t", "commands", f"tests/{name}"],
                                capture_output=True, text=True)
        if answer.returncode != 0:
            raise Fault(f"expected the target tests/{name} in a build by Ninja, found: {answer.stderr}")
        self.commands = answer.stdout.splitlines()
        self.replaced = set()  # objects of the program's own

    def run(self, command: list, what: str) -> None:
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise Fault(f"{what} failed: {shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")

    def compile(self, source: Path, planted: Path, folder: Path, out: Path) -> None:
        """Like the build compiles `source`, with the files under `folder` before those of the tree."""
        for line in self.commands:
            words = shlex.split(line)
            if "-c" not in words or sources_of(Path(words[words.index("-c") + 1])) != [str(source)]:
                continue
            kept = [w for i, w in enumerate(words)
                    if w not in ("-MD", "-MT", "-MF", "-c", "-o") and
                    words[i - 1] not in ("-MT", "-MF", "-c", "-o")]
            if "-include" not in kept:  # a precompiled header, which has the options of the build
                kept = [w for w in kept if not re.fullmatch("-[Og][0-9]", w)] + ["-O0"]
            compiler = 1 if Path(kept[0]).name == "ccache" else 0
            kept.insert(compiler + 1, f"-I{folder}")
            self.run([*kept, "-c", planted, "-o", out], f"compiling {source.name}")
            self.replaced.add(words[words.index("-o") + 1])
            return
        raise Fault(f"expected {source} among the sources of {self.file.name}")

    def link(self, objects: list, out: Path) -> None:
        words = shlex.split(self.commands[-1].removeprefix(": && ").removesuffix(" && :"))
        words = [w for w in words if w not in self.replaced]
        at = words.index("-o")
        self.run([*words[:at], "-o", out, *objects, *words[at + 2:]], f"linking {self.file.name}")

    def passes(self, file: Path, test: str) -> tuple:
        done = subprocess.run([file, f"--gtest_filter={test}"], cwd=self.build, capture_output=True,
                              text=True, errors="replace")
        if "Running 1 test" not in done.stdout:
            raise Fault(f"expected the test {test} in {self.file.name}")
        return done.returncode == 0, done.stdout + done.stderr


def plant(defect, source: Path, folder: Path) -> None:
    for name, text, by in defect.changes:
        copy = folder / name
        content = (copy if copy.exists() else source / name).read_text()
        if content.count(text) != 1:
            raise Fault(f"expected once in {name}, found {content.count(text)} times: {text!r}; "
                        "adjust planted_defects.py")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(content.replace(text, by))


def try_defect(defect, source: Path, build: Path, folder: Path) -> None:
    program = Program(build, defect.program)
    fine, said = program.passes(program.file, defect.test)
    if not fine:
        raise Fault(f"{defect.test} fails without the defect:\n{said}")
    plant(defect, source, folder)
    objects = []
    for number, name in enumerate(defect.compiles):
        planted = folder / name
        objects.append(folder / f"{number}.o")
        program.compile(source / name, planted if planted.exists() else source / name, folder, objects[-1])
    program.link(objects, folder / "program")
    fine, _ = program.passes(folder / "program", defect.test)
    if fine:
        raise Fault(f"{defect.test} does not see it")


def main() -> int:
    source, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    faults = 0
    for defect in DEFECTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                try_defect(defect, source, build, Path(folder))
                print(f"found: {defect.name} ({defect.test})")
            except Fault as fault:
                faults += 1
                print(f"planted: {defect.name}: {fault}")
    print(f"{len(DEFECTS)} planted defects, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

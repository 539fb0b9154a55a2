"""Runs what the documents show: shell blocks, the output next to them, and configurations.

  docs_run.py <root> <build folder> <scratch folder> [page...]
  docs_run.py --self-test

The markers are those of tests/repo/pages.py. Blocks run in a copy of the tree, in which build/cpu has
links to what the build folder holds, so that a block can neither change the tree nor disturb the ctest
that started it. PATH begins with the folder of the built programs. At the start of a page octavo.toml
in the copy is that of samples/train_gpt. The scratch folder goes away when nothing is wrong. It takes
half a minute, since blocks build plugins and train.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "repo"))
import pages
import tree

SECONDS = 600  # the longest a block may take; the quickstart builds
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?%?")


def shorten(block):
    """The block's commands, with what `with ARGUMENTS` adds to the last one."""
    lines = list(block.lines)
    for option in block.options():
        if option.startswith("with "):
            lines[-1] = re.sub(r"\s+#.*$", "", lines[-1]) + option[len("with"):]
    return "\n".join(lines)


def exit_code(block):
    return next((int(o.split()[1]) for o in block.options() if o.startswith("exit ")), 0)


def pattern_of(line, numbers_vary):
    """What a line of the page stands for; runs of spaces match each other."""
    def piece(text):
        if numbers_vary:
            marks = [re.escape(p) for p in NUMBER.split(text)]
            text = NUMBER.pattern.join(marks)
        else:
            text = re.escape(text)
        return re.sub(r"(?:\\ )+", r"\\s+", text)

    return re.compile(".*".join(piece(p) for p in line.rstrip().split("...")))


def match(wanted, printed, part, numbers_vary):
    """None, or the first line of the page that was not printed in its place."""
    def at(position):
        """How many lines of the page match from this line of the output on."""
        place, free = position, part
        for count, line in enumerate(wanted):
            if line.strip() == "...":
                free = True
                continue
            found = pattern_of(line, numbers_vary)
            if free and count > first:
                while place < len(printed) and not found.fullmatch(printed[place]):
                    place += 1
            if place >= len(printed) or not found.fullmatch(printed[place]):
                return count
            place, free = place + 1, False
        ends = part or free or place == len(printed)
        return len(wanted) if ends else len(wanted) - 1

    first = next((i for i, line in enumerate(wanted) if line.strip() != "..."), 0)
    anywhere = part or first > 0
    best = max(at(p) for p in range(len(printed) + 1 if anywhere else 1))
    return None if best == len(wanted) else wanted[best]


def check_output(where, block, printed):
    printed = [line.rstrip() for line in printed.strip("\n").splitlines()]
    wanted = [line.rstrip() for line in block.text.strip("\n").splitlines()]
    missing = match(wanted, printed, "part" in block.options(), "numbers vary" in block.options())
    if missing is None:
        return []
    return [f"{where}: expected the output '{missing}', found:\n" +
            "\n".join(f"    {line}" for line in printed[:60])]


class Sandbox:
    """The copy of the tree, and the environment of its blocks."""

    def __init__(self, root, build, scratch):
        self.root, self.folder = pathlib.Path(root).resolve(), pathlib.Path(scratch).resolve() / "tree"
        build = pathlib.Path(build).resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in tree.files(self.root):
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.root / path, target, follow_symlinks=False)
        inside = self.folder / "build" / "cpu"
        inside.mkdir(parents=True)
        for entry in build.iterdir():
            if entry.name != "Testing":  # where ctest writes
                (inside / entry.name).symlink_to(entry)
        self.environment = {**os.environ, "PATH": f"{build / 'bin'}:{os.environ['PATH']}",
                            "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / ".cache"),
                            "XDG_DATA_HOME": str(self.folder / ".local")}
        for name in [n for n in self.environment if n.startswith("OCTAVO_") and n != "OCTAVO_TORCH_ENV"]:
            del self.environment[name]
        if "CCACHE_DIR" not in os.environ and shutil.which("ccache"):
            asked = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True)
            self.environment["CCACHE_DIR"] = asked.stdout.strip()

    def begin_page(self):
        shutil.copy2(self.root / "samples/train_gpt/octavo.toml", self.folder / "octavo.toml")
        (self.folder / "octavo.lock").unlink(missing_ok=True)

    def run(self, commands):
        """(status, what it printed: to stdout, then to stderr)."""
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=self.folder,
                                  env=self.environment, capture_output=True, text=True,
                                  timeout=SECONDS, stdin=subprocess.DEVNULL, errors="replace")
        except subprocess.TimeoutExpired:
            return None, f"not done after {SECONDS} s"
        return done.returncode, done.stdout + done.stderr


def run_page(sandbox, path, text):
    """(faults, number of blocks) of one page."""
    faults, count, printed = [], 0, ""
    sandbox.begin_page()
    for block in pages.blocks(text):
        where, start = f"{path}:{block.line}", time.monotonic()
        if block.kind == "output":
            faults += check_output(where, block, printed)
        elif block.kind in ("run", "config"):
            wanted = exit_code(block)
            commands = shorten(block)
            if block.kind == "config":
                (sandbox.folder / "shown.toml").write_text(block.text + "\n", encoding="utf-8")
                commands = "octavo config show shown.toml"
            status, printed = sandbox.run(commands)
            if status != wanted:
                tail = printed.strip().splitlines()[-30:]
                faults.append(f"{where}: expected exit status {wanted}, found {status}:\n" +
                              "\n".join(f"    {line}" for line in tail))
        else:
            continue
        count += 1
        print(f"{where}: {block.kind}, {time.monotonic() - start:.1f} s", flush=True)
    return faults, count


def check(root, build, scratch, only=()):
    sandbox = Sandbox(root, build, scratch)
    faults, count = [], 0
    for path in tree.files(root):
        if path.suffix == ".md" and (not only or str(path) in only):
            text = tree.text(root, path)
            if any(b.kind in ("run", "config") for b in pages.blocks(text)):
                found, ran = run_page(sandbox, path, text)
                faults, count = faults + found, count + ran
    if count == 0:
        faults.append("expected pages with blocks to run, found none; the check would be empty")
    return faults


def shell(commands, output="", options=""):
    """A page with one block, and its output where there is one."""
    page = f"<!-- run -->\n```sh\n{commands}\n```\n"
    return page + (f"<!-- output{options} -->\n```text\n{output}\n```\n" if output else "")


# A page, and what docs_run says of it.
PLANTED = [
    (shell("printf 'one\\ntwo\\n'", "one\ntwo"), None),
    (shell("printf 'one\\ntwo\\n'", "one"), "expected the output 'one'"),
    (shell("printf 'one\\ntwo\\nthree\\n'", "one\n...\nthree"), None),
    (shell("printf 'one\\ntwo\\nthree\\n'", "...\ntwo\n..."), None),
    (shell("printf 'one\\ntwo\\nthree\\n'", "two", ": part"), None),
    (shell("printf 'one\\ntwo\\nthree\\n'", "one\nthree", ": part"), "expected the output 'three'"),
    (shell("printf 'one\\ntwo\\n'", "one\ntwo\nthree"), "expected the output 'three'"),
    (shell("echo loss   1.25 of te", "loss 1.31 of te"), "expected the output 'loss 1.31 of te'"),
    (shell("echo loss   1.25 of te", "loss 1.31 of te", ": numbers vary"), None),
    (shell("echo loss 1.25 of te", "loss 1.31 of msamp", ": numbers vary"), "1.31 of msamp"),
    (shell("echo where: /a/b.so", "where: ...b.so"), None),
    (shell("echo out; echo err >&2", "out\nerr"), None),
    (shell("false\ntrue"), "expected exit status 0, found 1"),
    ("<!-- run: exit 3 -->\n```sh\nexit 3\n```", None),
    ("<!-- run: exit 3 -->\n```sh\ntrue\n```", "expected exit status 3, found 0"),
    ("<!-- run: with b c -->\n```sh\necho a   # why\n```\n<!-- output -->\n```text\na b c\n```", None),
    ("<!-- config -->\n```toml\nschema = 1\n```", None),
    ("<!-- config -->\n```toml\nwrong = 1\n```", "expected exit status 0, found 2"),
    ("<!-- run -->\n```sh\ntest -e octavo.toml && touch build/cpu/made octavo.lock\n```", None),
    ("<!-- run -->\n```sh\ntest -e octavo.lock\n```", "expected exit status 0, found 1"),
    ("<!-- not run: needs a GPU -->\n```sh\nfalse\n```", None),
]


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        root, build = folder / "root", folder / "build"
        (root / "samples/train_gpt").mkdir(parents=True)
        (root / "samples/train_gpt/octavo.toml").write_text("schema = 1\n")
        (build / "bin").mkdir(parents=True)
        (build / "Testing").mkdir()
        octavo = build / "bin/octavo"
        octavo.write_text('#!/bin/sh\ngrep -q "^schema" "$3" || exit 2\n')
        octavo.chmod(0o755)
        for number, (page, _) in enumerate(PLANTED):
            (root / f"page{number:02}.md").write_text(page)
        faults = check(root, build, folder / "scratch")
        if (build / "made").exists() or (root / "octavo.lock").exists():
            wrong.append("a block changed the build folder or the tree")
    for number, (page, wanted) in enumerate(PLANTED):
        mine = [f for f in faults if f.startswith(f"page{number:02}.md:")]
        if len(mine) != (wanted is not None) or (wanted and wanted not in mine[0]):
            wrong.append(f"{page!r}: expected {wanted}, found {mine}")
    return tree.report(wrong, f"{len(PLANTED)} planted pages")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("scratch")
    parser.add_argument("page", nargs="*")
    options = parser.parse_args()
    start = time.monotonic()
    faults = check(options.root, options.build, options.scratch, options.page)
    print(f"{time.monotonic() - start:.0f} s")
    if not faults:
        shutil.rmtree(options.scratch)
    return tree.report(faults, "blocks that run")


if __name__ == "__main__":
    sys.exit(main())

"""Adds to the packed test data, lists, unpacks and checks it (packs.py has the format).

  pack.py add NAME PATH... [--merge PROGRAM]   adds files, or what folders hold, to a pack
  pack.py remove NAME FILE...                  takes files out of a pack
  pack.py list [NAME]                          every pack, or the files of one
  pack.py unpack NAME FOLDER                   writes a pack or a whole group as FOLDER/NAME
  pack.py verify                               what the test Data.packs checks

NAME is <group>/<name>: fuzz/toml is the corpus of that fuzz target, vectors/linear a family of golden
vectors, sdk/toml_corpus the inputs of one test. With --merge, a corpus takes only inputs in which
PROGRAM, its fuzzer, finds new coverage. A name of the pack never changes its content: remove it first.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import packs
from packs import Fault


def gather(paths):
    """{name: bytes} of files, and of folders' files by their names below the folder."""
    found = {}
    for path in paths:
        if not path.exists():
            raise Fault(f"expected a file or folder, found nothing at {path}")
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            content = file.read_bytes()
            if found.setdefault(name, content) != content:
                raise Fault(f"expected one content for each name, found another one of {name} at {file}")
    return found


def spread(files, target):
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def with_new_coverage(program, known, given):
    """Those of `given` that libFuzzer's -merge=1 adds to `known`. It names them by their content."""
    with tempfile.TemporaryDirectory() as place:
        corpus, new = pathlib.Path(place, "corpus"), pathlib.Path(place, "new")
        for target, files in ((corpus, known), (new, given)):
            target.mkdir()
            spread(files, target)
        # Some targets write into the home and the temporary folder.
        result = subprocess.run([program.resolve(), "-merge=1", corpus, new], cwd=place,
                                env={**os.environ, "HOME": place, "TMPDIR": place})
        if result.returncode != 0:
            raise Fault(f"expected {program} to merge, it ended with status {result.returncode}")
        return {name: content for name, content in gather([corpus]).items() if name not in known}


def add(tree, name, paths, program):
    if name.count("/") != 1:
        raise Fault(f"expected <group>/<name>, such as fuzz/toml, found {name}")
    path = packs.path_of(tree, name)
    files = packs.read(path) if path.exists() else {}
    given = gather(paths)
    if program:
        given = with_new_coverage(program, files, given)
    contents = set(files.values())
    added = 0
    for file, content in given.items():
        if files.get(file) == content or packs.is_corpus(name) and content in contents:
            continue
        if file in files:
            raise Fault(f"expected a new name, found {file} in {name} with another content; remove it first")
        files[file] = content
        contents.add(content)
        added += 1
    faults = packs.faults_of(name, files)
    if faults:
        raise Fault("; ".join(faults))
    packs.write(path, files)
    print(f"{name}: {added} files added, {len(given) - added} known already, {len(files)} in all")


def remove(tree, name, gone):
    files = read(tree, name)
    for file in gone:
        if file not in files:
            raise Fault(f"expected a file of {name}, found {file}; `pack.py list {name}` names them")
        del files[file]
    packs.write(packs.path_of(tree, name), files)
    print(f"{name}: {len(gone)} files removed, {len(files)} in all")


def read(tree, name):
    if name not in packs.names(tree):
        raise Fault(f"expected one of {', '.join(packs.names(tree))}, found {name}")
    return packs.read(packs.path_of(tree, name))


def show(tree, name):
    if name:
        for file, content in sorted(read(tree, name).items()):
            print(f"{len(content):9} {file}")
        return
    print("    files     bytes    packed  name")
    for pack in packs.names(tree):
        path = packs.path_of(tree, pack)
        files = packs.read(path)
        print(f"{len(files):9} {sum(map(len, files.values())):9} {path.stat().st_size:9}  {pack}")


def unpack(tree, name, place):
    wanted = [n for n in packs.names(tree) if n == name or n.startswith(name + "/")]
    if not wanted:
        groups = sorted({n.split("/")[0] for n in packs.names(tree)})
        raise Fault(f"expected one of {', '.join(groups + packs.names(tree))}, found {name}")
    if (place / name).exists():
        raise Fault(f"expected to make the folder {place / name}, found it there; remove it first")
    for pack in wanted:
        spread(read(tree, pack), place / pack)
    if name == "vectors":
        for file in ("index.csv", "README.md"):
            shutil.copy(tree / "tests" / "vectors" / file, place / name / file)
    print(f"{place / name}: {len(wanted)} packs")


def verify(tree):
    faults = packs.check(tree)
    for fault in faults:
        print(fault)
    print(f"{len(packs.names(tree))} packs: {len(faults)} faults")
    return 1 if faults or not packs.names(tree) else 0


def main(arguments, tree=packs.TREE):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("add")
    command.add_argument("name")
    command.add_argument("path", nargs="+", type=pathlib.Path)
    command.add_argument("--merge", metavar="PROGRAM", type=pathlib.Path)
    command = commands.add_parser("remove")
    command.add_argument("name")
    command.add_argument("file", nargs="+")
    commands.add_parser("list").add_argument("name", nargs="?")
    command = commands.add_parser("unpack")
    command.add_argument("name")
    command.add_argument("folder", type=pathlib.Path)
    commands.add_parser("verify")
    given = parser.parse_args(arguments)
    try:
        if given.command == "add":
            add(tree, given.name, given.path, given.merge)
        elif given.command == "remove":
            remove(tree, given.name, given.file)
        elif given.command == "list":
            show(tree, given.name)
        elif given.command == "unpack":
            unpack(tree, given.name, given.folder)
        else:
            return verify(tree)
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Lines by folder at a commit, or at two: of code, comments and blank lines apart.

  python3 tests/repo/sizes.py <commit> [<commit>]

Prints Markdown. A line of code with a comment behind it is code; so is the text of a Python docstring. Sources and scripts
count, documents, tables and data do not.
"""
import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HASH = {"py", "sh", "cmake", "txt"}
SOURCES = HASH | {"c", "h", "cpp", "hpp", "cu", "cuh", "rs", "inc", "go", "js", "html", "css", "in"}


def git(*words, **more):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, **more).stdout


def is_source(path):
    return path.suffix[1:] in SOURCES and (path.suffix != ".txt" or path.name == "CMakeLists.txt")


def counted(text, comment):
    """(code, comments, blank) of a file whose comments begin so; of C's also those between /* and */."""
    code = comments = blank = 0
    is_inside = False
    for line in map(str.strip, text.splitlines()):
        if not line:
            blank += 1
        elif is_inside or line.startswith(comment) or (comment == "//" and line.startswith("/*")):
            comments += 1
            if comment == "//" and (is_inside or line.startswith("/*")):
                is_inside = "*/" not in line
        else:
            code += 1
    return code, comments, blank


def folder_of(path):
    """tests, or the first two folders of the product."""
    return path.parts[0] if path.parts[0] in ("tests", "samples") else "/".join(path.parts[:-1][:2]) or "."


def sizes(commit):
    """{folder: [code, comments, blank]}, and the number of all tracked files."""
    names = git("ls-tree", "-r", "--name-only", "-z", commit, text=True).split("\0")[:-1]
    paths = [path for path in map(pathlib.Path, names) if is_source(path)]
    blobs = git("cat-file", "--batch", input="".join(f"{commit}:{path}\n" for path in paths).encode())
    found = collections.defaultdict(lambda: [0, 0, 0])
    for path in paths:
        header, _, blobs = blobs.partition(b"\n")
        size = int(header.split()[2])
        parts = counted(blobs[:size].decode(errors="replace"), "#" if path.suffix[1:] in HASH else "//")
        blobs = blobs[size + 1:]
        for i, n in enumerate(parts):
            found[folder_of(path)][i] += n
    return found, len(names)


def main(commits):
    if not 1 <= len(commits) <= 2:
        sys.exit(__doc__)
    all_sizes = [sizes(commit) for commit in commits]
    folders = sorted({folder for found, _ in all_sizes for folder in found} - {"tests"})
    print("| Folder |" + "".join(f" {c}: code | comments | blank |" for c in commits))
    print("|---|" + "---:|---:|---:|" * len(commits))
    for folder in folders:
        print(f"| {folder} |" + "".join(f" {n:,} |" for found, _ in all_sizes for n in found.get(folder, (0, 0, 0))))
    for name, members in (("product", folders), ("tests", ["tests"])):
        sums = [sum(found.get(f, (0, 0, 0))[i] for f in members) for found, _ in all_sizes for i in range(3)]
        print(f"| **{name}** |" + "".join(f" {n:,} |" for n in sums))
    print("| files |" + "".join(f" {n:,} | | |" for _, n in all_sizes))


if __name__ == "__main__":
    main(sys.argv[1:])

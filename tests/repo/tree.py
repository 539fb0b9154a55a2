"""The project's files, for the other scripts of this folder: what git knows or would take in."""
import pathlib
import subprocess
import sys

C_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cc", ".cu", ".cuh", ".inc"}
GENERATED = {"build", "out", "target", "__pycache__"}


def files(root):
    """Paths relative to root, sorted; without git, everything but build output and dotfolders."""
    root = pathlib.Path(root)
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    if (root / ".git").exists():
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode == 0:
            names = {n for n in result.stdout.split("\0") if n and (root / n).is_file()}
            return sorted(pathlib.PurePosixPath(n) for n in names)
    found = []
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        hidden = any(p.startswith(".") for p in relative.parts[:-1])
        if path.is_file() and not hidden and not GENERATED & set(relative.parts):
            found.append(pathlib.PurePosixPath(relative.as_posix()))
    return sorted(found)


def c_files(root):
    return [f for f in files(root) if f.suffix in C_SUFFIXES]


def text(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8", errors="replace")


def report(faults, what):
    """Prints the faults and returns the exit status."""
    for fault in faults:
        print(fault)
    print(f"{what}: {len(faults)} faults")
    return 1 if faults else 0


def main(usage, check, self_test, what):
    """The command line of a script with these two: a root, or --self-test. Ends the process."""
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) != 2:
        sys.exit(usage)
    sys.exit(report(check(sys.argv[1]), what))

#!/usr/bin/env python3
"""Starts a script with the Python that tests/environment/install.sh prepared.

Usage: run.py <group>[,<group>...] <script> <arguments...>
       run.py --self-test

A script without a folder is one of this folder. The environment is $OCTAVO_TORCH_ENV, else
.cache/torch of the repository. When one of the groups (torch, oracles, ...) is not complete there,
the exit code is 77, which ctest counts as skipped, and the reason is printed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TORCH_ENV = ROOT / "tests/environment"
SKIPPED = 77


def main(groups, script, arguments):
    folder = pathlib.Path(os.environ.get("OCTAVO_TORCH_ENV") or ROOT / ".cache/torch")
    install = str(TORCH_ENV / "install.sh")
    check = subprocess.run(
        ["bash", install, "--check", *groups], capture_output=True, text=True, check=False)
    if check.returncode == SKIPPED:
        print(f"skipped: {check.stderr.strip()}; run: bash tests/environment/install.sh "
              f"{' '.join(groups)}", flush=True)
        return SKIPPED
    if check.returncode != 0:
        print(f"error: {install} --check failed: {check.stderr.strip()}", file=sys.stderr)
        return 1
    python = str(folder / "bin/python")
    os.execv(python, [python, "-B", str(HERE / script), *arguments])


def stamp(*files):
    """As install.sh writes it."""
    return "".join((TORCH_ENV / file).read_text() for file in files)


def self_test():
    """Missing, stale, partial and usable environments give the exit codes that they should."""
    faults = []
    torch = stamp("torch.txt", "cuda_stand_ins.py")
    oracles = stamp("oracles.txt", "oracles.apart.txt")

    def expect(code, text, groups="torch,oracles", **stamps):
        with tempfile.TemporaryDirectory() as name:
            for folder in ("stamps", "bin"):
                pathlib.Path(name, folder).mkdir()
            for group, content in stamps.items():
                pathlib.Path(name, "stamps", group).write_text(content)
            pathlib.Path(name, "bin/python").symlink_to(sys.executable)
            # The script that a usable folder runs is this one, without arguments: it prints its
            # usage.
            found = subprocess.run(
                [sys.executable, "-B", __file__, groups, "run.py"],
                env={**os.environ, "OCTAVO_TORCH_ENV": name}, capture_output=True, text=True,
                check=False)
        output = found.stdout + found.stderr
        if found.returncode != code or text not in output:
            faults.append(f"expected exit code {code} and '{text}', found {found.returncode} and "
                          f"'{output.strip()}'")

    expect(SKIPPED, "no complete installation of torch oracles")
    expect(SKIPPED, "no complete installation of oracles", torch=torch)
    expect(SKIPPED, "no complete installation of torch", oracles=oracles)
    expect(SKIPPED, "other versions than tests/environment/torch.txt", torch="old", oracles=oracles)
    expect(SKIPPED, "other versions than tests/environment/oracles.txt", torch=torch, oracles="old")
    expect(1, "Usage: run.py", torch=torch, oracles=oracles)
    expect(1, "Usage: run.py", groups="torch", torch=torch)
    expect(1, "expected a group", groups="torhc", torch=torch)
    print("\n".join(faults) or "run.py: 8 environments as expected")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1].split(","), sys.argv[2], sys.argv[3:]))

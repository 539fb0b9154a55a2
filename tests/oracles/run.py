#!/usr/bin/env python3
"""Starts a script of this folder with the Python that install.sh prepared.

Usage: run.py <default folder> <script> <arguments...>
       run.py --self-test

The folder is $OCTAVO_ORACLES when that is set. Without a complete folder the exit code is 77, which
ctest counts as skipped, and the reason is printed.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def stamp():
    """As install.sh computes it."""
    content = b"".join((HERE / n).read_bytes() for n in ("requirements.txt", "cuda_stand_ins.py"))
    return hashlib.sha256(content).hexdigest()


def fault(folder):
    """Why the folder cannot be used; None when it can."""
    complete = folder / "complete"
    if not complete.is_file():
        return f"no complete installation in {folder}"
    if complete.read_text().strip() != stamp():
        return f"{folder} was made for other versions than tests/oracles/requirements.txt names"
    return None


def main(default_folder, script, arguments):
    folder = pathlib.Path(os.environ.get("OCTAVO_ORACLES") or default_folder)
    reason = fault(folder)
    if reason:
        print(f"skipped: {reason}; run: bash tests/oracles/install.sh", flush=True)
        return SKIPPED
    python = str(folder / "bin/python")
    os.execv(python, [python, "-B", str(HERE / script), *arguments])


def self_test():
    """Missing, stale and usable folders give the exit codes that they should."""
    faults = []

    def expect(code, text, named, **files):
        with tempfile.TemporaryDirectory() as name:
            for file, content in files.items():
                pathlib.Path(name, file).write_text(content)
            if "complete" in files:
                pathlib.Path(name, "bin").mkdir()
                pathlib.Path(name, "bin/python").symlink_to(sys.executable)
            environment = {k: v for k, v in os.environ.items() if k != "OCTAVO_ORACLES"}
            if named:
                environment["OCTAVO_ORACLES"] = name
            command = [sys.executable, "-B", __file__, "/nowhere" if named else name, "run.py"]
            found = subprocess.run(command, env=environment, capture_output=True, text=True)
        # The script that a usable folder runs is this one, without arguments: it prints its usage.
        output = found.stdout + found.stderr
        if found.returncode != code or text not in output:
            faults.append(f"expected exit code {code} and '{text}', found {found.returncode} and "
                          f"'{output.strip()}'")

    expect(SKIPPED, "skipped: no complete installation", named=False)
    expect(SKIPPED, "skipped: no complete installation", named=True)
    expect(SKIPPED, "other versions", named=False, complete="old")
    expect(1, "Usage: run.py", named=False, complete=stamp())
    expect(1, "Usage: run.py", named=True, complete=stamp())
    print("\n".join(faults) or "run.py: 5 folders as expected")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

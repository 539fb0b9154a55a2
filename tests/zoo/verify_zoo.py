"""Broken plugins under `octavo plugin verify`: each must be found by the name of its fault, and none may pass or hang.

  verify_zoo.py <octavo> <subject.so> <subject.h> <folder of fake_*.so> [--sample]

The plugins are the subject of tests/conformance/selftest, a correct backend with one fault chosen by its
option, and the libraries of fake_plugin.c. --sample runs one case of each kind.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import verify_cases


def faults_of(header):
    """The members of enum Fault, name -> number."""
    body = re.search(r"enum Fault : int64_t \{(.*?)\};", pathlib.Path(header).read_text(), re.S)[1]
    body = re.sub(r"//[^\n]*", "", body)
    numbers, next_number = {}, 0
    for entry in body.split(","):
        match = re.match(r"\s*(\w+)(?:\s*=\s*(-?\d+))?\s*$", entry)
        if match:
            next_number = int(match[2]) if match[2] else next_number
            numbers[match[1]] = next_number
            next_number += 1
    return numbers


def put_fake(octavo, folder, fault, directory):
    """A fake library with its manifest, in a directory that passes the trust check."""
    shutil.copy(pathlib.Path(folder, f"fake_{fault}.so"), directory / "fake.so")
    manifest = subprocess.run([octavo, "plugin", "manifest", "fake", "--version", "1.2.3"], capture_output=True, check=True)
    stated = verify_cases.STATED.get(fault, "").encode()
    (directory / "fake.octavo-plugin.toml").write_bytes(manifest.stdout + stated)
    return directory / "fake.so"


def timeout_of(says):
    return "2" if says.startswith("still running") else "60"


def judge(octavo, plugin, number, check, says, at_load):
    """Nothing, or what is wrong with the answer of one run."""
    command = [octavo, "plugin", "verify", plugin, "--only", check, "--timeout", timeout_of(says)]
    if number is not None:
        command += ["--set", f"fp8.subject.fault={0 if at_load else number}"]
    environment = {**os.environ, **({"OCTAVO_SUBJECT_AT_LOAD": str(number)} if at_load else {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, errors="replace",
                              env=environment)
    except subprocess.TimeoutExpired:
        return "the suite itself hangs"
    said = done.stdout
    if done.returncode != 1 or f"FAIL  {check}: " not in said or not re.search(says, said):
        return f"expected exit code 1 and 'FAIL  {check}: ... {says}', found {done.returncode}:\n{said}{done.stderr}"
    return None


def main(octavo, plugin, header, fakes, *options):
    numbers = faults_of(header)
    source = pathlib.Path(header).with_name("conformance_test.cpp").read_text()
    cases = (verify_cases.sample if "--sample" in options else verify_cases.all_cases)(source)
    start, wrong = time.monotonic(), []
    # Without a fault the checks pass, so each failure below is the fault's.
    checks = sorted({check for fault, check, _ in cases if not fault.startswith("fake ")})
    sound = subprocess.run([octavo, "plugin", "verify", plugin, *(word for c in checks for word in ("--only", c))],
                           capture_output=True, text=True)
    if sound.returncode != 0:
        wrong.append(f"without a fault: expected exit code 0, found {sound.returncode}:\n{sound.stdout}")
    for fault, check, says in cases:
        at_load, name = fault.startswith("load "), fault.split()[-1]
        if fault.startswith("fake "):
            with tempfile.TemporaryDirectory() as directory:
                fake = put_fake(octavo, fakes, name, pathlib.Path(directory))
                answer = judge(octavo, fake, None, check, says, False)
        else:
            answer = judge(octavo, plugin, numbers[name], check, says, at_load)
        if answer:
            wrong.append(f"{fault}: {answer}")
    print("\n".join(wrong) or f"{len(cases)} broken plugins found", f"in {time.monotonic() - start:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

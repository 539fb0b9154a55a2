"""Broken plugins under `octavo verify`: each must be found by the name of its fault, and none may pass or hang.

  verify_zoo.py <octavo> <subject.so> <subject.h> [--sample]

The plugins are the subject of tests/conformance/selftest, a correct backend with one fault chosen by its
option. --sample runs one case of each kind.
"""
import pathlib
import re
import subprocess
import sys
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


def judge(octavo, plugin, number, check, says):
    """Nothing, or what is wrong with the answer of one run."""
    command = [octavo, "verify", plugin, "--only", check, "--timeout", "4", "--set", f"fp8.subject.fault={number}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, errors="replace")
    except subprocess.TimeoutExpired:
        return "the suite itself hangs"
    said = done.stdout
    if done.returncode != 1 or f"FAIL  {check}: " not in said or not re.search(says, said):
        return f"expected exit code 1 and 'FAIL  {check}: ... {says}', found {done.returncode}:\n{said}{done.stderr}"
    return None


def main(octavo, plugin, header, *options):
    numbers = faults_of(header)
    cases = verify_cases.SAMPLE if "--sample" in options else verify_cases.ALL
    start, wrong = time.monotonic(), []
    for fault, check, says in cases:
        answer = judge(octavo, plugin, numbers[fault], check, says)
        if answer:
            wrong.append(f"{fault}: {answer}")
    print("\n".join(wrong) or f"{len(cases)} broken plugins found", f"in {time.monotonic() - start:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

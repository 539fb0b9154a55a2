"""The tests that failed in the last run of ctest in a build folder, each with the end of its output.

  failed.py build/torch
  failed.py --self-test

ctest prints the output of a failed test where it ran, thousands of lines above its summary. This reads it
again from the log that ctest keeps, Testing/Temporary/LastTest.log.
"""
import pathlib
import re
import sys

RULE = "-" * 58
HEAD = re.compile(r"^\d+/\d+ Testing: (.+)$")
LINES = 30  # of each test's output
TESTS = 20  # with their output; the others by name alone


def outputs(log):
    """Name -> output lines, for each test of the log whose end is not `Test Passed.`"""
    found, name, inside, output, after = {}, None, False, [], False
    for line in log:
        if match := HEAD.match(line):
            name, inside, output, after = match[1], False, [], False
        elif line == "Output:":
            inside = True
        elif line == "<end of output>":
            inside, after = False, True
        elif inside and line != RULE:
            output.append(line)
        elif after and name and line.startswith("Test ") and not line.startswith("Test time"):
            if line not in ("Test Passed.", "Test Skipped.", "Test Not Run."):
                found[name] = output
            after = False
    return found


def report(failed, found):
    """Lines. failed: names; found: of outputs()."""
    lines = []
    for index, name in enumerate(failed):
        lines.append(f"FAILED {name}")
        if index < TESTS:
            lines += ["    " + line for line in found.get(name, ["(no output was kept)"])[-LINES:]]
    return lines


def self_test():
    log = ["1/2 Testing: A.b", "1/2 Test: A.b", "Output:", RULE, "one", "two", "<end of output>", "Test time =   0.21 sec",
           RULE, "Test Failed.", "2/2 Testing: C.d", "Output:", RULE, "fine", "<end of output>", "Test time =   0.01 sec",
           RULE, "Test Passed."]
    assert outputs(log) == {"A.b": ["one", "two"]}, outputs(log)
    assert report(["A.b", "E.f"], outputs(log)) == ["FAILED A.b", "    one", "    two", "FAILED E.f", "    (no output was kept)"]
    print("self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    folder = pathlib.Path(sys.argv[1]) / "Testing/Temporary"
    names = folder / "LastTestsFailed.log"
    if not names.exists():
        return print(f"{sys.argv[1]}: no test has failed; the build did, or the run was cut")
    failed = [line.split(":", 1)[1] for line in names.read_text().splitlines() if ":" in line]
    log = (folder / "LastTest.log").read_text(errors="replace").splitlines()
    print("\n".join(report(failed, outputs(log))))


if __name__ == "__main__":
    main()

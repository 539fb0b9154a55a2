"""The cases that whole GoogleTest programs ran in a build folder, and the skipped ones with their reasons.

  cases.py build/cpu-asan
  cases.py --self-test

ctest sees such a program as one test, and shows nothing of one that passes. Each program leaves a file in
Testing/cases (tests/CMakeLists.txt, octavo_run_cases). Exit code 1: a program ran no case at all.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree as tree


def reason_of(case):
    """Why a case was skipped, else None. The first line of the message is a place in a file."""
    found = case.find("skipped")
    return None if found is None else found.get("message", "").partition("\n")[2].strip() or "no reason given"


def report(programs):
    """Lines, and the programs that ran no case. programs: name -> root element of what GoogleTest wrote."""
    ran = {name: [case for case in root.iter("testcase") if case.get("status") == "run"] for name, root in programs.items()}
    cases = [case for some in ran.values() for case in some]
    reasons = collections.defaultdict(list)
    for case in cases:
        if reason := reason_of(case):
            reasons[reason].append(f"{case.get('classname')}.{case.get('name')}")
    lines = [f"{len(ran)} programs ran {len(cases)} cases, of which {sum(map(len, reasons.values()))} were skipped"]
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {reason} ({len(names)}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
    return lines, [name for name, some in ran.items() if not some]


def self_test():
    root = tree.fromstring('<testsuites><testsuite><testcase classname="A" name="b" status="run"/>'
                           '<testcase classname="A" name="c" status="run"><skipped message="a.cpp:1&#x0A;no GPU"/></testcase>'
                           '<testcase classname="A" name="d" status="notrun"/></testsuite></testsuites>')
    assert report({"one": root, "two": tree.fromstring("<testsuites/>")}) == (
        ["2 programs ran 2 cases, of which 1 were skipped", "  no GPU (1: A.c)"], ["two"])
    print("self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files = sorted((pathlib.Path(sys.argv[1]) / "Testing/cases").glob("*.xml"))
    lines, empty = report({file.stem: tree.parse(file).getroot() for file in files})
    print("\n".join(lines))
    if empty:
        sys.exit(f"error: expected that each program runs a case, found none in {', '.join(empty)}")
    return None


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The sizes of a release as docs/releasing.md states them, compared with a folder that release.sh filled.

Usage: sizes.py <docs/releasing.md> <folder>

A row of the page is skipped where the folder has no such file; a folder without any is a fault. Exit code 1 and one line for
each fault.
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| `([^`]+)`(?:, together)? \| ([\d.]+) \|$", re.M)
SLACK = 0.3


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = ROW.findall(pathlib.Path(sys.argv[1]).read_text())
    wrong, seen = [], 0
    for pattern, stated in rows:
        size = sum(path.stat().st_size for path in pathlib.Path(sys.argv[2]).glob(pattern)) / 1e6
        seen += size > 0
        if size and abs(size - float(stated)) > SLACK * float(stated):
            wrong.append(f"{pattern}: {sys.argv[1]} states {stated} MB, found {size:.1f} MB; measure a release and correct the page")
    if not seen:
        wrong.append(f"expected files like {[pattern for pattern, _ in rows]} in {sys.argv[2]}, found none")
    print("\n".join([*wrong, f"sizes: {seen} of {len(rows)} rows, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

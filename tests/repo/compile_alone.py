"""Compiles each product source by itself: builds join the sources of a folder, which hides an include that is missing.

  compile_alone.py <build folder>

Reads the joined sources and their compiler calls from a configured Ninja build, and only checks syntax.
Minutes on two cores, so tests/soak.py runs it.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

JOINED = re.compile(r'^#include "(.*?)"', re.M)


def sources(build):
    """{source: the words of its compiler call}"""
    found = {}
    for entry in json.loads(subprocess.run(["ninja", "-C", build, "-t", "compdb"], capture_output=True, check=True).stdout):
        unity = pathlib.Path(build, entry["file"])
        if unity.parent.name != "Unity" or " -c " not in entry["command"] or not unity.is_file():
            continue
        words = entry["command"].partition(" -MD ")[0].removeprefix("ccache ")
        for source in JOINED.findall(unity.read_text()):
            if "/tests/" not in source:
                found.setdefault(source, words)
    return found


def problem(build, source, words):
    done = subprocess.run(f"{words} -fsyntax-only {source}", shell=True, cwd=build, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{source} does not compile by itself:\n{done.stderr}"


def main():
    build = sys.argv[1]
    found = sources(build)
    if len(found) < 100:
        sys.exit(f"error: expected 100 or more joined sources in {build}, found {len(found)}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = list(filter(None, pool.map(lambda one: problem(build, *one), sorted(found.items()))))
    print("\n".join(problems + [f"{len(found)} sources, {len(problems)} that need another one's includes"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

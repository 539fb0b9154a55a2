"""Every barrier and shuffle of the device code is needed: without it a test fails.

Usage: barriers.py SOURCES PROGRAM[,FILTER]...

SOURCES is the folder of the device code; each PROGRAM a GoogleTest program of tests/kernels/cuda, of
which the cases that FILTER selects are used. A place that calls a barrier or a shuffle fails when no
case executes it, and when every case that does also passes without it (CUDA_ON_CPU_LEAVE_OUT of
tests/support/cuda_on_cpu/sites.cpp). Such a barrier is superfluous, or the tests are too weak. But a
__syncwarp may only order what a shuffle has timed already, which preset cpu-tsan alone can tell.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time

CALL = re.compile(r"\b(__syncthreads|__syncwarp|__shfl\w*_sync|__ballot_sync|__any_sync|__all_sync)\(")


def run(case, **variables):
    """Whether the case passed; where it fails, it stops at the first failure."""
    program, name = case
    environment = dict(os.environ, GTEST_BREAK_ON_FAILURE="1", **variables)
    try:
        done = subprocess.run([program, f"--gtest_filter={name}"], env=environment, timeout=120,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def cases_of(argument):
    program, _, selection = argument.partition(",")
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={selection or '*'}"],
                            check=True, capture_output=True, text=True).stdout
    suite = ""
    for line in listed.splitlines():
        if line.startswith("  "):
            yield program, suite + line.split()[0]
        elif line.endswith("."):
            suite = line


def written(folder):
    """FILE:LINE of every call in the sources."""
    for root, _, files in os.walk(folder):
        for name in files:
            if not name.endswith((".cu", ".cuh", ".h")):
                continue
            path = os.path.join(root, name)
            with open(path, encoding="utf-8") as text:
                for number, line in enumerate(text, 1):
                    if CALL.search(line.split("//")[0]) and not line.lstrip().startswith(("*", "/*")):
                        yield f"{path}:{number}"


def in_sources(site, sources):
    """The place within SOURCES: the compiler's name of a file may be relative to its own folder."""
    end = os.path.join(*sources.split(os.sep)[-2:]) + os.sep
    return site[site.rindex(end) + len(end):] if end in site else None


def is_warp_barrier(site):
    path, number = site.rsplit(":", 1)
    with open(path, encoding="utf-8") as text:
        return "__syncwarp(" in text.readlines()[int(number) - 1]


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sources = os.path.realpath(sys.argv[1])
    met = {}
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "sites")
        for case in [case for argument in sys.argv[2:] for case in cases_of(argument)]:
            begin = time.monotonic()
            if not run(case, CUDA_ON_CPU_SITES=record):
                sys.exit(f"{case[1]}: expected it to pass with every barrier, it fails: run {case[0]}")
            seconds = time.monotonic() - begin
            if os.path.exists(record):
                with open(record, encoding="utf-8") as lines:
                    for site in lines.read().split():
                        if in_sources(site, sources):
                            met.setdefault(site, []).append((seconds, case))
                os.remove(record)
    executed = {in_sources(site, sources) for site in met}
    faults = [f"{site}: no test executes this call" for site in written(sources)
              if in_sources(site, sources) not in executed]
    for site, cases in sorted(met.items()):
        killer = next((case for _, case in sorted(cases)
                       if not run(case, CUDA_ON_CPU_LEAVE_OUT=site)), None)
        print(f"{in_sources(site, sources)}: {killer[1] if killer else 'NOT MISSED'}", flush=True)
        if killer is None and not is_warp_barrier(os.path.join(sources, in_sources(site, sources))):
            faults.append(f"{site}: no test fails without this call; delete it, or strengthen a test")
    for fault in faults:
        print(fault)
    print(f"{len(met)} places, {len(faults)} faults")
    sys.exit(1 if faults or not met else 0)


if __name__ == "__main__":
    main()

"""Faults planted in kernels under `octavo plugin verify`: each must be found, and the table says by which checks.

  faults.py <octavo> <folder of kernels-faulty> <faults.csv> [--sample N | --whole | --write]

Without an option every fault meets the checks that find it. --sample runs N of the faults, each with the first
of these checks; --whole runs every check of each, whose answers must be those of the table; --write makes the
table anew.
"""
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# What a check cannot be sure to see, and why.
NOT_FOUND = {
    "threads_share_scratch": "a race of two threads shows where they meet; found in some runs only",
}
SOUND = ("", "queue", "layer")  # the last one: a layer without a fault
SOURCES = ("faults_of_casts.cpp", "faults_of_values.cpp", "faults_of_fp4.cpp", "faults_of_devices.cpp",
           "faults_of_streams.cpp", "faults_of_special.cpp", "faulty_layer.cpp")


def faults():
    names = []
    for source in SOURCES:
        text = (HERE / source).read_text()
        names += re.findall(r'^\s+\{"(\w+)",', text[text.index("kFaults[]"):], re.M)
    return [name for name in names if name not in SOUND]


def verify(octavo, folder, fault, *options):
    """The checks that fail, or an exception with what was printed."""
    environment = {**os.environ, "OCTAVO_PLUGIN_PATH": f"{folder}:{pathlib.Path(octavo).parents[1] / 'lib/octavo/plugins'}",
                   "OCTAVO_KERNELS_FAULT": fault}
    plugin = "layer-faulty" if fault.startswith("layer") else "kernels-faulty"
    if fault == SOUND[-1]:
        environment["OCTAVO_KERNELS_FAULT"] = ""
    done = subprocess.run([octavo, "plugin", "verify", plugin, "--json", "--timeout", "200", *options],
                          capture_output=True, text=True, env=environment, timeout=600)
    try:
        found = [check["name"] for check in json.loads(done.stdout)["checks"] if check["outcome"] == "fail"]
    except ValueError as problem:
        raise SystemExit(f"{fault}: expected JSON, found\n{done.stdout}{done.stderr}") from problem
    if (done.returncode == 1) != bool(found):
        raise SystemExit(f"{fault}: exit code {done.returncode} with {len(found)} failures")
    return found


def rows_of(octavo, folder):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for fault, found in zip(faults(), pool.map(lambda fault: verify(octavo, folder, fault), faults())):
            yield {"fault": fault, "found": "yes" if found and fault not in NOT_FOUND else "no",
                   "checks": " ".join(found) if fault not in NOT_FOUND else "", "reason": NOT_FOUND.get(fault, "")}


def main(octavo, folder, table, *options):
    for fault in SOUND:
        found = verify(octavo, folder, fault)
        if found:
            sys.exit(f"sound kernels ({fault or 'no fault'}): expected no failure, found {found}")
    path = pathlib.Path(table)
    if "--write" in options:
        rows = list(rows_of(octavo, folder))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    known = list(csv.DictReader(path.open()))
    if [row["fault"] for row in known] != faults():
        sys.exit(f"{path.name}: expected the faults of the sources, {len(faults())}; make it anew with --write")
    missed = [row["fault"] for row in known if row["found"] != "yes"]
    if set(missed) - set(NOT_FOUND) or len(missed) > 2:
        sys.exit(f"not found: {missed}")
    if "--whole" in options:
        for row, now in zip(known, rows_of(octavo, folder)):
            if row != now:
                sys.exit(f"expected {row}, found {now}")
    elif "--write" not in options:
        sample, most = [row for row in known if row["found"] == "yes"], None
        if "--sample" in options:
            count, most = int(options[options.index("--sample") + 1]), 1
            sample = sample[::max(1, len(known) // count)][:count]
        checks = [row["checks"].split()[:most] for row in sample]
        only = [[word for check in each for word in ("--only", check)] for each in checks]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = pool.map(lambda row, words: verify(octavo, folder, row["fault"], *words), sample, only)
            for row, expected, now in zip(sample, checks, found):
                if now != expected:
                    sys.exit(f"{row['fault']}: expected {expected} to fail, found {now}")
        print(f"{len(sample)} of {len(known)} faults found again")
    print(f"{len(known) - len(missed)} of {len(known)} faults are found")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

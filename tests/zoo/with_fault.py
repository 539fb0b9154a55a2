"""Copies of the fake plugin, each with the number of its fault.

  with_fault.py <faults.h> <fake_good.so> <fake_load_crashes.so> <.../fake_<fault>.so>...

The second library has what runs when it is loaded; its faults are those of faults.h from LOAD_CRASHES to LOAD_SECOND.
"""
import pathlib
import re
import shutil
import struct
import sys

MARK = b"octavo zoo:\0"


def main(header, good, loading, copies):
    numbers = {name.lower(): int(number)
               for name, number in re.findall(r"#define FAULT_([A-Z0-9_]+) (\d+)", pathlib.Path(header).read_text())}
    for copy in copies:
        number = numbers[pathlib.Path(copy).stem.removeprefix("fake_")]
        acts = numbers["load_crashes"] <= number <= numbers["load_second"]
        source = loading if acts else good
        content = pathlib.Path(source).read_bytes()
        expected = MARK + struct.pack("<I", numbers["load_crashes"] if acts else numbers["good"])
        if content.count(expected) != 1:
            sys.exit(f"{source}: expected the mark and its number once, found them {content.count(expected)} times")
        pathlib.Path(copy).write_bytes(content.replace(expected, MARK + struct.pack("<I", number)))
        shutil.copymode(source, copy)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])

"""What the levels of the CPU kernels execute per element, counted by an emulator.

  instructions.py PROGRAM LEVEL... --emulator WORD...

PROGRAM is aarch64_instructions. The emulator, qemu-aarch64, writes a line for each instruction, which ends
with the name of the function; octavo_mark is called before and after the work. Counts are no times: they
tell what code a compiler made, and nothing of the processor that runs it. Fails where the first level
executes no fewer instructions than the last one: such a loop is not worth its code.
"""
import argparse
import os
import subprocess
import sys


# A line for each instruction, by the names of qemu 7 and of later ones.
SINGLE_STEPS = {"QEMU_SINGLESTEP": "1", "QEMU_ONE_INSN_PER_TB": "1"}


def per_element(emulator, program, name, level):
    environment = os.environ | SINGLE_STEPS | {"OCTAVO_FORCE_KERNELS": level}
    run = subprocess.Popen([*emulator, "-d", "exec,nochain", program, name], env=environment,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    executed = 0
    marks = 0
    was_mark = False
    for line in run.stderr:
        if not line.startswith(b"Trace "):
            continue
        is_mark = line.endswith(b" octavo_mark\n")
        marks += is_mark and not was_mark
        was_mark = is_mark
        executed += marks == 1 and not is_mark
    elements = run.stdout.read().decode()
    if run.wait() != 0 or marks != 2:
        sys.exit(f"{program} {name}: expected exit code 0 and 2 marks, found {run.returncode} and {marks}")
    return executed / int(elements)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("levels", nargs="+")
    parser.add_argument("--emulator", nargs=argparse.REMAINDER, required=True)
    given = parser.parse_args()
    names = subprocess.run([*given.emulator, given.program], check=True, capture_output=True, text=True).stdout.split()
    print(f"{'instructions per element':28}" + "".join(f"{level:>10}" for level in given.levels))
    slower = []
    for name in names:
        counts = [per_element(given.emulator, given.program, name, level) for level in given.levels]
        print(f"{name:28}" + "".join(f"{count:10.2f}" for count in counts), flush=True)
        if counts[0] >= counts[-1]:
            slower.append(name)
    if slower:
        sys.exit(f"expected fewer instructions on {given.levels[0]} than on {given.levels[-1]}, not so: {slower}")


if __name__ == "__main__":
    main()

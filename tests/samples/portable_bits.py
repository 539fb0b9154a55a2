"""train_gpt --portable gives the bits of portable_bits.json, whatever the processor and its kernels.

  portable_bits.py PROGRAM [--levels LEVEL...] [--emulator WORD...]
  portable_bits.py PROGRAM --update

For each run the file has the losses of 20 steps, the validation loss, and one digest over the hashes of all
slots of the checkpoint: weights of msamp, its optimizer states, scales, histories. Weights that the program
owns, those of te, decide each loss. --levels: instruction sets of the kernels, each must give the same;
one that the processor lacks is named and left out. --emulator: what starts PROGRAM, such as
qemu-aarch64 and its options.
"""
import argparse
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

EXPECTED = pathlib.Path(__file__).with_name("portable_bits.json")
TEXT = pathlib.Path(__file__).parents[2] / "LICENSE"
CONFIG = pathlib.Path(__file__).parents[1] / "equivalence/head_in_fp8.toml"
RUNS = [*(f"te:recipe={r}" for r in ("delayed", "current", "block", "mx")),
        *(f"msamp:opt_level={level}" for level in ("O1", "O2", "O3"))]
SIZE = ("--layers 1 --width 32 --heads 2 --context 32 --batch 4 --steps 20 --threads 1 --sample-bytes 0 "
        "--telemetry-every 0 --quiet --portable").split()


def slots_digest(path):
    """One digest over the name and the BLAKE2b of each tensor."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    hashes = {}
    for name, tensor in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in tensor["data_offsets"])
            hashes[name] = hashlib.blake2b(data[begin:end], digest_size=32).hexdigest()
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def trained(program, emulator, level):
    """Run -> what it ended with; None where the processor lacks the level."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OCTAVO_", "XDG_"))}
        environment |= {"HOME": folder, "OMP_NUM_THREADS": "1"}
        if level:
            environment["OCTAVO_FORCE_KERNELS"] = level
        done = subprocess.run([*emulator, program, str(CONFIG), *SIZE, "--text", str(TEXT), "--out", str(out), "--save",
                               str(out / "save"), "--run", *RUNS], env=environment, capture_output=True,
                              text=True, timeout=500, check=False)
        if level and done.returncode != 0 and "kernels" in done.stderr and level in done.stderr:
            return None
        if done.returncode != 0:
            sys.exit(f"{program}: expected exit code 0, found {done.returncode}: {done.stderr[-2000:]}")
        found = {run: {"losses": []} for run in RUNS}
        for line in (out / "metrics.jsonl").read_text().splitlines():
            step = json.loads(line)
            found[step["run"]]["losses"].append(step["loss"])
            if "validation_loss" in step:
                found[step["run"]]["validation_loss"] = step["validation_loss"]
        for run in RUNS:
            files = list((out / "save" / run).glob("step-*/rank-*.safetensors"))
            if len(files) != 1 or len(found[run]["losses"]) != 20:
                sys.exit(f"{run}: expected 20 losses and one file of slots, found "
                         f"{len(found[run]['losses'])} and {files}")
            found[run]["slots"] = slots_digest(files[0])
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--levels", nargs="*", default=[""])
    parser.add_argument("--emulator", nargs=argparse.REMAINDER, default=[])
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    if given.update:
        EXPECTED.write_text(json.dumps(trained(given.program, [], ""), indent=1) + "\n")
        return
    expected = json.loads(EXPECTED.read_text())
    compared = 0
    for level in given.levels:
        found = trained(given.program, given.emulator, level)
        if found is None:
            print(f"{level}: left out, the processor lacks it")
            continue
        compared += 1
        for run in RUNS:
            for what, value in expected[run].items():
                if found[run][what] != value:
                    sys.exit(f"{run}, kernels {level or 'of the processor'}: {what}: expected {value}, found "
                             f"{found[run][what]}. Where training is meant to change, take the new values with "
                             "portable_bits.py PROGRAM --update")
        print(f"kernels {level or 'of the processor'}: {len(RUNS)} runs, every bit as expected")
    if compared == 0:
        sys.exit("expected a level that the processor has, found none")


if __name__ == "__main__":
    main()

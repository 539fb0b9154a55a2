"""Power losses of programs while they save: the next one goes on from the last checkpoint that was saved, bit by bit.

  campaign.py <disk_log.so> <work folder> (train_gpt <program> | restart_host <program>) [--losses N] [--seed N]

One run saves after every step and is logged. Then the power fails N times, each at a random call, with a random part of what
no fsync had covered. What is left must hold a checkpoint at least as new as the last one whose save had returned, and a
program that goes on from it must end, one step later, with the bytes of a run without a loss. At last the same must fail for
a program without its fsyncs.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

from disk_replay import Disk, Everything, Nothing, Some, read_log, read_tree, write_tree

STEPS = 5  # of the run that is logged; the others have one more


def hashes(path):
    """{key: hash} of the slots in a file of a checkpoint."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {key: text for key, text in header["__metadata__"].items()
            if key.startswith("octavo.xxh3_128.") and key != "octavo.xxh3_128.host"}


class TrainGpt:
    """samples/train_gpt with two ranks: a folder for each step, and `latest`, which names the newest."""

    def __init__(self, program, run):
        self.program, self.run, self.name = program, run, "train_gpt " + run

    def command(self, root, is_logged):
        text = root.parent / "text"
        text.write_text("the power may fail at any time, " * 200)
        words = ["--stop-after", str(STEPS)] if is_logged else []
        if self.newest(root) > 0:
            words += ["--resume", root / "save"]
        return [self.program, "--run", self.run, "--ranks", "2", "--text", text, "--out", root / "out", "--layers", "1",
                "--width", "32", "--heads", "2", "--context", "16", "--batch", "4", "--steps", str(STEPS + 1),
                "--sample-bytes", "0", "--quiet", "--save", root / "save", "--save-every", "1", "--keep", "2", *words]

    def names(self, root):
        return [(path, path.read_text().splitlines()) for path in (root / "save").glob("*/latest")]

    def newest(self, root):
        """The step that a program would go on from; 0: it begins again."""
        steps = [re.match(r"step-(\d+)", names[0]) for _, names in self.names(root) if names]
        return max((int(step[1]) for step in steps if step), default=0)

    def promised(self, events):
        """The step whose save has returned: metrics.jsonl has a line of the next one."""
        return sum(e.what == "write" and b'"tokens_per_s":' in e.data for e in events) - 1

    def state(self, root):
        """What the newest checkpoint holds: train_gpt's file, and the hashes of the backend's tensors."""
        (path, names), = self.names(root)
        newest = path.parent / names[0]
        found = {"train_gpt.cbor": (newest / "train_gpt.cbor").read_bytes()}
        for rank in json.loads((newest / "manifest.json").read_text())["files"]:
            found[rank["name"].split(".")[0]] = hashes(newest / rank["name"])
        return found


class RestartHost:
    """A LibTorch program on octavo::torch::Accelerator: save_state in a folder for each step."""
    name = "restart_host"

    def __init__(self, program):
        self.program = program

    def command(self, root, is_logged):
        return [self.program, root / "run", *([0, STEPS + 1, "less"] if is_logged else [])]

    def newest(self, root):
        return max((int(path.parent.name) for path in root.glob("run/*/manifest.json")), default=0)

    def promised(self, events):
        """The step before the newest that has begun to save."""
        steps = [int(found[1]) for e in events if e.what == "make_directory"
                 if (found := re.match(rb"run/(\d+)$", e.data))]
        return max(steps, default=0) - 1

    def state(self, root):
        """The weights, and hashes of the slots; torch orders the optimizer's state by addresses."""
        return (root / "run/model.pt").read_bytes(), hashes(
            root / f"run/{STEPS + 1}/rank-0000-of-0001.safetensors")


class Campaign:
    def __init__(self, log_library, work, host):
        self.log_library, self.host = log_library, host
        self.work = work / re.sub(r"\W", "_", host.name)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.events = self.record()
        self.expected = self.train(self.work / "longer")

    def run(self, root, is_logged=False, **variables):
        done = subprocess.run([str(word) for word in self.host.command(root, is_logged)], env=os.environ | variables,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120)
        return done.stderr or f"exit code {done.returncode}" if done.returncode else None

    def train(self, root):
        root.mkdir()
        errors = self.run(root)
        assert errors is None, errors
        return self.host.state(root)

    def record(self):
        root = self.work / "whole"
        root.mkdir()
        errors = self.run(root, True, LD_PRELOAD=str(self.log_library), OCTAVO_DISK_LOG_ROOT=str(root),
                          OCTAVO_DISK_LOG=str(self.work / "log"))
        assert errors is None, errors
        events, disk = read_log(self.work / "log"), Disk()
        for event in events:
            disk.apply(event)
        assert disk.after_power_loss(Everything()) == read_tree(root), "the log has not all that the program wrote"
        return events

    def lose(self, count, choice, forget=()):
        """None: the next program goes on well; or what is wrong."""
        disk = Disk()
        for event in self.events[:count]:
            disk.apply(event, forget)
        root = self.work / "lost"
        shutil.rmtree(root, ignore_errors=True)
        write_tree(disk.after_power_loss(choice), root)
        newest, promised = self.host.newest(root), self.host.promised(self.events[:count])
        if newest < promised:
            return f"step {promised} was saved, the newest found is {newest}"
        errors = self.run(root)
        if errors is not None:
            return errors
        return None if self.host.state(root) == self.expected else "other bytes than without a loss"

    def lose_all(self, losses, seed):
        source = random.Random(seed)
        for number in range(losses):
            count = source.randint(0, len(self.events))
            wrong = self.lose(count, Nothing() if number % 4 == 0 else Some(source))
            assert wrong is None, f"{self.host.name}, loss {number} after {count} of {len(self.events)} calls: {wrong}"
        late = range(len(self.events) * 3 // 4, len(self.events), max(1, len(self.events) // 40))
        for forget in ("sync", "sync_directory"):
            assert any(self.lose(count, Nothing(), [forget]) for count in late), f"{forget} is left out, and all is well"
        print(f"{self.host.name}: {len(self.events)} calls, {losses} power losses, no checkpoint was lost")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log_library", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("host", choices=["train_gpt", "restart_host"])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--losses", type=int, default=int(os.environ.get("OCTAVO_POWER_LOSSES", "12")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("OCTAVO_SEED", "1")))
    options = parser.parse_args()
    hosts = [RestartHost(options.program)]
    if options.host == "train_gpt":
        hosts = [TrainGpt(options.program, run) for run in ("te", "msamp:opt_level=O3")]
    for host in hosts:
        Campaign(options.log_library, options.work.resolve(), host).lose_all(options.losses, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a script of Accelerate's examples as octavo run does, with the lines of LINES changed where it has them:
peers_run.py <script> <arguments of the script>. Under ACCELERATE_MIXED_PRECISION=bf16 it runs without Octavo.

The last line is JSON: the losses of its backward passes, the layers in FP8, and what kind of ranks it had.
"""
import contextlib
import json
import os
import runpy
import sys
import tempfile

import accelerate
import torch

import octavo.torch
from octavo.run import Program
from torchrun import sharding_on_cpus

# Not Octavo's matter: without it the script ends on a machine without a GPU.
LINES = {"\nclass TorchTracemalloc:": "\nclass TorchTracemalloc:\n    begin = end = peak = 0\n"}


def changed(script, folder):
    """The path of the script with these lines changed, and how many were."""
    with open(script, encoding="utf-8") as f:
        text = f.read()
    path = os.path.join(folder, os.path.basename(script))
    found = sum(text.count(before) for before in LINES)
    for before, after in LINES.items():
        text = text.replace(before, after)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path, found


def watch(found):
    """Notes what every Accelerator does from now on."""
    backward, end = accelerate.Accelerator.backward, accelerate.Accelerator.end_training

    def noted(self, loss, **options):
        found["losses"].append(loss.item())
        found["kind"] = self.distributed_type.name
        found["precision"] = self.mixed_precision
        return backward(self, loss, **options)

    def ended(self):
        for model in self._models:
            with contextlib.suppress(octavo.StateError):
                found["layers"] = len(octavo.torch.session_of(model).sites)
        return end(self)

    accelerate.Accelerator.backward, accelerate.Accelerator.end_training = noted, ended


def main():
    torch.set_num_threads(1)
    found = {"losses": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        script, found["changes"] = changed(sys.argv[1], folder)
        if os.environ.get("OCTAVO_FSDP2_ON_CPUS"):
            stack.enter_context(sharding_on_cpus())
        watch(found)
        try:
            if os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16":
                sys.argv = [script, *sys.argv[2:]]
                runpy.run_path(script, run_name="__main__")
            else:
                Program().run(False, script, sys.argv[2:])
        except octavo.OctavoError as e:
            found["error"] = f"{type(e).__name__}: {e}"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

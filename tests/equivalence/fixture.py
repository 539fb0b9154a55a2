"""For tests of the study: a plan, a folder of its own, and records of the test's choice."""
import contextlib
import io
import pathlib
import random
import tempfile
import unittest

import page
import plan as plans
import study
from ledger import Ledger

PLAN = """schema = 1
[train]
layers = 1
heads = 2
width = 32
context = 16
batch = 4
steps = 12
rate = 5e-3
end-rate = 0.0
[text]
path = "PATH"
sha256 = "SHA256"
[test]
alpha = 0.05
power = 0.9
confidence = 0.8
first_seed = 101
[[margin]]
percent = 0.5
assumed_difference = 0.1
seeds = 6
[[margin]]
percent = 0.25
assumed_difference = 0.1
seeds = 10
[pilot]
first_seed = 1
seeds = 3
recipes = ["bf16", "te current"]
[[recipe]]
name = "bf16"
run = "bf16"
head = "bf16"
[[recipe]]
name = "control"
run = "bf16"
head = "bf16"
nudge = true
[[recipe]]
name = "te current"
run = "te:recipe=current"
head = "fp8"
[[recipe]]
name = "msamp O2, head in the host"
run = "msamp:opt_level=O2"
head = "host"
"""
PAGE = f"# Title\n\n{page.BEGIN}\nold\n{page.END}\nAfter.\n"


class Folder(unittest.TestCase):
    """A study of its own, in a folder that goes away."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        self.ledger_path = self.folder / "equivalence/runs.jsonl"
        (self.folder / "equivalence.md").write_text(PAGE)
        self.plan = self.write_plan(PLAN)

    def write_plan(self, text):
        path = self.folder / "plan.toml"
        path.write_text(text)
        return plans.load(path)

    def record(self, seeds, build="a", **losses):
        """Appends runs of seeds; losses: recipe -> function of the seed."""
        ledger = Ledger(self.ledger_path)
        with ledger.open():
            for seed in seeds:
                for name, loss in losses.items():
                    recipe = self.plan.recipe(name)
                    ledger.append({"recipe": name, "seed": seed, "loss": loss(seed), "skipped": 0, "seconds": 40.0,
                                   "plan": self.plan.hash, "settings": self.plan.settings(recipe), "build": build,
                                   "cpu": "a processor"})
        return Ledger(self.ledger_path)

    def study(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = study.main([*arguments, "--plan", str(self.folder / "plan.toml"), "--results", str(self.folder)])
        return code, errors.getvalue()


def noisy(percent, deviation=0.1):
    """Losses near 1.57 whose differences to those of noisy(0, 0) have this mean and deviation."""
    def loss(seed):
        base = random.Random(seed).gauss(1.57, 0.01)
        return base * (1.0 + 0.01 * random.Random(seed + 0.5).gauss(percent, deviation))
    return loss


BASE = {"bf16": noisy(0.0, 0.0), "control": noisy(0.0, 0.02)}

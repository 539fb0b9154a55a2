"""The study from its first run to its page, with a tiny model: it trains, resumes and repeats.

  study_run_test.py <build folder>
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True

import runner
from analysis import rows
from fixture import PLAN, Folder
from ledger import Ledger
from plan import text_hash

BUILD = ""
STUDY = pathlib.Path(__file__).resolve().parent / "study.py"
WORDS = "the seed of a pair gives both runs equal weights and equal batches. "


class Study(Folder):
    def setUp(self):
        super().setUp()
        (self.folder / "text").write_text("".join(WORDS[i % 7:] for i in range(100)))
        text = PLAN.replace("PATH", str(self.folder / "text")).replace("SHA256", text_hash(self.folder / "text"))
        for old, new in (("seeds = 6", "seeds = 60"), ("seeds = 10", "seeds = 80"), ("steps = 12", "steps = 60"),
                         ("first_seed = 1\n", "first_seed = 1001\n")):
            text = text.replace(old, new)
        self.plan = self.write_plan(text)

    def command(self, *arguments):
        return [sys.executable, str(STUDY), *arguments, "--build", BUILD, "--plan", str(self.plan.path),
                "--results", str(self.folder)]

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=120)

    def test_two_seeds_from_the_first_run_to_the_page(self):
        # Interrupted after some runs: what has ended stays, and the next call goes on.
        process = self.start("run", "--minutes", "5", "--jobs", "1")
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        self.assertIn("what has ended is in the ledger", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 130)
        before = self.ledger_path.read_text()
        self.assertGreaterEqual(len(before.splitlines()), 5)

        # Nothing begins after the time is over.
        self.assertIn("0 runs done", self.finish("run", "--minutes", "0").stdout)
        self.plan = self.write_plan(self.plan.path.read_text())
        while len(Ledger(self.ledger_path).runs) < 8:
            done = self.finish("run", "--minutes", "0.02", "--jobs", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.ledger_path.read_text().startswith(before))
        ledger = Ledger(self.ledger_path)
        for recipe in self.plan.everything:
            for seed in (101, 102):
                loss = ledger.find(recipe.name, seed)["loss"]
                self.assertTrue(0.0 < loss < 5.5, (recipe.name, loss))  # ln 256 = 5.5 before any training
        self.assertNotEqual(ledger.find("bf16", 101)["loss"], ledger.find("te current", 101)["loss"])
        self.assertGreaterEqual(min(r.n for r in rows(self.plan, ledger, self.plan.margins[0])), 2)

        self.assertEqual(self.finish("report").returncode, 0)
        self.assertIn("running, ", (self.folder / "equivalence/intervals.csv").read_text())

        # The same run again has the same bits; a build that is not the ledger's is refused before.
        text = self.ledger_path.read_text()
        build = ledger.runs[0]["build"]
        self.ledger_path.write_text(text.replace(build, "another"))
        refused = self.finish("run", "--minutes", "1")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("runs of build another", refused.stderr)
        accepted = self.finish("accept", "--reason", "The build folder moved.")
        self.assertEqual(accepted.returncode, 0, accepted.stderr)
        for repeated in Ledger(self.ledger_path).accepted[0]["repeated"]:
            self.assertEqual(repeated["recorded"], repeated["found"], repeated["recipe"])
        self.assertEqual(self.finish("run", "--minutes", "0").returncode, 0)
        self.assertEqual(self.finish("report").returncode, 0)
        self.assertIn("The build folder moved. Of 3 repeated runs 3 were bit-identical.",
                      (self.folder / "equivalence.md").read_text())

    def test_a_run_that_fails_ends_the_study_and_leaves_no_record(self):
        self.plan = self.write_plan(self.plan.path.read_text().replace("recipe=current", "recipe=currant"))
        failed = self.finish("run", "--minutes", "1")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("te current, seed 101: expected exit code 0, found 2", failed.stderr)
        self.assertEqual([r["recipe"] for r in Ledger(self.ledger_path).runs], ["bf16", "control"])

    def test_the_head_is_where_the_recipe_has_it(self):
        for recipe, head in zip(self.plan.recipes, ("te", "host fp32"), strict=True):
            run = runner.Program(BUILD).start(self.plan, recipe, 7)
            deadline = time.monotonic() + 60
            while not run.ended():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            page = pathlib.Path(run.folder, "report.html").read_text()
            run.record()
            run.end()
            self.assertFalse(os.path.exists(run.folder))
            start = page.index('"placements":') + len('"placements":')
            placements = json.loads(page[start:page.index("]", start) + 1])
            self.assertEqual({p["layer"]: p["where"] for p in placements}["head"], head)
            self.assertTrue(all(p["where"] != "host fp32" for p in placements if p["layer"] != "head"))


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()

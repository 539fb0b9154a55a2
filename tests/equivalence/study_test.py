"""What guards the study: its plan's hash, its builds and its ledger.

Runs here are records of the test's choice. study_run_test.py trains.
"""
import pathlib
import sys
import tomllib
import unittest

sys.dont_write_bytecode = True

import plan as plans
import runner
from errors import StudyError
from fixture import BASE, PLAN, Folder, noisy
from ledger import Ledger


class Plan(Folder):
    def test_every_byte_is_in_the_hash(self):
        again = self.write_plan(PLAN)
        self.assertEqual(again.hash, self.plan.hash)
        self.assertNotEqual(self.write_plan(PLAN.replace("alpha = 0.05", "alpha = 0.10")).hash, self.plan.hash)
        self.assertNotEqual(self.write_plan(PLAN + "# a word\n").hash, self.plan.hash)

    def test_settings_are_what_numbers_depend_on(self):
        recipe = self.plan.recipes[0]
        other = self.write_plan(PLAN.replace("seeds = 6", "seeds = 7"))
        self.assertEqual(other.settings(recipe), self.plan.settings(recipe))
        other = self.write_plan(PLAN.replace("steps = 12", "steps = 13"))
        self.assertNotEqual(other.settings(recipe), self.plan.settings(recipe))
        self.assertNotEqual(self.plan.settings(self.plan.base), self.plan.settings(self.plan.control))

    def test_arguments(self):
        head, host = (self.plan.arguments(r, 7) for r in self.plan.recipes)
        base = self.plan.arguments(self.plan.base, 7)
        self.assertNotIn("--config", base)
        for arguments, skip in ((head, []), (host, ["head"])):
            config = tomllib.loads(pathlib.Path(arguments[arguments.index("--config") + 1]).read_text())
            self.assertEqual(config["layers"]["skip"], skip)
            self.assertEqual(config["fp8"]["te"]["amax_history_len"], 1024)
        self.assertEqual(head[-4:], ["--seed", "7", "--run", "te:recipe=current"])
        self.assertEqual(self.plan.arguments(self.plan.control, 7)[-1], "--nudge")

    def test_a_recipe_that_is_gone_is_named(self):
        with self.assertRaises(StudyError) as raised:
            self.plan.recipe("te delayed")
        self.assertIn("the recipe te delayed of a record", str(raised.exception))

    def test_mistakes_are_refused(self):
        for old, new, words in (
                ("alpha = 0.05", "alhpa = 0.05", "[test]"), ("schema = 1", "schema = 2", "schema"),
                ("seeds = 6", "seeds = 12", "rising numbers of seeds"),
                ("first_seed = 1\n", "first_seed = 110\n", "pilot"),
                ('head = "host"', 'head = "hsot"', "fp8, host, bf16 or fp32"),
                ("nudge = true", "nudge = false", "nudge"),
                ('name = "te current"', 'name = "control"', "a name of its own"),
                ('"te current"]', '"te"]', "names of recipes"), ("[train]", "[train", "TOML")):
            with self.assertRaises(StudyError) as raised:
                self.write_plan(PLAN.replace(old, new, 1))
            self.assertIn(words, str(raised.exception))
            self.assertIn("expected", str(raised.exception))


class Guards(Folder):
    def test_runs_of_another_plan_are_refused(self):
        self.record([101], **BASE)
        self.assertEqual(self.study("report")[0], 0)
        self.write_plan(PLAN.replace("percent = 0.5", "percent = 0.6"))
        code, errors = self.study("report")
        self.assertEqual(code, 1)
        self.assertIn(f"2 runs of plan {self.plan.hash}", errors)
        self.assertIn("accept --reason", errors)

    def test_runs_of_another_build_are_refused_until_a_reason_is_given(self):
        self.record([101], "a", **BASE)
        ledger = self.record([102], "b", **BASE)
        self.assertIn("2 runs of build b", self.study("report")[1])
        with self.assertRaises(StudyError):
            ledger.guard(self.plan, "c")
        with ledger.open():
            ledger.append({"accept": {"plan": [], "build": ["a", "b"], "reason": "The same sources.", "repeated": [
                {"recipe": "bf16", "seed": 101, "recorded": 1.5, "found": 1.5}]}})
        ledger.guard(self.plan, "a")
        with self.assertRaises(StudyError):
            ledger.guard(self.plan, "c")
        self.assertEqual(self.study("report"), (0, ""))
        text = (self.folder / "equivalence.md").read_text()
        self.assertIn("The same sources. Of 1 repeated runs 1 were bit-identical.", text)

    def test_another_text_is_refused(self):
        (self.folder / "text").write_text("A text.")
        wrong = self.write_plan(PLAN.replace("PATH", str(self.folder / "text")))
        with self.assertRaises(StudyError) as raised:
            runner.check_text(wrong)
        found = plans.text_hash(self.folder / "text")
        self.assertIn(found, str(raised.exception))
        text = PLAN.replace("PATH", str(self.folder / "text")).replace("SHA256", found)
        runner.check_text(self.write_plan(text))

    def test_a_build_without_its_files_is_refused(self):
        with self.assertRaises(StudyError) as raised:
            runner.Program(self.folder)
        self.assertIn("bin/train_gpt", str(raised.exception))


class Lines(Folder):
    def test_a_line_that_was_cut_off_is_dropped(self):
        self.record([101], **BASE)
        with open(self.ledger_path, "a") as file:
            file.write('{"recipe": "te cur')
        self.assertEqual(len(Ledger(self.ledger_path).runs), 2)
        self.record([102], **BASE)
        self.assertEqual([r["seed"] for r in Ledger(self.ledger_path).runs], [101, 101, 102, 102])

    def test_damage_is_refused(self):
        self.record([101], **BASE)
        good = self.ledger_path.read_text()
        for text in ("no json\n", "{}\n", good.splitlines()[0] + "\n"):
            self.ledger_path.write_text(good + text)
            with self.assertRaises(StudyError) as raised:
                Ledger(self.ledger_path)
            self.assertIn("runs.jsonl:3", str(raised.exception))

    def test_two_programs_do_not_write_one_ledger(self):
        with Ledger(self.ledger_path).open(), self.assertRaises(StudyError):
            with Ledger(self.ledger_path).open():
                pass

    def test_seeds_are_completed_one_after_the_other(self):
        ledger = self.record([101], bf16=noisy(0.0))
        work = runner.pending(self.plan.everything, self.plan.seeds(), ledger)
        self.assertEqual(len(work), 39)
        self.assertEqual([(r.name, s) for r, s in work[:4]], [
            ("control", 101), ("te current", 101), ("msamp O2, head in the host", 101), ("bf16", 102)])


if __name__ == "__main__":
    unittest.main()

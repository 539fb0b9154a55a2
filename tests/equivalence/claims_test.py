"""What the study may claim: verdicts, the page and its picture, and the number of seeds.

Runs here are records of the test's choice.
"""
import csv
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True

import analysis
import chart
import plan as plans
from errors import StudyError
from fixture import BASE, PLAN, Folder, noisy
from ledger import Ledger

HERE = pathlib.Path(__file__).resolve().parent


class Claims(Folder):
    def verdicts(self, place):
        return [row.verdict for row in analysis.rows(self.plan, Ledger(self.ledger_path), self.plan.margins[place])]

    def test_verdicts_wait_for_the_planned_seeds(self):
        other = {"te current": noisy(0.05), "msamp O2, head in the host": noisy(1.0)}
        self.record(range(101, 106), **BASE, **other)
        self.assertEqual(self.verdicts(0), ["running, 5 of 6"] * 3)
        self.record([106], **BASE, **other)
        self.assertEqual(self.verdicts(0), ["equivalent", "equivalent", "different"])
        self.assertEqual(self.verdicts(1), ["running, 6 of 10"] * 3)
        # Further seeds belong to the other margin and change nothing here.
        self.record(range(107, 111), **BASE, **{name: noisy(3.0) for name in other})
        self.assertEqual(self.verdicts(0), ["equivalent", "equivalent", "different"])
        self.assertEqual(self.verdicts(1)[0], "equivalent")
        self.assertNotEqual(self.verdicts(1)[1], "equivalent")

    def test_a_control_that_shows_nothing_voids_every_claim(self):
        self.record(range(101, 107), **{**BASE, "control": noisy(0.0, 3.0)}, **{"te current": noisy(0.05)})
        self.assertEqual(self.verdicts(0)[:2], ["not shown", analysis.VOID])

    def test_a_run_that_diverged_is_a_difference(self):
        self.record(range(101, 107), **BASE, **{"te current": lambda seed: None if seed == 103 else 1.57})
        self.assertEqual(self.verdicts(0)[1], "different: 1 runs without a finite loss")

    def test_pairs_need_both_runs(self):
        self.record(range(101, 104), **BASE)
        self.record(range(104, 107), bf16=BASE["bf16"])
        self.record(range(101, 107), **{"te current": noisy(0.0)})
        rows = analysis.rows(self.plan, Ledger(self.ledger_path), self.plan.margins[0])
        self.assertEqual([row.n for row in rows], [3, 6, 0])
        self.assertEqual([row.control.n if row.control else 0 for row in rows], [3, 3, 0])

    def test_the_page_says_what_the_ledger_gives(self):
        self.record(range(101, 104), **BASE, **{"te current": noisy(0.4)})
        self.assertEqual(self.study("report"), (0, ""))
        text = (self.folder / "equivalence.md").read_text()
        for words in ("# Title", "After.", "9 of 40 runs", "(equivalence/intervals.csv)", self.plan.hash):
            self.assertIn(words, text)
        with open(self.folder / "equivalence/intervals.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        self.assertEqual([row[4::4] for row in rows[1:]],
                         [[f"running, {n} of 6", f"running, {n} of 10"] for n in (3, 3, 0)])
        picture = xml.etree.ElementTree.parse(self.folder / "equivalence/intervals.svg").getroot()
        kinds = [e.get("class") for e in picture.iter() if e.tag.endswith("circle")]
        self.assertEqual(kinds, ["running", "running"])
        self.assertEqual(self.study("report", "--check"), (0, ""))
        self.record([104], **BASE)
        self.assertEqual(self.study("report", "--check")[0], 1)

    def test_the_picture_keeps_far_intervals_inside(self):
        self.record(range(101, 107), **BASE, **{"te current": noisy(40.0)})
        rows = analysis.rows(self.plan, Ledger(self.ledger_path), self.plan.margins[0])
        root = xml.etree.ElementTree.fromstring(chart.svg(rows, [0.5, 0.25], 90.0))
        for circle in (e for e in root.iter() if e.tag.endswith("circle")):
            self.assertTrue(chart.LEFT <= float(circle.get("cx")) <= chart.RIGHT)

    def test_the_pilot_gives_the_number_of_seeds(self):
        self.record(range(1, 4), bf16=noisy(0.0, 0.0), **{"te current": noisy(0.1, 0.2)})
        found = analysis.pilot(self.plan, Ledger(self.ledger_path))
        self.assertEqual(found.freedom, 2)
        # The control is shown and not pooled: it parts late, so its differences are smaller.
        self.record(range(1, 4), control=noisy(0.0, 0.01))
        self.plan.pilot["recipes"].append("control")
        again = analysis.pilot(self.plan, Ledger(self.ledger_path))
        self.assertEqual((again.pooled, again.freedom), (found.pooled, 2))
        self.assertLess(again.deviations["control"], again.deviations["te current"])
        self.assertGreater(found.bound, found.pooled)
        for margin, needed, power in analysis.seeds_by_power(self.plan, found.bound):
            self.assertEqual(needed <= margin.seeds, power >= 0.9)
        other = self.write_plan(PLAN.replace("steps = 12", "steps = 13"))
        with self.assertRaises(StudyError):
            analysis.pilot(other, Ledger(self.ledger_path))


class Committed(unittest.TestCase):
    def test_the_plan_has_the_seeds_that_its_pilot_asks_for(self):
        plan = plans.load(HERE / "plan.toml")
        found = analysis.pilot(plan, Ledger(HERE.parents[1] / "docs/results/equivalence/pilot.jsonl"))
        for margin, needed, _ in analysis.seeds_by_power(plan, found.bound):
            self.assertEqual(margin.seeds, needed)


if __name__ == "__main__":
    unittest.main()

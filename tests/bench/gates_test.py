"""Tests of gates.py and what it calls; those of the rules are in gate_rules_test.py.

A stand-in for bench_cpu writes results of the test's choice, so nothing is measured here.
"""
import contextlib
import io
import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import gate_chart
import gate_output
import gate_rules
import gates
from gate_rules_test import CONTEXT, ZEN4, Column, Goals, Parsing, Verdict, gate, row, run_of
from gate_table import GATES

__all__ = ["Column", "Goals", "Parsing", "Verdict"]   # run from here, too


class Output(unittest.TestCase):
    def setUp(self):
        self.run_ = run_of({"Cast/ours/512KiB": 10e9, "Cast/aten/512KiB": 5e9})
        self.machine = gate_rules.classify(self.run_)
        self.results = gate_rules.judge_all(self.run_, self.machine)

    def test_table_names_every_gate_with_its_reason(self):
        text = gate_output.table(self.results)
        for g in GATES:
            self.assertIn(g.id, text)
        self.assertIn("not measured: no row", text)

    def test_markdown_replaces_between_the_markers_only(self):
        page = f"before\n{gate_output.BEGIN}\nold\n{gate_output.END}\nafter\n"
        content = gate_output.markdown(self.run_, self.machine, self.results)
        text = gate_output.replace_between(page, content)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("old", text)
        self.assertIn("Gates that are met: 1.", text)
        self.assertNotIn("| C1 |", text)  # it is met
        self.assertIn("not measured: no row", text)
        self.assertEqual(gate_output.replace_between(text, content), text)
        with self.assertRaises(ValueError):
            gate_output.replace_between("no markers", content)

    def test_chart_is_xml_with_a_row_for_each_ratio(self):
        text = gate_chart.svg(self.results, "a < b")
        root = xml.etree.ElementTree.fromstring(text)
        words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("C1", words)
        self.assertIn("2.00", words)
        self.assertNotIn("C11", words)

    def test_axis_holds_every_value(self):
        ticks = gate_chart.axis([0.3, 14.0])
        self.assertEqual((ticks[0], ticks[-1]), (0.25, 16.0))


class Program(unittest.TestCase):
    """gates.py from its arguments to its exit code, on a stand-in for bench_cpu."""

    def call(self, *options, rates=None, after=None, code=0, folder=None, cpu_time=2.0):
        with tempfile.TemporaryDirectory() as directory:
            tests = pathlib.Path(folder or directory, "tests")
            tests.mkdir(exist_ok=True)
            if rates is not None:
                rows = {"context": CONTEXT,
                        "benchmarks": [row(n, r, cpu_time=cpu_time) for n, r in rates.items()]}
                peaks = {"before": ZEN4, "after": after or ZEN4}
                script = tests / "bench_cpu"
                script.write_text(
                    f"#!{sys.executable}\nimport sys\n"
                    "files = dict(a[2:].split('=', 1) for a in sys.argv[1:])\n"
                    f"open(files['benchmark_out'], 'w').write({json.dumps(rows)!r})\n"
                    f"open(files['peaks_out'], 'w').write({json.dumps(peaks)!r})\n"
                    f"sys.exit({code})\n")
                os.chmod(script, stat.S_IRWXU)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = gates.main(["--build", directory, *options])
                except SystemExit as e:
                    status = e.code
            return status, out.getvalue(), err.getvalue()

    GOOD = {"Cast/ours/512KiB": 10e9, "Cast/aten/512KiB": 5e9}

    def test_met_missed_and_not_to_be_judged(self):
        self.assertEqual(self.call("--filter", "C1", rates=self.GOOD)[0], 0)
        bad = {**self.GOOD, "Cast/aten/512KiB": 9e9}
        status, out, _ = self.call("--filter", "C1", rates=bad)
        self.assertEqual(status, 1)
        self.assertIn("below floor", out)
        status, _, err = self.call("--filter", "C1", rates=bad, after={**ZEN4, "fma512": 50.0})
        self.assertEqual(status, 77)
        self.assertIn("attempt 2", err)

    def test_one_free_core_is_not_enough_for_two_threads(self):
        rates = {r: 1e9 for ours, others in gate("C6.T2").pairs for r in (ours, *others)}
        self.assertEqual(self.call("--filter", "C6.T2", rates=rates, cpu_time=9.0)[0], 0)
        self.assertEqual(self.call("--filter", "C6.T2", rates=rates, cpu_time=6.0)[0], 77)
        status, out, _ = self.call("--filter", "C6.T2", rates=rates, cpu_time=9.0,
                                   after={**ZEN4, "two_dots": 240.0})
        self.assertEqual(status, 77)
        self.assertIn("not judged: two cores were not free", out)

    def test_bad_usage_and_bad_runs(self):
        status, _, err = self.call("--filter", "C99", rates=self.GOOD)
        self.assertEqual(status, 2)
        self.assertIn("C99", err)
        status, _, err = self.call()
        self.assertEqual(status, 2)
        self.assertIn("bench_cpu", err)
        self.assertEqual(self.call("--repetitions", "0", rates=self.GOOD)[0], 2)
        self.assertEqual(self.call(rates=self.GOOD, code=3)[0], 2)

    def test_files_are_written(self):
        with tempfile.TemporaryDirectory() as directory:
            page = pathlib.Path(directory, "page.md")
            page.write_text(f"{gate_output.BEGIN}\n{gate_output.END}\n")
            json_file = pathlib.Path(directory, "out.json")
            chart = pathlib.Path(directory, "out.svg")
            status, _, err = self.call("--json", str(json_file), "--svg", str(chart), "--markdown",
                                       str(page), rates=self.GOOD)
            self.assertEqual(status, 0, err)
            self.assertIn("](out.svg)", page.read_text())
            rates = page.with_suffix(".csv")
            self.assertIn(f"]({rates.name})", page.read_text())
            self.assertIn("](page_gates.csv)", page.read_text())
            self.assertIn("\nC1,", page.with_name("page_gates.csv").read_text())
            self.assertRegex(rates.read_text(), r"\Arow,median\n(\S+,[\d.]+( ns| us)?\n)+\Z")
            first = json.loads(json_file.read_text())["gates"][0]
            self.assertEqual((first["id"], first["value"], first["verdict"]), ("C1", 2.0, "ok"))
            xml.etree.ElementTree.parse(chart)

    def test_filter_asks_for_the_rows_of_its_gates(self):
        pattern = gates.row_filter([gate("C12"), gate("C1")])
        self.assertRegex("Cast/ours/512KiB", pattern)
        self.assertRegex("PluginLoad/dlopen/iterations:20/manual_time", pattern)
        self.assertNotRegex("Cast/ours/512KiBx", pattern)


if __name__ == "__main__":
    unittest.main()

"""Tests of gate_rules.py and gate_table.py: the choice of a column, arithmetic, verdicts, parsing."""
import json
import unittest

import gate_rules
from gate_table import GATES, Gate, Goal

ZEN4 = {"fma512": 117.0, "fma256": 117.0, "dot512": 233.0, "nt_copy": 38.0,
        "two_dots": 460.0, "two_copies": 73.0}
ZEN5 = {"fma512": 268.0, "fma256": 133.0, "dot512": 535.0, "nt_copy": 52.0,
        "two_dots": 1050.0, "two_copies": 104.0}
CONTEXT = {"kernels": "cpu.avx512_bf16", "onednn": "2.6.3"}


def run_of(rates, peaks=None, after=None, context=None, errors=None):
    medians = {name: {"rate": rate, "ns": 1e9 / rate, "wire": rate, "cpu_time": 2.0,
                      "real_time": 1.0} for name, rate in rates.items()}
    peaks = peaks or ZEN4
    return gate_rules.Run(medians, errors or {}, context or CONTEXT,
                          {"before": peaks, "after": after or peaks})


def gate(name):
    return next(g for g in GATES if g.id == name)


def judged(run, name):
    return gate_rules.judge(run, gate_rules.classify(run), gate(name))


def row(name, rate, **more):
    return {"name": f"{name}_median", "run_name": name, "run_type": "aggregate",
            "aggregate_name": "median", "time_unit": "us", "real_time": 5.0, "cpu_time": 2.0,
            "items_per_second": rate, **more}


class Column(unittest.TestCase):
    def column(self, before, after=None, **context):
        return gate_rules.classify(run_of({}, before, after, {**CONTEXT, **context}))

    def test_follows_from_the_width_of_the_multiply_adds(self):
        self.assertEqual(self.column(ZEN4).column, "Zen 4")
        self.assertEqual(self.column(ZEN5).column, "Zen 5")
        self.assertEqual(self.column({**ZEN4, "fma256": 78.0}).column, "unclassified")

    def test_other_without_bf16_dots_or_with_a_lower_level_of_kernels(self):
        self.assertEqual(self.column({**ZEN4, "dot512": 0}).column, "other")
        self.assertEqual(self.column(ZEN4, kernels="cpu.avx2").column, "other")

    def test_a_core_whose_speed_changed_is_not_trusted(self):
        self.assertTrue(self.column(ZEN4, {**ZEN4, "fma512": 111.0}).trusted)
        self.assertFalse(self.column(ZEN4, {**ZEN4, "fma512": 110.0}).trusted)
        self.assertFalse(self.column({**ZEN4, "dot512": 260.0}).trusted)

    def test_a_copy_whose_speed_changed_leaves_the_core_trusted(self):
        machine = self.column(ZEN4, {**ZEN4, "nt_copy": 30.0})
        self.assertTrue(machine.trusted)
        self.assertFalse(machine.steady_copy)

    def test_memory_gates_need_an_ordinary_balance(self):
        self.assertTrue(self.column(ZEN4).memory)
        self.assertFalse(self.column({**ZEN4, "nt_copy": 16.0}).memory)
        self.assertFalse(self.column({**ZEN4, "nt_copy": 50.0}).memory)


class Verdict(unittest.TestCase):
    def test_ratio_against_the_floor_of_the_column(self):
        rates = {"Cast/ours/512KiB": 10e9, "Cast/aten/512KiB": 5e9}
        result = judged(run_of(rates), "C1")
        self.assertAlmostEqual(result.value, 2.0)
        self.assertEqual(result.verdict, gate_rules.OK)
        self.assertEqual(judged(run_of(rates, ZEN5), "C1").verdict, gate_rules.BELOW)
        self.assertEqual(judged(run_of(rates, {**ZEN4, "fma256": 78.0}), "C1").goal.floor, 1.5)

    def test_geometric_mean_over_shapes_against_the_best_opponent(self):
        rates = {}
        for i, (ours, opponents) in enumerate(gate("C7").pairs):
            rates[ours] = 200e9 * 2 ** i
            rates[opponents[0]] = 50e9
            rates[opponents[1]] = 100e9
        result = judged(run_of(rates), "C7")
        self.assertAlmostEqual(result.value, 2 * 2 ** 1.5)
        self.assertTrue(all("openblas" in part[1] for part in result.parts))

    def test_bytes_over_a_copy(self):
        run = run_of({"Cast/ours/256MiB": 6e9, "Copy/nontemporal": 40e9})
        self.assertAlmostEqual(judged(run, "C2").value, 0.75)
        self.assertEqual(judged(run, "C2").verdict, gate_rules.BELOW)

    def test_a_rate_without_opponents_is_judged_by_itself(self):
        self.assertAlmostEqual(judged(run_of({"Adam/coat": 0.4e9}), "C10.coat").value, 0.4)
        self.assertEqual(judged(run_of({"Adam/coat": 0.4e9}), "C10.coat").verdict, gate_rules.BELOW)
        self.assertEqual(judged(run_of({"Adam/coat": 0.6e9}), "C10.coat").verdict, gate_rules.OK)
        missing = judged(run_of({}), "C10.coat")
        self.assertEqual((missing.verdict, missing.reason), (gate_rules.MISSING, "no row Adam/coat"))

    def test_lower_is_better_for_times_and_counters(self):
        run = run_of({"Boundary/built": 1e9 / 13, "Boundary/direct": 1e9 / 2})
        self.assertAlmostEqual(judged(run, "C11").value, 11.0)
        self.assertEqual(judged(run, "C11").verdict, gate_rules.BELOW)
        run = run_of({"Forward/empty": 1e9 / 6, "Forward/direct": 1e9 / 2})
        self.assertAlmostEqual(judged(run, "C11.empty").value, 4.0)
        self.assertEqual(judged(run, "C11.empty").verdict, gate_rules.OK)
        run = run_of({"PluginProbe/fresh": 25, "PluginProbe/cached": 50})
        for gate in ("C12.fresh", "C12.cached"):
            self.assertEqual(judged(run, gate).verdict, gate_rules.OK)
        self.assertAlmostEqual(judged(run, "C12.fresh").value, 40.0)
        self.assertEqual(judged(run_of({"PluginProbe/cached": 40}), "C12.cached").verdict,
                         gate_rules.BELOW)
        run = run_of({"PluginLoad/handshake": 1, "PluginLoad/dlopen": 3})
        self.assertAlmostEqual(judged(run, "C12").value, 3.0)
        self.assertEqual(judged(run, "C12").verdict, gate_rules.BELOW)
        run = run_of({"AllReduce/msamp/W8": 1.75, "AllReduce/f32/W8": 7.0})
        self.assertAlmostEqual(judged(run, "C15").value, 0.25)

    def test_one_part_that_is_missing_leaves_the_gate_unmeasured_with_its_reason(self):
        rates = {row: 1e9 for row, _ in gate("C6").pairs}
        result = judged(run_of(rates, context={"kernels": "cpu.avx512_bf16"}), "C6")
        self.assertEqual(result.verdict, gate_rules.MISSING)
        self.assertIn("libdnnl-dev", result.reason)
        result = judged(run_of(rates, errors={"Cast/ours/512KiB": "no AVX-512"}), "C1")
        self.assertIn("no AVX-512", result.reason)

    def test_untrusted_runs_are_not_judged_but_counters_are(self):
        after = {**ZEN4, "dot512": 200.0}
        rates = {"Cast/ours/512KiB": 1e9, "Cast/aten/512KiB": 5e9, "AllReduce/msamp/W8": 7.0,
                 "AllReduce/f32/W8": 7.0}
        self.assertEqual(judged(run_of(rates, after=after), "C1").verdict, gate_rules.SKIPPED)
        self.assertEqual(judged(run_of(rates, after=after), "C15").verdict, gate_rules.BELOW)

    def test_two_threads_are_not_judged_where_one_core_is_busy(self):
        rates = {r: 1e9 for name in ("C6.T2", "C2.T2") for ours, others in gate(name).pairs
                 for r in (ours, *others)}
        self.assertEqual(judged(run_of(rates), "C6.T2").verdict, gate_rules.REPORTED)
        self.assertEqual(judged(run_of(rates), "C2.T2").verdict, gate_rules.REPORTED)
        one_core = run_of(rates, after={**ZEN4, "two_dots": 300.0})
        self.assertEqual(judged(one_core, "C6.T2").verdict, gate_rules.SKIPPED)
        self.assertIn("two cores", judged(one_core, "C6.T2").reason)
        shared = run_of(rates)
        shared.medians[gate("C6.T2").pairs[1][1][0]]["cpu_time"] = 1.2
        self.assertEqual(judged(shared, "C6.T2").verdict, gate_rules.SKIPPED)
        one_memory = run_of(rates, after={**ZEN4, "two_copies": 50.0})
        self.assertEqual(judged(one_memory, "C6.T2").verdict, gate_rules.REPORTED)
        self.assertEqual(judged(one_memory, "C2.T2").verdict, gate_rules.SKIPPED)

    def test_memory_gates_are_reported_where_memory_is_unusual(self):
        rates = {"Adam/fp8": 1e9, "Adam/plain_f32": 1e9}
        self.assertEqual(judged(run_of(rates), "C10").verdict, gate_rules.BELOW)
        unusual = {**ZEN4, "nt_copy": 16.0}
        self.assertEqual(judged(run_of(rates, unusual), "C10").verdict, gate_rules.REPORTED)

    def test_other_cpus_hold_never_slower_only(self):
        none = {"fma512": 0, "fma256": 0, "dot512": 0, "nt_copy": 0}
        rates = {"Cast/ours/512KiB": 9e9, "Cast/aten/512KiB": 10e9, "Adam/fp8": 1e9,
                 "Adam/plain_f32": 9e9}
        self.assertEqual(judged(run_of(rates, none), "C1").verdict, gate_rules.BELOW)
        self.assertEqual(judged(run_of(rates, none), "C10").verdict, gate_rules.REPORTED)


class Parsing(unittest.TestCase):
    def parse(self, rows):
        peaks = {"before": ZEN4, "after": ZEN4}
        return gate_rules.parse(json.dumps({"context": CONTEXT, "benchmarks": rows}),
                                json.dumps(peaks))

    def test_names_lose_what_the_library_adds(self):
        self.assertEqual(gate_rules.row_name("A/b/W2/real_time"), "A/b/W2")
        self.assertEqual(gate_rules.row_name("P/x/iterations:20/manual_time"), "P/x")

    def test_medians_errors_and_units(self):
        run = self.parse([row("A/b", 3.0), {**row("A/b", 9.0), "aggregate_name": "mean"},
                          row("R/W2/real_time", 4.0, wire=1.5),
                          {"name": "E", "run_name": "E", "error_occurred": True,
                           "error_message": "why"}])
        self.assertEqual(run.medians["A/b"]["rate"], 3.0)
        self.assertEqual(run.medians["A/b"]["ns"], 2000.0)    # the thread's own time
        self.assertEqual(run.medians["R/W2"]["ns"], 5000.0)   # the clock that it asked for
        self.assertEqual(run.medians["R/W2"]["wire"], 1.5)
        self.assertEqual(run.errors, {"E": "why"})

    def test_one_repetition_is_its_own_median(self):
        single = row("A/b", 3.0)
        single.update(name="A/b", run_type="iteration")
        del single["aggregate_name"]
        self.assertEqual(self.parse([single]).medians["A/b"]["rate"], 3.0)

    def test_anything_else_is_refused(self):
        for text, peaks in (("", "{}"), ("{}", "{}"), ("[]", "[]")):
            with self.assertRaises(gate_rules.BadRun):
                gate_rules.parse(text, peaks)


class Goals(unittest.TestCase):
    def test_moonshots_lie_beyond_floors(self):
        for g in GATES:
            for goal in (g.zen4, g.zen5, g.other):
                if goal.floor is not None and goal.moonshot is not None:
                    beyond = goal.moonshot > goal.floor
                    self.assertEqual(beyond, g.kind == "rate", g.id)

    def test_names_are_unique(self):
        self.assertEqual(len({g.id for g in GATES}), len(GATES))

    def test_an_unclassified_machine_gets_the_easier_goal(self):
        both = Gate("X", "x", (("a", ("b",)),), Goal(1.0, 3.0), Goal(2.0, 2.5))
        self.assertEqual(gate_rules.goal_of(both, "unclassified"), Goal(1.0, 2.5))

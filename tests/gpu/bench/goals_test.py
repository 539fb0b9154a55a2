"""Goals that can be missed: their judgement on fake times, without a GPU and without a plugin."""
import pathlib
import re
import types
import unittest

import torch

import goals
import layers
import training

GOALS = {goal.name: goal for goal in goals.GOALS}


class Kernels:
    """Writes down which verbs are called."""

    def __init__(self):
        self.called = []

    def __getattr__(self, verb):
        return lambda *_, **__: lambda: self.called.append(verb)


class Bench:
    """As bench.Bench, but a call takes what `cost` says of the verbs that it makes."""
    device, small = "cpu", True

    def __init__(self, cost, bf16, shapes=((2048,), (256,))):
        self.kernels, self.cost, self.bf16, self.shapes = Kernels(), cost, bf16, list(shapes)

    def size(self, full, small):
        if isinstance(full, tuple) and isinstance(full[0], int):
            return self.shapes.pop(0) if self.shapes else small
        return small

    def random(self, rows, cols, dtype=torch.bfloat16):
        return torch.zeros(rows, cols, dtype=dtype)

    def compare(self, **sides):
        times = {}
        for name, call in sides.items():
            self.kernels.called.clear()
            call()
            times[name] = sum(self.cost[v] for v in self.kernels.called)
        return {**times, "bf16": self.bf16, "copy": 0.0}


CHEAP = {"quantize": 0.0, "multiply": 1.0, "sum_rows": 0.0}


class G8(unittest.TestCase):
    def value(self, **cost):
        return layers.layer(Bench({**CHEAP, **cost}, bf16=6.0, shapes=()))

    def test_a_layer_at_the_limit(self):
        self.assertTrue(GOALS["G8"].is_met(self.value()))

    def test_slow_casts_miss_it(self):
        self.assertFalse(GOALS["G8"].is_met(self.value(quantize=0.2)))

    def test_slow_bias_gradients_miss_it(self):
        result = self.value(sum_rows=1.0)
        self.assertAlmostEqual(result.value, 0.75)
        self.assertFalse(GOALS["G8"].is_met(result))


class G9(unittest.TestCase):
    def result(self, width, bf16):
        return layers.small_layer(Bench(CHEAP, bf16, ((width,), (256,))))

    def test_a_layer_in_fp8_that_is_slower_misses_it(self):
        result = self.result(2048, bf16=1.5)
        self.assertAlmostEqual(result.value, 0.5)
        self.assertFalse(GOALS["G9"].is_met(result))

    def test_a_layer_in_fp8_that_is_faster(self):
        self.assertTrue(GOALS["G9"].is_met(self.result(2048, bf16=4.0)))

    def test_a_layer_that_stays_with_the_host(self):
        result = self.result(512, bf16=1.5)
        self.assertEqual((result.value, result.details[0]["placed"]), (1.0, "bf16"))

    def test_layers_are_placed_as_liboctavo_places_them(self):
        source = (pathlib.Path(__file__).parents[3] / "sdk/src/negotiate/min_gain.cpp").read_text()
        for name, value in (("N", layers.MOST_SMALL_N), ("K", layers.MOST_SMALL_K)):
            self.assertEqual(int(re.search(rf"kMaxSmall{name} = (\d+);", source)[1]), value)


def run(seconds=1.0, loss=2.0, first=5.0, **how):
    return training.Run({"autocast": "bfloat16", **how}, seconds, [first] + [loss] * training.LAST)


class G13(unittest.TestCase):
    def is_met(self, fp8, second=run(loss=2.02)):
        return GOALS["G13"].is_met(training.judge(run(), second, fp8))

    def test_a_fast_run_with_the_same_loss(self):
        self.assertTrue(self.is_met(run(seconds=0.75, loss=2.01)))

    def test_a_slow_run_misses_it(self):
        self.assertFalse(self.is_met(run(seconds=0.9)))

    def test_a_fast_run_with_another_loss_misses_it(self):
        self.assertFalse(self.is_met(run(seconds=0.5, loss=2.03)))
        self.assertFalse(self.is_met(run(seconds=0.5, loss=float("nan"))))

    def test_runs_that_learn_nothing_miss_it(self):
        self.assertFalse(GOALS["G13"].is_met(training.judge(run(first=2.0), run(), run(seconds=0.5))))

    def test_unlike_runs_are_not_compared(self):
        with self.assertRaisesRegex(ValueError, "differ in FP8 alone"):
            self.is_met(run(seconds=0.5, autocast="float32"))

    def test_both_runs_have_the_same_text_and_weights(self):
        bench = types.SimpleNamespace(size=training.SMALL)
        seen = []

        def prepare(model, optimizer):
            seen.append(model.head.weight.detach().clone())
            return model, optimizer, ""
        runs = [training.train(bench.size, "cpu", 0, prepare) for _ in range(2)]
        self.assertTrue(torch.equal(*seen))
        self.assertEqual(runs[0].losses, runs[1].losses)
        self.assertEqual(runs[0].how, runs[1].how)


class Verdicts(unittest.TestCase):
    def test_less_is_better_for_the_host(self):
        host = GOALS["G10"]
        self.assertTrue(host.is_met(goals.Result(9.0, [])))
        self.assertFalse(host.is_met(goals.Result(11.0, [])))

    def test_not_a_number_misses_every_goal(self):
        for goal in goals.GOALS:
            self.assertFalse(goal.is_met(goals.Result(float("nan"), [])), goal.name)


if __name__ == "__main__":
    unittest.main()

"""The statistics against numbers that were computed another way.

Golden numbers are scipy's, which statistics_scipy_test.py computes again. The intervals are those of a
table in docs/results/te_intervals.csv, of the runs in te_losses.csv.
"""
import csv
import math
import pathlib
import random
import unittest

import paired
from power import deviation_bound, pairs_needed, power
from student import cdf, quantile

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs/results"
QUANTILES = [(0.95, 1, 6.313751514675037), (0.95, 9, 1.833112932656237), (0.95, 29, 1.6991270265334972),
             (0.975, 10, 2.228138851986274), (0.9, 3, 1.637744353696209), (0.999, 60, 3.23170912602436),
             (0.95, 1000, 1.6463788172854643)]
VALUES = [(-2.5, 4, 0.03338327240599407), (0.3, 7, 0.6135549747989328), (12.0, 2, 0.9965635331614208)]
POWERS = [((12, 0.4, 0.5, 0.0), 0.9836084924183994), ((20, 0.4, 0.25, 0.1), 0.47204248645912733),
          ((5, 0.3, 0.5, 0.2), 0.5754106785980757), ((63, 0.4, 0.25, 0.1), 0.9030086971478841),
          ((3, 0.1, 0.5, 0.0), 0.998600374023554)]
BOUNDS = [(0.4, 10, 0.8, 0.5088597596483668), (1.0, 3, 0.95, 2.920008544124238),
          (0.07, 15, 0.8, 0.08444586626872862)]
# The larger p-value of the two one-sided t tests against -0.5 and 0.5.
SAMPLE, SAMPLE_P = [0.66, 0.31, -0.2, 0.1, 0.4], 0.08224081717806439


class Student(unittest.TestCase):
    def test_quantiles(self):
        for p, freedom, wanted in QUANTILES:
            self.assertAlmostEqual(quantile(p, freedom) / wanted, 1.0, delta=1e-11)
            self.assertEqual(quantile(1.0 - (1.0 - p), freedom), -quantile(1.0 - p, freedom))

    def test_distribution(self):
        for t, freedom, wanted in VALUES:
            self.assertAlmostEqual(cdf(t, freedom) / wanted, 1.0, delta=1e-12)
        # Closed forms: Cauchy's distribution, and two degrees of freedom.
        for t in (-30.0, -1.0, 0.0, 0.2, 5.0):
            self.assertAlmostEqual(cdf(t, 1), 0.5 + math.atan(t) / math.pi, delta=1e-14)
            self.assertAlmostEqual(cdf(t, 2), 0.5 + t / (2.0 * math.sqrt(2.0 + t * t)), delta=1e-14)


class Power(unittest.TestCase):
    def test_exact_power(self):
        for arguments, wanted in POWERS:
            self.assertAlmostEqual(power(*arguments, 0.05), wanted, delta=1e-9)

    def test_power_is_how_often_samples_pass(self):
        n, sigma, margin, delta = 8, 0.3, 0.4, 0.1
        rng, passed, tries = random.Random(5), 0, 20000
        for _ in range(tries):
            i = paired.interval([rng.gauss(delta, sigma) for _ in range(n)], 0.05)
            passed += paired.verdict(i, margin) == paired.EQUIVALENT
        wanted = power(n, sigma, margin, delta, 0.05)
        self.assertLess(abs(passed / tries - wanted), 4.0 * math.sqrt(wanted * (1.0 - wanted) / tries))

    def test_false_claims_are_as_rare_as_alpha(self):
        # The true difference is the margin itself: each claim is false.
        for n in (5, 30):
            self.assertLess(power(n, 0.1, 0.5, 0.5, 0.05), 0.05 + 1e-9)
            self.assertGreater(power(n, 0.1, 0.5, 0.5, 0.05), 0.0499)

    def test_needed_pairs_are_the_fewest(self):
        for sigma, margin, delta in ((0.4, 0.25, 0.1), (0.4, 0.25, 0.0), (0.4, 0.5, 0.2)):
            n = pairs_needed(sigma, margin, delta, 0.05, 0.9)
            self.assertGreaterEqual(power(n, sigma, margin, delta, 0.05), 0.9)
            self.assertLess(power(n - 1, sigma, margin, delta, 0.05), 0.9)

    def test_bound_of_a_deviation(self):
        for deviation, freedom, confidence, wanted in BOUNDS:
            self.assertAlmostEqual(deviation_bound(deviation, freedom, confidence), wanted, delta=1e-12)


class Paired(unittest.TestCase):
    def test_a_published_table(self):
        with open(RESULTS / "te_losses.csv", encoding="utf-8", newline="") as file:
            rows = [r[1:] for r in csv.reader(file) if r[0] == "high precision"]
        self.assertEqual(len(rows), 10)
        with open(RESULTS / "te_intervals.csv", encoding="utf-8", newline="") as file:
            table = next(r[1:] for r in csv.reader(file) if r[0] == "90 % confidence interval")
        self.assertEqual(len(table), 4)
        base = [float(r[1]) for r in rows]
        for place, words in enumerate(table):
            low, high = (float(v) for v in words.split(" to "))
            i = paired.interval(paired.differences(base, [float(r[2 + place]) for r in rows]), 0.05)
            self.assertAlmostEqual(i.low, low, delta=0.006)   # both are rounded to 0.01
            self.assertAlmostEqual(i.high, high, delta=0.006)

    def test_the_interval_decides_as_two_one_sided_tests_do(self):
        for alpha, wanted in ((SAMPLE_P + 1e-6, paired.EQUIVALENT), (SAMPLE_P - 1e-6, paired.NOT_SHOWN)):
            self.assertEqual(paired.verdict(paired.interval(SAMPLE, alpha), 0.5), wanted)

    def test_equal_series_are_equivalent(self):
        rng = random.Random(1)
        base = [rng.gauss(1.57, 0.01) for _ in range(10)]
        i = paired.interval(paired.differences(base, base), 0.05)
        self.assertEqual((i.mean, i.low, i.high), (0.0, 0.0, 0.0))
        self.assertEqual(paired.verdict(i, 0.25), paired.EQUIVALENT)

    def test_a_planted_difference_of_1_percent_is_found(self):
        rng = random.Random(2)
        for sign in (1.0, -1.0):
            base = [rng.gauss(1.57, 0.01) for _ in range(12)]
            other = [b * (1.0 + 0.01 * sign) * (1.0 + rng.gauss(0.0, 0.004)) for b in base]
            i = paired.interval(paired.differences(base, other), 0.05)
            self.assertEqual(paired.verdict(i, 0.5), paired.DIFFERENT)

    def test_an_interval_over_the_margin_shows_nothing(self):
        self.assertEqual(paired.verdict(paired.Interval(9, 0.4, 0.3, 0.2, 0.6), 0.5), paired.NOT_SHOWN)
        self.assertEqual(paired.verdict(paired.Interval(9, 0.0, 3.0, -2.0, 2.0), 0.5), paired.NOT_SHOWN)

    def test_a_pair_without_its_other_half_is_refused(self):
        with self.assertRaises(ValueError):
            paired.differences([1.0, 2.0], [1.0])


if __name__ == "__main__":
    unittest.main()

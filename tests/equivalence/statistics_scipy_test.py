"""The golden numbers of statistics_test.py, computed by scipy. Exit code 77: scipy is missing."""
import math
import sys
import unittest

sys.dont_write_bytecode = True

try:
    from scipy import integrate, stats
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

from statistics_test import BOUNDS, POWERS, QUANTILES, SAMPLE, SAMPLE_P, VALUES


class Golden(unittest.TestCase):
    def near(self, found, wanted, bound=1e-11):
        self.assertLess(abs(found / wanted - 1.0), bound)

    def test_student(self):
        for p, freedom, wanted in QUANTILES:
            self.near(stats.t.ppf(p, freedom), wanted)
        for t, freedom, wanted in VALUES:
            self.near(stats.t.cdf(t, freedom), wanted)

    def test_bound_of_a_deviation(self):
        for deviation, freedom, confidence, wanted in BOUNDS:
            self.near(deviation * math.sqrt(freedom / stats.chi2.ppf(1.0 - confidence, freedom)), wanted)

    def test_two_one_sided_tests(self):
        above = stats.ttest_1samp(SAMPLE, -0.5, alternative="greater").pvalue
        below = stats.ttest_1samp(SAMPLE, 0.5, alternative="less").pvalue
        self.near(max(above, below), SAMPLE_P)

    def test_power(self):
        for (n, sigma, margin, delta), wanted in POWERS:
            error, t, root = sigma / math.sqrt(n), stats.t.ppf(0.95, n - 1), math.sqrt(n - 1)

            def term(u):
                inside = stats.norm.cdf((margin - delta) / error - t * u) - stats.norm.cdf(
                    (-margin - delta) / error + t * u)
                return stats.chi.pdf(u * root, n - 1) * root * max(0.0, inside)

            self.near(integrate.quad(term, 0.0, margin / (t * error), epsabs=1e-12, limit=500)[0], wanted, 1e-9)


if __name__ == "__main__":
    unittest.main()

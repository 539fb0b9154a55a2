"""The analysis: differences of pairs, their confidence interval, and two one-sided tests (TOST).

A pair is two runs of one seed, which start with equal weights and see equal batches. TOST at level
alpha: equivalent exactly when the interval of level 1 - 2 alpha is inside the margin (Schuirmann 1987,
J. Pharmacokinetics and Biopharmaceutics 15, 657).
"""
import dataclasses
import math

from student import quantile

EQUIVALENT, NOT_SHOWN, DIFFERENT = "equivalent", "not shown", "different"


def differences(base, other):
    """In percent of the base's loss, pair by pair."""
    return [100.0 * (b / a - 1.0) for a, b in zip(base, other, strict=True)]


def deviation(values):
    """The sample's standard deviation, with n - 1."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


@dataclasses.dataclass(frozen=True)
class Interval:
    n: int
    mean: float
    deviation: float  # of one difference
    low: float
    high: float


def interval(values, alpha):
    """The mean of two or more differences with its confidence interval of level 1 - 2 alpha."""
    n, mean, spread = len(values), math.fsum(values) / len(values), deviation(values)
    half = quantile(1.0 - alpha, n - 1) * spread / math.sqrt(n)
    return Interval(n, mean, spread, mean - half, mean + half)


def verdict(i, margin):
    """Equivalent: the whole interval is inside the margin. Different: all of it is outside."""
    if -margin < i.low and i.high < margin:
        return EQUIVALENT
    return DIFFERENT if i.low > margin or i.high < -margin else NOT_SHOWN

"""How many pairs a study needs.

The power of TOST for n pairs, whose differences have the standard deviation sigma and the true mean
delta, is the chance that the interval ends up inside the margin M. The mean and the deviation s of a
normal sample are independent, and (n - 1) s^2 / sigma^2 has the chi-square distribution, so

  power = integral over s of f(s) [Phi((M - delta - t s / sqrt n) / (sigma / sqrt n))
                                   - Phi((-M - delta + t s / sqrt n) / (sigma / sqrt n))],

with t the quantile 1 - alpha of n - 1 degrees of freedom, over all s with t s / sqrt n < M (Phillips
1990, J. Pharmacokinetics and Biopharmaceutics 18, 137). A pilot's deviation is itself uncertain: its
upper bound of 80 % confidence is used in its place (Browne 1995, Statistics in Medicine 14, 1933).
"""
import math

from student import quantile

POINTS = 2000  # of Simpson's rule, even


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def chi_square_cdf(x, freedom):
    """By the series of the lower incomplete gamma function (DLMF 8.11.4)."""
    if x <= 0.0:
        return 0.0
    a, x = freedom / 2.0, x / 2.0
    term = total = 1.0 / a
    k = a
    while term > total * 1e-16:
        k += 1.0
        term *= x / k
        total += term
    return min(total * math.exp(a * math.log(x) - x - math.lgamma(a)), 1.0)


def deviation_bound(deviation, freedom, confidence):
    """The true deviation is below this with the given confidence."""
    low, high = 0.0, float(freedom)  # the quantile 1 - confidence, which is below the mean
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chi_square_cdf(middle, freedom) < 1.0 - confidence else (low, middle)
    return deviation * math.sqrt(freedom / high)


def power(n, sigma, margin, delta, alpha):
    """The chance that n pairs, three or more, show equivalence."""
    t, error, freedom = quantile(1.0 - alpha, n - 1), sigma / math.sqrt(n), n - 1
    # u = s / sigma. Above 1 + 12 / sqrt(freedom) its density is below 1e-30.
    end = min(margin / (t * error), 1.0 + 12.0 / math.sqrt(freedom))
    constant = math.log(2.0) + 0.5 * freedom * math.log(0.5 * freedom) - math.lgamma(0.5 * freedom)

    def term(u):
        if u == 0.0:
            return 0.0
        density = math.exp(constant + (freedom - 1) * math.log(u) - 0.5 * freedom * u * u)
        return density * max(phi((margin - delta) / error - t * u) - phi((-margin - delta) / error + t * u), 0.0)

    step = end / POINTS
    inner = math.fsum((4.0 if i % 2 else 2.0) * term(i * step) for i in range(1, POINTS))
    return (term(0.0) + inner + term(end)) * step / 3.0


def pairs_needed(sigma, margin, delta, alpha, wanted):
    """The least number of pairs with the wanted power; `delta` must be inside the margin."""
    n = 3
    while power(n, sigma, margin, delta, alpha) < wanted:
        n += 1
    return n

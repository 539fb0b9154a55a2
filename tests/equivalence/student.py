"""Student's t distribution in plain Python: its distribution function and its quantiles.

The distribution function is a regularized incomplete beta function, by its continued fraction (NIST
Digital Library of Mathematical Functions, 8.17.22), evaluated from below by Lentz's method.
"""
import functools
import math

TINY = 1e-300


def _beta_fraction(a, b, x):
    """The continued fraction of I_x(a, b); it converges fast for x below (a + 1) / (a + b + 2)."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > TINY else TINY)
    value = d
    for m in range(1, 1000):
        for factor in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                       -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1.0 + factor * d
            d = 1.0 / (d if abs(d) > TINY else TINY)
            c = 1.0 + factor / c
            c = c if abs(c) > TINY else TINY
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"I_x(a, b) did not converge for a = {a}, b = {b}, x = {x}")


def incomplete_beta(a, b, x):
    """I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a * _beta_fraction(a, b, x)


def cdf(t, freedom):
    """P(T <= t) with `freedom` degrees of freedom."""
    tail = 0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
    return tail if t < 0.0 else 1.0 - tail


@functools.cache
def quantile(p, freedom):
    """The t with P(T <= t) = p, for 0 < p < 1, by bisection."""
    if p < 0.5:
        return -quantile(1.0 - p, freedom)
    low, high = 0.0, 1.0
    while cdf(high, freedom) < p:
        low, high = high, 2.0 * high
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return middle
        low, high = (middle, high) if cdf(middle, freedom) < p else (low, middle)

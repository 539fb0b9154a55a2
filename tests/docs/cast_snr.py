"""The signal-to-noise ratio of casting normally distributed values to E4M3 and E5M2, in dB."""
import math
import random

FORMATS = {"E4M3": (3, -6, 448.0), "E5M2": (2, -14, 57344.0)}  # mantissa bits, least exponent, largest


def cast(x, mantissa, least, largest):
    exponent = max(math.frexp(x)[1] - 1, least)
    step = 2.0 ** (exponent - mantissa)
    return max(-largest, min(largest, round(x / step) * step))  # round: ties to even


generator = random.Random(1)
values = [generator.gauss(0.0, 1.0) for _ in range(200_000)]
amax = max(map(abs, values))
for name, (mantissa, least, largest) in FORMATS.items():
    scale = largest / amax
    noise = sum((x - cast(x * scale, mantissa, least, largest) / scale) ** 2 for x in values)
    print(f"{name} {10 * math.log10(sum(x * x for x in values) / noise):.1f} dB")

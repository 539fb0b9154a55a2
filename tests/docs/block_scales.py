"""Scales of blocks: te's recipe `block` next to DeepGEMM's, over maxima with 65,536 mantissas and 5 exponents.

The formulas are those of kernels/format/scale_rules.h (OCTAVO_RULE_POW2, OCTAVO_RULE_QUOTIENT and
scale_inv_deepgemm), which GoldenScale.* compares with the other libraries; all arithmetic is in fp32.
"""
import struct


def fp32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def bits(value):
    return struct.unpack("I", struct.pack("f", value))[0]


def float_of(pattern):
    return struct.unpack("f", struct.pack("I", pattern))[0]


powers, quotients, furthest, count = 0, 0, 0, 0
for exponent in (115, 121, 127, 133, 140):  # 2^-12, above DeepGEMM's bound of 1e-4, to 2^13
    for mantissa in range(0, 1 << 23, 1 << 7):
        amax = float_of(exponent << 23 | mantissa)
        scale = fp32(448.0 / amax)
        deepgemm = fp32(amax / 448.0)
        up = float_of(bits(deepgemm) + 0x7FFFFF & 0xFF800000)
        count += 1
        powers += fp32(1.0 / float_of(bits(scale) & 0xFF800000)) == up
        distance = abs(bits(fp32(1.0 / scale)) - bits(deepgemm))
        quotients += distance == 0
        furthest = max(furthest, distance)
print(f"powers of two: equal for {powers} of {count} maxima")
print(f"fp32: equal for {100 * quotients / count:.0f} %, else {furthest} unit in the last place apart")

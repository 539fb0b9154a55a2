// Trains a small model through a backend and in float32, and judges the first against the second.
#pragma once

#include <nlohmann/json.hpp>

#include "layer.h"

namespace octavo::training_check {

// The relative error of a cast, in the mean square. A code with m bits of mantissa rounds by at
// most 2^-(m+1) of the value, uniformly: 2^-4 / sqrt(3) for float8_e4m3fn, 2^-3 / sqrt(3) for
// float8_e5m2.
inline constexpr double kE4m3 = 0.0625 / 1.7320508, kE5m2 = 0.125 / 1.7320508;
// Of x and w, and of dy. Weights in bytes that are no dtype of 8 bits have codes of 4 bits, two in
// each: 2^-2 / sqrt(3) for float4_e2m1fn, and twice that where a gradient is rounded
// stochastically.
struct CastErrors {
  double forward = kE4m3, gradient = kE5m2;
};
inline CastErrors errors_of(const octavo::Run &run) {
  for (const octavo_slot &s : run.slots())
    if (s.role == OCTAVO_ROLE_WEIGHT_CACHE && s.dtype == OCTAVO_U8) return {4 * kE4m3, 4 * kE5m2};
  return {};
}
// Errors twice as large as derived are allowed.
inline constexpr double kAllowance = 2;

// In the process of the child: everything that is printed, as JSON. Throws octavo::Error.
nlohmann::json train(const octavo::Settings &settings, double seconds, uint64_t seed);

}  // namespace octavo::training_check

/* 256 exponents of EXPANDED_128 times 256 codes. */
#include "kernels/cpu/expanded_powers.h"

#include <array>
#include <memory>

#include "kernels/format/float8.h"
#include "kernels/format/power.h"

namespace octavo {
namespace {

using Powers = std::array<std::array<double, 256>, 256>;

std::unique_ptr<const Powers> make_powers() {
  auto all = std::make_unique<Powers>();
  double log2s[128];
  for (int code = 1; code < 127; ++code) {
    log2s[code] = log2_of(static_cast<double>(decode_e4m3(static_cast<uint8_t>(code))));
  }
  for (int sixteenths = 1; sixteenths <= 256; ++sixteenths) {
    auto &row = (*all)[static_cast<size_t>(sixteenths - 1)];
    for (size_t code = 1; code < 127; ++code) row[code] = exp2_of(log2s[code] * 16.0 / sixteenths);
    row[0] = 0.0;
    row[127] = __builtin_nan("");
    for (size_t code = 0; code < 128; ++code) row[128 + code] = -row[code];
  }
  return all;
}

}  // namespace

const double *expanded_powers(int sixteenths) {
  static const std::unique_ptr<const Powers> powers = make_powers();
  return (*powers)[static_cast<size_t>(sixteenths - 1)].data();
}

}  // namespace octavo

// What this machine can do at this moment, measured in the process that runs the benches.
#pragma once

#include <string>

namespace octavo::bench {

struct Peaks {
  double fma512 = 0;  // fp32 multiply-adds, 512 bits: GFLOP/s of one core; 0: no such instructions
  double fma256 = 0;
  double dot512 = 0;    // vdpbf16ps, 512 bits: GFLOP/s
  double nt_copy = 0;   // GB/s read and written, non-temporal stores, beyond every cache
  double two_dots = 0;  // of two threads at once, together
  double two_copies = 0;
};

// The best of ten pieces of 5 ms each, so what another program takes does not count. Of two threads
// the median: where another program has one of two cores, rows on both cannot be compared.
Peaks measure_peaks();

// {"before": {...}, "after": {...}}
std::string peaks_json(const Peaks &before, const Peaks &after);

}  // namespace octavo::bench

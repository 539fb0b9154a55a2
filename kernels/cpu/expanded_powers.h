/* kernels/cpu/expanded_powers.h: the powers of E4M3's magnitudes that EXPANDED_128 decodes by. */
#pragma once

namespace octavo {

/* [128]: for the codes 0 to 127 without sign, (value of the code)^(16 / sixteenths), as the
 * functions of kernels/format/power.h give it, with a relative error below 2^-43; 0 for code 0, NaN
 * for code 127. sixteenths: 1 to 256. Computed at the first call, 256 KiB. Callable from any
 * thread. */
const double *expanded_powers(int sixteenths);

}  // namespace octavo

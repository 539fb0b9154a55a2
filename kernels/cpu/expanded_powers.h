/* kernels/cpu/expanded_powers.h: the powers of E4M3's values that EXPANDED_128 decodes by. */
#pragma once

namespace octavo {

/* [256]: for every code, (magnitude of its value)^(16 / sixteenths) with the sign of the code, as
 * the functions of kernels/format/power.h give it, with a relative error below 2^-43; 0 and NaN
 * stay. sixteenths: 1 to 256. Computed at the first call, 512 KiB. Callable from any thread. */
const double *expanded_powers(int sixteenths);

}  // namespace octavo

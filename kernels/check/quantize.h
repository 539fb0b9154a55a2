/* kernels/check/quantize.h: the families of quantize whose checks are files of their own.
 *
 * The call struct and its flags were checked.
 */
#ifndef OCTAVO_KERNELS_CHECK_QUANTIZE_H
#define OCTAVO_KERNELS_CHECK_QUANTIZE_H

#include "kernels/check/check.h"

namespace octavo {

octavo_status check_quantize_rows(const Caller &caller, const octavo_quantize &c);
octavo_status check_quantize_blocks(const Caller &caller, const octavo_quantize &c);

}  // namespace octavo

#endif

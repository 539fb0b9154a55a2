/* kernels/cpu/adam_item.h: the Adam step of one tensor with its states.
 *
 * The call and the item have been checked by adam_step, which refuses malformed ones.
 */
#ifndef OCTAVO_KERNELS_CPU_ADAM_ITEM_H
#define OCTAVO_KERNELS_CPU_ADAM_ITEM_H

#include "kernels/cpu/context.h"

namespace octavo {

octavo_status step_adam_item(const Context &context, const octavo_adam_step &c,
                             const octavo_adam_item &item);

}  // namespace octavo

#endif

/* adam_step: item by item.
 *
 * Everything is checked before the first item changes, so a refused call leaves all states alone.
 */
#include "kernels/check/verbs.h"
#include "kernels/cpu/adam_item.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

octavo_status adam_step(void *ctx, const octavo_adam_step *c) {
  const Context &context = context_of(ctx);
  octavo_status status = check_adam_step(context.caller(), c);
  if (status != OCTAVO_OK) return status;

  if (c->skip != nullptr && *c->skip != 0.0f) return OCTAVO_OK;
  for (uint64_t i = 0; i < c->count; ++i) {
    status = step_adam_item(context, *c, c->items[i]);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace octavo

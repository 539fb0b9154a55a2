// octavo.fused/1: a norm or an activation whose result goes straight into the codes of x.
#pragma once

#include "octavo/fused.h"

namespace octavo::te {

octavo_status fused_workspace(const octavo_session *s, uint32_t linear, octavo_extent *out);
octavo_status fused_linear_forward(const octavo_session *s, const octavo_fused_forward_call *c);
octavo_status fused_apply(const octavo_session *s, const octavo_prologue_call *c);

}  // namespace octavo::te

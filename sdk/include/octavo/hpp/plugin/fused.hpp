// octavo/hpp/plugin/fused.hpp: octavo.fused/1 for a backend that casts x in forward.
//
// class Mine : public octavo::plugin::FusedBackend<Mine, Options> has nothing more to write: the
// fused forward is forward() with another cast of x, prologue_quantize of the kernels in the place
// of quantize. What reads x itself (a plain product, statistics) finds it in the workspace.
#ifndef OCTAVO_HPP_PLUGIN_FUSED_HPP
#define OCTAVO_HPP_PLUGIN_FUSED_HPP

#include "octavo/fused.h"
#include "octavo/hpp/plugin/backend.hpp"
#include "octavo/hpp/plugin/host_structs.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

template <typename Self, typename OptionsType = NoOptions>
class FusedBackend : public Backend<Self, OptionsType> {
 public:
  octavo_status fused_workspace(uint32_t linear, octavo_extent *out) const {
    const Linear &l = this->sealed_linear(linear);
    if (l.needs_x || !this->device().executes(OCTAVO_KIND_PROLOGUE_CALL, OCTAVO_F32))
      return OCTAVO_UNSUPPORTED;
    const Parameter &w = this->objects().parameters[l.weight];
    octavo_status status = OCTAVO_OK;
    using Next = typename Backend<Self, OptionsType>::Before;
    const auto measured = [&](uint64_t (Pass::*bytes)() const) {
      return this->largest_extent([&](int64_t m, Next next) {
        const Pass p = this->measure_forward(l, w, m, next, true);
        if (status == OCTAVO_OK) status = p.status();
        return (p.*bytes)();
      });
    };
    const octavo_extent prologue = measured(&Pass::prologue_bytes);
    octavo_extent extent = measured(&Pass::workspace_bytes);
    if (status != OCTAVO_OK) return status;
    // Either what prologue_quantize needs, or x, whose end is moved to a piece's alignment.
    const auto width = static_cast<uint64_t>(w.cols) * sizeof(float);
    extent.bytes_per_row += std::max(prologue.bytes_per_row, width);
    extent.fixed_bytes += std::max(prologue.fixed_bytes, uint64_t{256});
    *out = extent;
    return status;
  }

  octavo_status fused_forward(const octavo_fused_forward_call *c) const {
    check_struct(c->forward);
    check_struct(c->prologue);
    octavo_forward_call forward;
    OCTAVO_TAKE(forward, c->forward);
    const Linear &l = this->checked(forward);
    if (l.needs_x)
      throw Error(OCTAVO_UNSUPPORTED,
                  "expected a linear whose backward does not ask for x, but its plan says "
                  "OCTAVO_LINEAR_NEEDS_X; call prologue of the kernels, then linear_forward");
    octavo_tensor x = *forward.x;
    Pass p(this->device(), false, x.rows, forward.stream, forward.workspace, forward.saved);
    p.fuse(x, c->prologue);
    forward.x = &x;
    const ForwardCall call(l, this->objects().parameters[l.weight], forward, false);
    p.watch(call[this->self_of(l).flag()]);
    this->self_of(l).forward(p, call);
    return p.status();
  }
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif

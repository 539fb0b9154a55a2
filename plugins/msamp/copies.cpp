// read_parameter and write_parameter: the stored formats from and to plain values.
#include "linear.h"
#include "plugins/common/product.h"

namespace octavo::msamp {
namespace {

octavo_status check_call(const octavo_session &s, const char *verb, const octavo_parameter_call &c,
                         const Parameter &p) {
  const std::string where = std::string(verb) + " \"" + p.name + "\": expected ";
  const octavo_tensor *plain = c.plain;
  if (plain == nullptr || c.slots == nullptr)
    return refuse(s, OCTAVO_INVALID, where + "a tensor and a list, found null");
  if (plain->rows != p.rows || plain->cols != p.cols)
    return refuse(s, OCTAVO_INVALID,
                  where + "the shape [" + std::to_string(p.rows) + ", " + std::to_string(p.cols) +
                      "] that it was added with, found [" + std::to_string(plain->rows) + ", " +
                      std::to_string(plain->cols) + "]");
  if (plain->dtype != OCTAVO_F32 && plain->dtype != OCTAVO_BF16 && plain->dtype != OCTAVO_F16)
    return refuse(s, OCTAVO_INVALID,
                  where + "f32, bf16 or f16, found dtype " + std::to_string(plain->dtype));
  return OCTAVO_OK;
}

// The tensor of a role, or null. The weight is its own master where there is no other.
const Stored *stored_of(const Parameter &p, uint32_t role) {
  switch (role) {
    case OCTAVO_ROLE_WEIGHT: return &p.weight;
    case OCTAVO_ROLE_MASTER_WEIGHT: return &p.stepped();
    case OCTAVO_ROLE_GRADIENT: return &p.gradient;
    case OCTAVO_ROLE_EXP_AVG: return &p.exp_avg;
    case OCTAVO_ROLE_EXP_AVG_SQ: return &p.exp_avg_sq;
    default: return nullptr;
  }
}

octavo_status refuse_missing(const octavo_session &s, const char *verb, const Parameter &p,
                             uint32_t role) {
  return refuse(s, OCTAVO_INVALID,
                std::string(verb) + " \"" + p.name +
                    "\": expected a role that this parameter has " +
                    "and whose slots lie on this rank, found role " + std::to_string(role));
}

octavo_scale scale_of(const Stored &stored, void *const *slots) {
  return {at(slots, stored.scale_inv), 0, OCTAVO_F32, stored.granularity};
}

octavo_status write(const octavo_session &s, const octavo_parameter_call &c, const Parameter &p,
                    const Stored &stored, const octavo_tensor &in, const float *in_scale_inv,
                    void *workspace) {
  octavo_tensor out = tensor_at(c.slots, stored, p.rows, p.cols);
  if (stored.scale_inv.position == OCTAVO_NONE)
    return plugin::dequantize(s.device, c.stream, in, nullptr, &out, false);
  TensorCast cast;
  cast.in = in;
  cast.in_scale_inv = in_scale_inv;
  cast.out = &out;
  cast.out_scale_inv = scale_of(stored, c.slots);
  cast.keep_positive = c.role == OCTAVO_ROLE_EXP_AVG_SQ && !s.recipe.parity;
  cast.workspace = workspace;
  return cast_by_rule(s, c.stream, cast);
}

// The E4M3 weight of O3 always comes from the f16 master, so that every rank has the same codes,
// with the master's slot or, on ranks that do not own it, with one in the workspace.
octavo_status write_weight(const octavo_session &s, const octavo_parameter_call &c,
                           const Parameter &p) {
  Carver carver(c.workspace);
  octavo_scale scale_inv = carver.scale_inv();
  octavo_tensor master = carver.tensor(p.rows, p.cols, OCTAVO_F16);
  void *kernel = carver.take(0);
  if (at(c.slots, p.master.data) != nullptr) {
    master = tensor_at(c.slots, p.master, p.rows, p.cols);
    scale_inv = scale_of(p.master, c.slots);
  }
  TensorCast cast;
  cast.in = *c.plain;
  cast.out = &master;
  cast.out_scale_inv = scale_inv;
  cast.workspace = kernel;
  const octavo_status status = cast_by_rule(s, c.stream, cast);
  if (status != OCTAVO_OK) return status;
  return write(s, c, p, p.weight, master, static_cast<const float *>(scale_inv.data), kernel);
}

}  // namespace

octavo_status read_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return refuse(*s, OCTAVO_INVALID, "read_parameter: no such parameter is sealed");
  const Parameter &p = s->parameters[c->parameter];
  const octavo_status status = check_call(*s, "read_parameter", *c, p);
  if (status != OCTAVO_OK) return status;
  const Stored *stored = stored_of(p, c->role);
  if (stored == nullptr || at(c->slots, stored->data) == nullptr)
    return refuse_missing(*s, "read_parameter", p, c->role);
  const octavo_scale scale_inv = scale_of(*stored, c->slots);
  const bool has_scale = stored->scale_inv.position != OCTAVO_NONE;
  return plugin::dequantize(s->device, c->stream, tensor_at(c->slots, *stored, p.rows, p.cols),
                            has_scale ? &scale_inv : nullptr, c->plain, false);
}

octavo_status write_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return refuse(*s, OCTAVO_INVALID, "write_parameter: no such parameter is sealed");
  const Parameter &p = s->parameters[c->parameter];
  const octavo_status status = check_call(*s, "write_parameter", *c, p);
  if (status != OCTAVO_OK) return status;
  const bool is_weight = c->role == OCTAVO_ROLE_WEIGHT || c->role == OCTAVO_ROLE_MASTER_WEIGHT;
  const Stored *stored = is_weight ? &p.weight : stored_of(p, c->role);
  if (stored == nullptr || at(c->slots, stored->data) == nullptr)
    return refuse_missing(*s, "write_parameter", p, c->role);
  if (is_weight && p.master.exists()) return write_weight(*s, *c, p);
  return write(*s, *c, p, *stored, *c->plain, nullptr, c->workspace);
}

}  // namespace octavo::msamp

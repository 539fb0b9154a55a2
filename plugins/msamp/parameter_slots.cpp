// The slots of one parameter, by level: this file is the table of MS-AMP's formats.
#include "slots.h"

namespace octavo::msamp {
namespace {

// One scale_inv of a tensor with `count` elements.
struct ScaleShape {
  int64_t rows;
  int64_t cols;
};

ScaleShape scale_shape(uint32_t granularity, int64_t count) {
  if (granularity == OCTAVO_FLAT_256) return {(count + 255) / 256, 1};
  if (granularity == OCTAVO_EXPANDED_128) return {(count + 127) / 128, 3};
  return {1, 1};
}

bool is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32;
}

}  // namespace

Place ParameterSlots::add(octavo_slot slot) {
  slot.owner_kind = OCTAVO_OWNER_PARAMETER;
  slot.owner = id_;
  const uint32_t id = emitter_.emit(slot);
  emitter_.use(OCTAVO_OWNER_PARAMETER, id_, id);
  return {id, position_++};
}

Place ParameterSlots::share(const Place &session_slot) {
  emitter_.use(OCTAVO_OWNER_PARAMETER, id_, session_slot.slot);
  return {session_slot.slot, position_++};
}

void ParameterSlots::native(Stored *stored, uint32_t role, uint32_t dtype, const char *name,
                            uint8_t optimizer) {
  octavo_slot slot = Emitter::make(0, 0, role, dtype, p_.rows, p_.cols, name);
  slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = optimizer;
  slot.flags = OCTAVO_SLOT_NATIVE;
  stored->dtype = dtype;
  stored->data = add(slot);
}

void ParameterSlots::stored(Stored *stored, uint32_t role, uint32_t dtype, uint32_t granularity,
                            const char *name, std::initializer_list<Access> accesses,
                            uint32_t flags, uint32_t shard) {
  octavo_slot slot = Emitter::make(0, 0, role, dtype, p_.rows, p_.cols, name, accesses);
  slot.flags = flags;
  slot.shard = shard;
  slot.granularity = granularity;
  if (!is_plain(dtype)) slot.scale_slot = emitter_.next_slot() + 1;
  stored->dtype = dtype;
  stored->granularity = granularity;
  stored->data = add(slot);
  if (is_plain(dtype)) return;
  const ScaleShape shape = scale_shape(granularity, p_.rows * p_.cols);
  const std::string scale_name = std::string(name) + "/scale_inv";
  octavo_slot scale = Emitter::make(0, 0, OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, shape.rows, shape.cols,
                                    scale_name, accesses);
  scale.flags = flags;
  scale.shard = shard;
  scale.initial = 1;
  stored->scale_inv = add(scale);
}

void ParameterSlots::weights() {
  const bool in_fp8 = s_.recipe.level == Level::kO3;
  const uint8_t cast = s_.recipe.weight_cache ? OCTAVO_ACCESS_READ : OCTAVO_ACCESS_NONE;
  // Linears read the stored weight when it is what they multiply, or when there is no cache.
  const bool direct = !s_.recipe.weight_cache || in_fp8;
  const uint8_t hot = direct ? OCTAVO_ACCESS_READ : OCTAVO_ACCESS_NONE;
  const uint8_t step = in_fp8 && !p_.is_frozen() ? OCTAVO_ACCESS_WRITE : OCTAVO_ACCESS_UPDATE;
  stored(&p_.weight, OCTAVO_ROLE_WEIGHT, in_fp8 ? OCTAVO_E4M3FN : OCTAVO_F16, OCTAVO_PER_TENSOR,
         "weight",
         {{OCTAVO_VERB_QUANTIZE_WEIGHT, cast},
          {OCTAVO_VERB_FORWARD, hot},
          {OCTAVO_VERB_BACKWARD, hot},
          {OCTAVO_VERB_OPTIMIZER_STEP, step}},
         OCTAVO_SLOT_CHECKPOINT, OCTAVO_SHARD_REPLICATED);
  if (in_fp8 && !p_.is_frozen())
    stored(&p_.master, OCTAVO_ROLE_MASTER_WEIGHT, OCTAVO_F16, OCTAVO_PER_TENSOR, "master_weight",
           {{OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_ACCESS_UPDATE}}, OCTAVO_SLOT_CHECKPOINT,
           OCTAVO_SHARD_WHOLE);
}

// Codes in the two orders that GEMMs read. Weights in E4M3 are their own [N, K] codes, unless the
// kernels need them padded.
void ParameterSlots::caches() {
  if (!s_.recipe.weight_cache) return;
  const int64_t n = s_.device.aligned(p_.rows);
  const int64_t k = s_.device.aligned(p_.cols);
  const bool in_fp8 = s_.recipe.level == Level::kO3;
  const bool needs_rows = !in_fp8 || n != p_.rows || k != p_.cols;
  // The slot that holds the scale_inv of both caches: the weight's own, or one that comes last.
  const uint32_t scale_slot =
      in_fp8 ? p_.weight.scale_inv.slot : emitter_.next_slot() + (needs_rows ? 2u : 1u);
  auto cache = [&](const char *name, int64_t rows, int64_t cols, uint32_t verb) {
    octavo_slot slot = Emitter::make(
        0, 0, OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, rows, cols, name,
        {{OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_ACCESS_WRITE}, {verb, OCTAVO_ACCESS_READ}});
    slot.scale_slot = scale_slot;
    return add(slot);
  };
  if (needs_rows) p_.cache = cache("weight_cache", n, k, OCTAVO_VERB_FORWARD);
  p_.cache_t = cache("weight_cache_t", k, n, OCTAVO_VERB_BACKWARD);
  if (in_fp8) return;
  p_.cache_scale_inv =
      add(Emitter::make(0, 0, OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, 1, 1, "weight_cache/scale_inv",
                        {{OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_ACCESS_WRITE},
                         {OCTAVO_VERB_FORWARD, OCTAVO_ACCESS_READ},
                         {OCTAVO_VERB_BACKWARD, OCTAVO_ACCESS_READ}}));
}

void ParameterSlots::gradients() {
  stored(&p_.gradient, OCTAVO_ROLE_GRADIENT, s_.recipe.fp32_gradients ? OCTAVO_F32 : OCTAVO_E4M3FN,
         OCTAVO_PER_TENSOR, "gradient",
         {{OCTAVO_VERB_BACKWARD, OCTAVO_ACCESS_UPDATE},
          {OCTAVO_VERB_REDUCE, OCTAVO_ACCESS_UPDATE},
          {OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_ACCESS_READ}},
         0, OCTAVO_SHARD_REPLICATED);
  p_.saturated = share(s_.saturated);
  p_.added = share(s_.added);
  if (s_.prescale.slot != OCTAVO_NONE) p_.prescale = share(s_.prescale);
  if (!s_.recipe.parity) return;
  octavo_slot scale =
      Emitter::make(0, 0, OCTAVO_ROLE_OTHER, OCTAVO_F32, 1, 1, "gradient/reduce_scale",
                    {{OCTAVO_VERB_REDUCE, OCTAVO_ACCESS_UPDATE}});
  scale.flags = OCTAVO_SLOT_CHECKPOINT;
  scale.initial = 1;
  p_.reduce_scale = add(scale);
}

void ParameterSlots::states() {
  const bool grouped = s_.recipe.state_granularity != OCTAVO_PER_TENSOR;
  const bool plain = s_.recipe.level == Level::kO1 && !grouped;
  const uint32_t granularity = s_.recipe.state_granularity;
  const std::initializer_list<Access> update = {{OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_ACCESS_UPDATE}};
  stored(&p_.exp_avg, OCTAVO_ROLE_EXP_AVG, plain ? OCTAVO_F32 : OCTAVO_E4M3FN, granularity,
         "exp_avg", update, OCTAVO_SLOT_CHECKPOINT, OCTAVO_SHARD_WHOLE);
  stored(&p_.exp_avg_sq, OCTAVO_ROLE_EXP_AVG_SQ,
         plain     ? OCTAVO_F32
         : grouped ? OCTAVO_E4M3FN
                   : OCTAVO_F16,
         granularity, "exp_avg_sq", update, OCTAVO_SLOT_CHECKPOINT, OCTAVO_SHARD_WHOLE);
  octavo_slot step = Emitter::make(0, 0, OCTAVO_ROLE_COUNTER, OCTAVO_I32, 1, 1, "step", update);
  step.flags = OCTAVO_SLOT_CHECKPOINT;
  step.shard = OCTAVO_SHARD_WHOLE;
  p_.step = add(step);
}

void ParameterSlots::emit() {
  if (p_.is_owned) {
    weights();
    caches();
    if (!p_.is_frozen()) gradients();
  } else {
    const uint8_t step = p_.is_frozen() ? OCTAVO_ACCESS_READ : OCTAVO_ACCESS_UPDATE;
    native(&p_.weight, OCTAVO_ROLE_WEIGHT, p_.dtype, "weight", step);
    if (!p_.is_frozen())
      native(&p_.gradient, OCTAVO_ROLE_GRADIENT, p_.gradient_dtype, "gradient", OCTAVO_ACCESS_READ);
  }
  if (!p_.is_frozen()) states();
}

}  // namespace octavo::msamp

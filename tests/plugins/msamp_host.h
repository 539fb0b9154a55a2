// A host of the msamp backend whose calls can be shaped freely, and what MS-AMP's numbers should
// be.
//
// The numbers come from their definitions only: nothing here uses kernels/.
#pragma once

#include <string>
#include <vector>

#include "tests/plugins/owning_host.h"

namespace octavo::test {

// MS-AMP's rule: 2^floor(log2(fl(fl(1 / amax) * M))), at most 2^127; an amax that is 0 or not
// finite keeps the old scale.
inline float msamp_scale(float amax, float format_max, float old_scale = 1.0f) {
  if (!(amax > 0) || !std::isfinite(amax)) return old_scale;
  const float reciprocal = 1.0f / amax;
  const float quotient = reciprocal * format_max;
  return std::isfinite(quotient) ? std::ldexp(1.0f, std::min(std::ilogb(quotient), 127))
                                 : std::ldexp(1.0f, 127);
}

// The nearest number with `bits` significant bits and exponents from `least` on, ties to even.
inline float rounded(double v, int bits, int least) {
  if (v == 0 || !std::isfinite(v)) return static_cast<float>(v);
  const double unit = std::ldexp(1.0, std::max(std::ilogb(v), least) - bits + 1);
  return static_cast<float>(std::nearbyint(v / unit) * unit);
}
inline float half_of(double v) {
  return std::clamp(rounded(v, 11, -14), -65504.0f, 65504.0f);
}
inline float bfloat_of(double v) {
  return rounded(v, 8, -126);
}

// A tensor as O1 and O2 keep weights: f16 with a power of two.
inline Matrix scaled_half(const Matrix &m) {
  const float scale = msamp_scale(amax_of(m), 65504.0f);
  Matrix stored = m;
  for (float &v : stored.v) v = half_of(v * scale) / scale;
  return stored;
}
// FP8 codes with the scale of the tensor itself.
inline Quantized by_rule(const Format &f, const Matrix &m) {
  return quantized(f, m, msamp_scale(amax_of(m), f.max));
}
inline Matrix dequantized(const Quantized &q) {
  Matrix m = q.codes;
  for (float &v : m.v) v *= q.scale_inv;
  return m;
}
// As some_matrix, off its grid, so that f16 and FP8 both round.
inline Matrix rough_matrix(int64_t rows, int64_t cols, uint32_t seed, float largest) {
  Matrix m = some_matrix(rows, cols, seed, largest);
  for (float &v : m.v) v /= 3.0f;
  return m;
}

// One instance of a parameterized test: its name and the lines of [fp8.msamp].
struct Variant {
  const char *name;
  const char *lines;
};
inline void PrintTo(const Variant &v, std::ostream *out) {
  *out << v.name;
}
inline std::string name_of(const testing::TestParamInfo<Variant> &i) {
  return i.param.name;
}

struct MsampRequest {
  explicit MsampRequest(const std::string &lines) {
    own_request.text("fp8.backend = \"msamp\"\n[fp8.msamp]\n" + lines + "\n");
  }
  Request own_request;
};

class Msamp : public MsampRequest, public OwningHost {
 public:
  // `lines` are those of the table [fp8.msamp].
  explicit Msamp(const std::string &lines = "", uint32_t rank = 0, uint32_t world = 1)
      : MsampRequest(lines), OwningHost(own_request, rank, world) {}

  std::string error() const { return own_request.host.error(); }
  const octavo_linear_plan &plan(uint32_t linear) { return *octavo_run_plan(run(), linear); }
  std::unique_ptr<AlignedBytes> saved_for(uint32_t linear, int64_t rows) {
    return std::make_unique<AlignedBytes>(bytes(plan(linear).saved, rows));
  }

  // `records` false: the accumulators are left out, as in evaluation.
  octavo_status forward_to(uint32_t linear, const octavo_tensor &x, octavo_tensor y,
                           const octavo_tensor *bias, void *saved, bool records = true) {
    const AlignedBytes workspace(bytes(plan(linear).forward_workspace, x.rows));
    const std::vector<void *> slots = linear_list(OCTAVO_VERB_FORWARD, linear, records);
    auto c = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    c.linear = linear;
    c.x = &x;
    c.y = &y;
    c.bias = bias;
    c.slots = slots.data();
    c.saved = saved;
    c.workspace = workspace.get();
    return backend()->linear_forward(session(), &c);
  }
  octavo_status backward_to(uint32_t linear, const octavo_tensor &dy, octavo_tensor *dx,
                            octavo_tensor *dw, octavo_tensor *db, const void *saved,
                            uint32_t flags = 0) {
    const AlignedBytes workspace(bytes(plan(linear).backward_workspace, dy.rows));
    const std::vector<void *> slots = linear_list(OCTAVO_VERB_BACKWARD, linear, true);
    auto c = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    c.linear = linear;
    c.flags = flags;
    c.dy = &dy;
    c.dx = dx;
    c.dw = dw;
    c.db = db;
    c.slots = slots.data();
    c.saved = saved;
    c.workspace = workspace.get();
    return backend()->linear_backward(session(), &c);
  }

  // Into the host's own tensor, whose address the store knows.
  void set_gradient(uint32_t parameter, const Matrix &values) {
    std::copy(values.v.begin(), values.v.end(), gradient(parameter).v.begin());
  }

  octavo_status read_to(uint32_t parameter, uint32_t role, octavo_tensor plain) {
    return copy(optimizer()->read_parameter, parameter, role, plain);
  }
  octavo_status write_from(uint32_t parameter, uint32_t role, octavo_tensor plain) {
    return copy(optimizer()->write_parameter, parameter, role, plain);
  }
  octavo_status step_items(const std::vector<octavo_parameter_item> &items,
                           const float *skip = nullptr) {
    std::vector<uint32_t> ids;
    for (const octavo_parameter_item &i : items) ids.push_back(i.parameter);
    uint64_t size = 0;
    const octavo_status status =
        optimizer()->workspace_bytes(session(), ids.data(), ids.size(), &size);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes workspace(size);
    auto c = make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
    c.items = items.data();
    c.count = items.size();
    c.skip = skip;
    c.workspace = workspace.get();
    return optimizer()->optimizer_step(session(), &c);
  }
  octavo_parameter_item item(uint32_t parameter, const float *values) {
    return {parameter, 0, list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter),
            values};
  }
  octavo_parameter_item item(uint32_t parameter) { return item(parameter, hyper()); }

  // Every byte of every slot on this rank, and of the host's own tensors of parameters 0 .. n-1.
  std::vector<std::vector<uint8_t>> snapshot(uint32_t parameters) {
    std::vector<std::vector<uint8_t>> all;
    for (uint32_t id = 0; id < octavo_run_slot_count(run()); ++id) {
      const octavo_slot *s = octavo_run_slot(run(), id);
      const auto *data = static_cast<const uint8_t *>(octavo_store_address(store(), id));
      const auto size = static_cast<size_t>(s->rows * s->cols * (OCTAVO_DTYPE_BITS(s->dtype) / 8));
      all.emplace_back(data, data == nullptr ? data : data + size);
    }
    for (uint32_t p = 0; p < parameters; ++p) {
      const auto *data = reinterpret_cast<const uint8_t *>(value(p).v.data());
      all.emplace_back(data, data + value(p).v.size() * sizeof(float));
    }
    return all;
  }

  template <typename Call>
  static Call make(uint32_t kind) {
    Call c{};
    c.size = sizeof(c);
    c.kind = kind;
    return c;
  }

 private:
  static uint64_t bytes(const octavo_extent &e, int64_t rows) {
    return octavo_extent_bytes(&e, static_cast<uint64_t>(rows));
  }
  std::vector<void *> linear_list(uint32_t verb, uint32_t linear, bool records) {
    void *const *full = list(verb, OCTAVO_OWNER_LINEAR, linear);
    std::vector<void *> own;
    for (uint32_t i = 0; i < octavo_run_use_count(run(), OCTAVO_OWNER_LINEAR, linear); ++i) {
      const auto *use = octavo_run_use(run(), OCTAVO_OWNER_LINEAR, linear, i);
      const bool adds = octavo_run_slot(run(), use->slot)->access[verb] == OCTAVO_ACCESS_ACCUMULATE;
      own.push_back(adds && !records ? nullptr : full[i]);
    }
    return own;
  }
  octavo_status copy(octavo_status (*verb)(const octavo_session *, const octavo_parameter_call *),
                     uint32_t parameter, uint32_t role, octavo_tensor &plain) {
    uint64_t size = 0;
    optimizer()->workspace_bytes(session(), &parameter, 1, &size);
    const AlignedBytes workspace(size);
    auto c = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    c.parameter = parameter;
    c.role = role;
    c.plain = &plain;
    c.slots = list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter);
    c.workspace = workspace.get();
    return verb(session(), &c);
  }
};

}  // namespace octavo::test

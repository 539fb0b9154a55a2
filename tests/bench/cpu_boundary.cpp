// What the C table costs: a call through it on kernels that do nothing, minus a direct call.
//
// "built" fills every descriptor of an FP8 cast for each call, as a backend does; "prebuilt" keeps
// them. "checked" is our real quantize on a matrix without rows: its refusals and nothing else.
// "layered" is "prebuilt" through a layer without this function, "asked" through one that is asked
// and passes the call on.
#include "sdk/src/negotiate/negotiate.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

// What a library without an ABI would have: operands as plain arguments.
__attribute__((noinline)) octavo_status direct_quantize(const float *in, int64_t rows, int64_t cols,
                                                        uint8_t *out, float *scale_inv) {
  benchmark::DoNotOptimize(in);
  benchmark::DoNotOptimize(out);
  benchmark::DoNotOptimize(scale_inv);
  return rows >= 0 && cols >= 0 ? OCTAVO_OK : OCTAVO_INVALID;
}

octavo_status empty_quantize(void *ctx, const octavo_quantize *c) {
  benchmark::DoNotOptimize(ctx);
  if (c == nullptr || c->size < sizeof(octavo_quantize)) return OCTAVO_INVALID;
  const bool same_shape = c->in->rows <= c->out->rows && c->in->cols <= c->out->cols;
  return same_shape ? OCTAVO_OK : OCTAVO_INVALID;
}

// Read afresh for each call, as from a table of another library.
const octavo_kernels &empty_kernels() {
  static octavo_kernels table = [] {
    auto t = make_call<octavo_kernels>(OCTAVO_KIND_KERNELS);
    t.quantize = empty_quantize;
    return t;
  }();
  const octavo_kernels *seen = &table;
  benchmark::DoNotOptimize(seen);
  return *seen;
}

struct Operands {
  float in[16] = {};
  uint8_t out[16] = {};
  float scale_inv = 1;
  float scale = 1;
  float amax = 0;
};

struct Descriptors {
  octavo_tensor in;
  octavo_tensor out;
  octavo_scale scale_inv;
  octavo_quantize call;
};

inline void describe(Operands &o, int64_t rows, Descriptors *d) {
  d->in = {o.in, rows, 4, 4, OCTAVO_F32, 0};
  d->out = {o.out, rows, 4, 4, OCTAVO_E4M3FN, 0};
  d->scale_inv = OCTAVO_SCALE(&o.scale_inv, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  // In place: make_call's result would be written, read back in wider pieces and written again.
  d->call = {};
  d->call.size = sizeof d->call;
  d->call.kind = OCTAVO_KIND_QUANTIZE;
  d->call.in = &d->in;
  d->call.out = &d->out;
  d->call.out_scale_inv = &d->scale_inv;
  d->call.scale = &o.scale;
  d->call.amax = &o.amax;
  d->call.format_max = 448.0f;
  d->call.rule = OCTAVO_RULE_GIVEN;
}

void direct_row(benchmark::State &state) {
  Operands o;
  int64_t rows = 4;
  benchmark::DoNotOptimize(rows);
  for (auto _ : state) {
    octavo_status status = direct_quantize(o.in, rows, 4, o.out, &o.scale_inv);
    benchmark::DoNotOptimize(status);
  }
  count_items(state, 1);
}

void table_row(benchmark::State &state, bool built) {
  Operands o;
  int64_t rows = 4;
  benchmark::DoNotOptimize(rows);
  Descriptors d;
  describe(o, rows, &d);
  for (auto _ : state) {
    if (built) describe(o, rows, &d);
    benchmark::DoNotOptimize(d);
    octavo_status status = empty_kernels().quantize(nullptr, &d.call);
    if (status != OCTAVO_OK) return state.SkipWithError("the empty kernel refused its call");
  }
  count_items(state, 1);
}

octavo_status not_mine(void *ctx, const octavo_quantize *c) {
  benchmark::DoNotOptimize(ctx);
  benchmark::DoNotOptimize(c);
  return OCTAVO_UNSUPPORTED;
}

void layer_row(benchmark::State &state, bool asked) {
  octavo_kernels below = empty_kernels();
  below.open_device = [](octavo_device, const octavo_host *, void **) { return OCTAVO_OK; };
  below.close_device = [](void *) {};
  below.describe = [](void *, octavo_kernels_caps *) { return OCTAVO_OK; };
  auto calls = make_call<octavo_kernels>(OCTAVO_KIND_KERNELS);
  if (asked) calls.quantize = not_mine;
  LoadedPlugin plugin;
  auto layer = make_call<octavo_layer>(OCTAVO_KIND_LAYER);
  layer.calls = &calls;
  layer.open_layer = [](octavo_layer_ctx *, const octavo_verdict_sink *sink) {
    auto v = make_call<octavo_verdict>(OCTAVO_KIND_VERDICT);
    v.decision = OCTAVO_ACCEPT;
    sink->verdict(sink->ctx, &v);
    return OCTAVO_OK;
  };
  plugin.layer = complete(layer);
  std::vector<Verdict> verdicts;
  const octavo_device cpu = {OCTAVO_DEVICE_CPU, 0};
  const auto device = with_layer(std::make_shared<OpenDevice>(cpu, below, nullptr, nullptr), plugin,
                                 nullptr, verdicts);
  Operands o;
  Descriptors d;
  describe(o, 4, &d);
  const octavo_kernels *table = &device->kernels();
  for (auto _ : state) {
    benchmark::DoNotOptimize(d);
    benchmark::DoNotOptimize(table);
    octavo_status status = table->quantize(device->ctx(), &d.call);
    if (status != OCTAVO_OK) return state.SkipWithError("the empty kernel refused its call");
  }
  count_items(state, 1);
}

void checked_row(benchmark::State &state) {
  Operands o;
  Descriptors d;
  for (auto _ : state) {
    describe(o, 0, &d);
    if (!passed(state, kernels().quantize(context(), &d.call), "quantize")) return;
  }
  count_items(state, 1);
}

}  // namespace

void add_boundary() {
  benchmark::RegisterBenchmark("Boundary/direct", direct_row);
  benchmark::RegisterBenchmark("Boundary/prebuilt", table_row, false);
  benchmark::RegisterBenchmark("Boundary/built", table_row, true);
  benchmark::RegisterBenchmark("Boundary/checked", checked_row);
  benchmark::RegisterBenchmark("Boundary/layered", layer_row, false);
  benchmark::RegisterBenchmark("Boundary/asked", layer_row, true);
}

}  // namespace octavo::bench

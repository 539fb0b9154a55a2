// What stands between a host's call of linear_forward and the kernels, which do nothing here: the
// list of slots and the call are built for each call, as a host does, minus a direct call.
//
// "empty" is a backend that does nothing either, so what is left is the contract's own cost;
// "store" asks octavo_store_slots for the list; "reference" is the reference backend with all that
// it does for two casts and a product. "Verb" rows are the calls of te and msamp on such kernels.
#include <memory>
#include <utility>
#include <vector>

#include "octavo/octavo.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

octavo_status empty_quantize(void *ctx, const octavo_quantize *c) {
  benchmark::DoNotOptimize(ctx);
  return c->in->rows == c->out->rows ? OCTAVO_OK : OCTAVO_INVALID;
}

octavo_status empty_gemm(void *ctx, const octavo_gemm *c) {
  benchmark::DoNotOptimize(ctx);
  return c->a->cols == c->b->cols ? OCTAVO_OK : OCTAVO_INVALID;
}

octavo_status empty_forward(const octavo_session *s, const octavo_forward_call *c) {
  benchmark::DoNotOptimize(s);
  if (c->size < sizeof(*c) || c->slots[0] == nullptr) return OCTAVO_INVALID;
  return c->x->rows == c->y->rows ? OCTAVO_OK : OCTAVO_INVALID;
}

// What a library without an ABI would have: operands as plain arguments.
__attribute__((noinline)) octavo_status direct_forward(const float *x, int64_t rows, float *y,
                                                       const float *w, void *workspace) {
  benchmark::DoNotOptimize(x);
  benchmark::DoNotOptimize(y);
  benchmark::DoNotOptimize(w);
  benchmark::DoNotOptimize(workspace);
  return rows >= 0 ? OCTAVO_OK : OCTAVO_INVALID;
}

struct Close {
  void operator()(octavo_run *run) const { octavo_close(run); }
  void operator()(octavo_store *store) const { octavo_store_close(store); }
};

// One linear of a backend: its run, its store, and a second session on empty kernels.
class Layer {
 public:
  static constexpr int64_t kRows = 4, kSize = 16;

  Layer() = default;
  Layer(const Layer &) = delete;
  Layer &operator=(const Layer &) = delete;
  ~Layer() {
    if (session_ != nullptr) backend().close_session(session_);
  }

  // False: something failed, which ends the row.
  bool open(const std::string &name) {
    const octavo_str directory = OCTAVO_STR(OCTAVO_BENCH_PLUGINS);
    const std::string config = "[fp8]\nbackend = \"" + name + "\"\n[plugins]\ntrust = \"dev\"\n";
    auto d = make_call<octavo_open_desc>(OCTAVO_KIND_OPEN_DESC);
    d.config_text = {config.data(), config.size()};
    d.plugin_dirs = &directory;
    d.plugin_dir_count = 1;
    octavo_run *run = nullptr;
    if (octavo_open(&d, &run) != OCTAVO_OK) return false;
    run_.reset(run);
    auto p = make_call<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    p.name = OCTAVO_STR("w");
    p.rows = p.cols = kSize;
    p.dtype = p.gradient_dtype = OCTAVO_F32;
    p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    auto l = make_call<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    l.name = OCTAVO_STR("l");
    uint32_t id = 0;
    if (octavo_add_parameter(run, &p, nullptr, &id) != OCTAVO_OK ||
        octavo_add_linear(run, &l, nullptr, &id) != OCTAVO_OK || octavo_seal(run) != OCTAVO_OK)
      return false;
    octavo_store *store = nullptr;
    if (octavo_store_open(run, &store) != OCTAVO_OK) return false;
    store_.reset(store);
    const bool is_native = name != "msamp";
    return (!is_native || octavo_store_native(store, 0, OCTAVO_ROLE_WEIGHT, weight) == OCTAVO_OK) &&
           on_empty(p, l);
  }
  const octavo_store *store() const { return store_.get(); }
  const octavo_backend &backend() const { return *octavo_run_backend(run_.get()); }
  const octavo_session *session() const { return session_; }

  float x[kRows * kSize] = {}, y[kRows * kSize] = {}, weight[kSize * kSize] = {}, nonfinite = 0;
  void *workspace = memory("forward workspace", 1 << 20);

 private:
  bool on_empty(const octavo_parameter_desc &p, const octavo_linear_desc &l) {
    octavo_session_desc d = *octavo_run_session_desc(run_.get());
    table_ = *d.kernels;
    table_.quantize = empty_quantize;
    table_.gemm = empty_gemm;
    constexpr auto nothing = [](void *, const auto *) -> octavo_status { return OCTAVO_OK; };
    table_.dequantize = nothing;
    table_.sum_rows = nothing;
    table_.copy = nothing;
    table_.pack = nothing;
    table_.delayed_scale_update = nothing;
    // Recipes that are measured here need no table of octavo/draft.
    table_.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    d.kernels = &table_;
    if (backend().open_session(&d, &session_) != OCTAVO_OK) return false;
    octavo_session *s = session_;
    auto sink = make_call<octavo_slot_sink>(OCTAVO_KIND_SLOT_SINK);
    sink.slot = [](void *, const octavo_slot *) -> octavo_status { return OCTAVO_OK; };
    sink.use = [](void *, const octavo_slot_use *) -> octavo_status { return OCTAVO_OK; };
    auto v = make_call<octavo_verdict>(OCTAVO_KIND_VERDICT);
    uint32_t id = 0;
    return backend().add_parameter(s, &p, &v, &id) == OCTAVO_OK &&
           backend().add_linear(s, &l, &v, &id) == OCTAVO_OK &&
           backend().seal(s, &sink) == OCTAVO_OK;
  }

  octavo_kernels table_ = {};
  std::unique_ptr<octavo_run, Close> run_;
  std::unique_ptr<octavo_store, Close> store_;
  octavo_session *session_ = nullptr;
};

void direct_row(benchmark::State &state) {
  Layer o;
  int64_t rows = Layer::kRows;
  benchmark::DoNotOptimize(rows);
  for (auto _ : state) {
    octavo_status status = direct_forward(o.x, rows, o.y, o.weight, o.workspace);
    benchmark::DoNotOptimize(status);
  }
  count_items(state, 1);
}

enum class From { kAddresses, kStore };

void forward_row(benchmark::State &state, bool is_reference, From from) {
  Layer o;
  if (!o.open("reference")) return state.SkipWithError("no session of the reference backend");
  octavo_backend table = o.backend();
  if (!is_reference) table.linear_forward = empty_forward;
  const octavo_backend *backend = &table;
  benchmark::DoNotOptimize(backend);  // read afresh for each call, as of another library
  int64_t rows = Layer::kRows;
  benchmark::DoNotOptimize(rows);
  for (auto _ : state) {
    octavo_tensor x = {o.x, rows, Layer::kSize, Layer::kSize, OCTAVO_F32, 0};
    octavo_tensor y = {o.y, rows, Layer::kSize, Layer::kSize, OCTAVO_F32, 0};
    void *const own[2] = {o.weight, &o.nonfinite};
    octavo_forward_call c = {};
    c.size = sizeof c;
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.x = &x;
    c.y = &y;
    c.slots = from == From::kAddresses
                  ? own
                  : octavo_store_slots(o.store(), OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
    c.workspace = o.workspace;
    octavo_status status = backend->linear_forward(o.session(), &c);
    if (status != OCTAVO_OK) return state.SkipWithError("linear_forward was refused");
  }
  count_items(state, 1);
}

enum class Verb { kQuantizeWeight, kForward, kBackward, kEndStep };

// Every slot is at the same address, since no kernel looks.
void verb_row(benchmark::State &state, const char *name, Verb verb) {
  Layer o;
  if (!o.open(name)) return state.SkipWithError("no session of the backend");
  octavo_tensor x = tensor(o.x, Layer::kRows, Layer::kSize, OCTAVO_F32);
  octavo_tensor y = tensor(o.y, Layer::kRows, Layer::kSize, OCTAVO_F32);
  octavo_tensor dw = tensor(o.weight, Layer::kSize, Layer::kSize, OCTAVO_F32);
  const std::vector<void *> list(64, o.weight);
  auto w = make_call<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
  auto f = make_call<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  auto b = make_call<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  auto e = make_call<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  w.slots = f.slots = b.slots = e.slots = list.data();
  w.workspace = f.workspace = b.workspace = o.workspace;
  f.x = &x, f.y = &y, f.saved = o.workspace;
  b.dy = &y, b.dx = &x, b.dw = name == std::string("te") ? &dw : nullptr, b.saved = o.workspace;
  const octavo_backend *backend = &o.backend();
  if (backend->quantize_weight(o.session(), &w) != OCTAVO_OK)
    return state.SkipWithError("quantize_weight was refused");
  for (auto _ : state) {
    benchmark::DoNotOptimize(backend);
    const octavo_status status =
        verb == Verb::kQuantizeWeight ? backend->quantize_weight(o.session(), &w)
        : verb == Verb::kForward      ? backend->linear_forward(o.session(), &f)
        : verb == Verb::kBackward     ? backend->linear_backward(o.session(), &b)
                                      : backend->end_step(o.session(), &e);
    if (status != OCTAVO_OK) return state.SkipWithError("the verb was refused");
  }
  count_items(state, 1);
}

}  // namespace

void add_forward() {
  benchmark::RegisterBenchmark("Forward/direct", direct_row);
  benchmark::RegisterBenchmark("Forward/empty", forward_row, false, From::kAddresses);
  benchmark::RegisterBenchmark("Forward/store", forward_row, false, From::kStore);
  benchmark::RegisterBenchmark("Forward/reference", forward_row, true, From::kAddresses);
  for (const char *name : {"te", "msamp"})
    for (const auto &[verb, text] : {std::pair{Verb::kQuantizeWeight, "quantize_weight"},
                                     {Verb::kForward, "linear_forward"},
                                     {Verb::kBackward, "linear_backward"},
                                     {Verb::kEndStep, "end_step"}})
      benchmark::RegisterBenchmark(("Verb/" + std::string(name) + "/" + text).c_str(), verb_row,
                                   name, verb);
}

}  // namespace octavo::bench

// Each backend has a run of its own with one linear; x, dy, y and dx are shared. The products in
// bf16 are those of the run's kernels, which on a GPU are the ones of cuBLASLt.
#include "sdk/cli/bench/measure.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "octavo/kernels.h"
#include "sdk/cli/training_check/plain.h"

namespace octavo::cli::bench {
namespace {

constexpr int kBf16Shift = 16;  // a bf16 is the upper half of an fp32

// Numbers of [-1, 1) on the run's device, in bf16.
octavo::DeviceBuffer numbers(const octavo::Memory &memory, int64_t count, uint64_t seed) {
  training_check::Floats floats(static_cast<size_t>(count));
  training_check::fill(floats, seed, 1);
  octavo::Array<uint16_t> values(floats.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &floats[i], sizeof bits);
    values[i] = static_cast<uint16_t>(bits >> kBf16Shift);
  }
  octavo::DeviceBuffer buffer(memory, values.bytes());
  if (memory.is_host())
    std::memcpy(buffer.data(), values.data(), values.bytes());
  else
    memory.copy(buffer.data(), values.data(), values.bytes());
  return buffer;
}

// What all backends and the products in bf16 work on.
struct Batch {
  Batch(const octavo::Memory &memory_, int64_t m, int64_t n, int64_t k)
      : memory(memory_),
        at_x(numbers(memory, m * k, 1)),
        at_dy(numbers(memory, m * n, 2)),
        at_w(numbers(memory, n * k, 3)),
        at_y(numbers(memory, m * n, 4)),
        at_dx(numbers(memory, m * k, 5)),
        at_dw(memory, static_cast<uint64_t>(n * k) * sizeof(float)),
        x(octavo::view(at_x.data(), OCTAVO_BF16, m, k)),
        dy(octavo::view(at_dy.data(), OCTAVO_BF16, m, n)),
        w(octavo::view(at_w.data(), OCTAVO_BF16, n, k)),
        y(octavo::view(at_y.data(), OCTAVO_BF16, m, n)),
        dx(octavo::view(at_dx.data(), OCTAVO_BF16, m, k)),
        dw(octavo::view(at_dw.data(), OCTAVO_F32, n, k)) {
    const octavo::Array<float> zeros(static_cast<size_t>(n * k));
    if (!memory.is_host()) memory.copy(at_dw.data(), zeros.data(), zeros.bytes());
  }
  // The device has done what it was given.
  void wait() const { memory.read(static_cast<const float *>(dw.data)); }

  const octavo::Memory &memory;
  octavo::DeviceBuffer at_x, at_dy, at_w, at_y, at_dx, at_dw;
  octavo_tensor x, dy, w, y, dx, dw;
};

// y = x w^T, dx = dy w, dw += dy^T x, each one product in bf16.
class Bf16 {
 public:
  Bf16(const octavo::Run &run, Batch &batch)
      : host_(run.host()),
        desc_(*octavo_run_session_desc(run.get())),
        batch_(batch),
        workspace_(batch.memory) {}

  void step() {
    product(batch_.x, batch_.w, batch_.y, 0, 0);
    product(batch_.dy, batch_.w, batch_.dx, OCTAVO_GEMM_B_KN, 0);
    product(batch_.dy, batch_.x, batch_.dw, OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN, 1);
  }

 private:
  void product(const octavo_tensor &a, const octavo_tensor &b, octavo_tensor &d, uint32_t layout,
               uint32_t accumulate) {
    auto call = octavo::make<octavo_gemm>(OCTAVO_KIND_GEMM);
    call.a = &a, call.b = &b, call.d = &d;
    call.layout = layout, call.accumulate = accumulate;
    uint64_t bytes = 0;
    const octavo_kernels &kernels = *desc_.kernels;
    host_.require(kernels.workspace_bytes(desc_.kernels_ctx, &call, &bytes), "workspace_bytes");
    workspace_.grow(bytes);
    call.workspace = workspace_.data();
    host_.require(kernels.gemm(desc_.kernels_ctx, &call), "gemm in bf16");
  }

  octavo::Host &host_;
  const octavo_session_desc &desc_;
  Batch &batch_;
  octavo::DeviceBuffer workspace_;
};

// One linear of a backend, with what it adds to the products: its casts.
class Fp8 {
 public:
  Fp8(const octavo::Run &run, const estimate::Placed &placed, int64_t rows, Batch &batch)
      : memory_(run), store_(run) {
    const uint32_t parameter = placed.parameter;
    store_.lend(run, parameter, batch.w.data);
    store_.lend(run, parameter, batch.dw.data, OCTAVO_ROLE_GRADIENT);
    calls_ = std::make_unique<octavo::LinearCalls>(run, store_, parameter, placed.linear, rows);
    end_ = std::make_unique<octavo::EndStep>(run, store_);
    if (run.owns(parameter)) octavo::write_parameter(run, store_, parameter, batch.w);
    calls_->forward.x(batch.x).y(batch.y);
    calls_->backward.x(batch.x).dy(batch.dy).dx(batch.dx);
    if (calls_->gives_dw()) calls_->backward.dw(batch.dw);
  }
  void step() {
    calls_->quantize_weight();
    calls_->forward();
    calls_->backward();
  }
  // Once a step of the model, whatever the number of its linears: not part of a linear's time.
  void end() {
    (*end_)();
    store_.clear(OCTAVO_ROLE_GRADIENT);
  }

 private:
  octavo::Memory memory_;
  octavo::Store store_;
  std::unique_ptr<octavo::LinearCalls> calls_;
  std::unique_ptr<octavo::EndStep> end_;
};

template <typename Step>
double seconds_of(const Batch &batch, Step step) {
  using Clock = std::chrono::steady_clock;
  batch.wait();
  const Clock::time_point start = Clock::now();
  step();
  batch.wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<Shape> shapes_of(const estimate::Shapes &model) {
  std::vector<Shape> all;
  for (const estimate::Tensor &t : model.tensors) {
    if (t.linear.empty()) continue;
    Shape *found = nullptr;
    for (Shape &s : all)
      if (s.n == t.rows && s.k == t.cols) found = &s;
    if (found == nullptr) found = &all.emplace_back(Shape{t.rows, t.cols, {}});
    found->linears.push_back(t.linear);
  }
  return all;
}

Meter::Meter(octavo::Settings settings, std::vector<estimate::Named> backends, int64_t rows,
             double seconds)
    : settings_(std::move(settings)),
      backends_(std::move(backends)),
      rows_(rows),
      seconds_(seconds) {
  host_.set_parallel(threads_.parallel());
}

Measured Meter::measure(const Shape &shape) {
  estimate::Shapes one;
  const std::string &name = shape.linears.front();
  one.tensors.push_back({name + ".weight", shape.n, shape.k, name, name, OCTAVO_BF16});
  Measured m{shape, {}, {}};
  std::vector<std::unique_ptr<estimate::Model>> models;
  std::vector<std::unique_ptr<Fp8>> linears(backends_.size());
  std::optional<octavo::Memory> memory;
  std::optional<Batch> batch;
  std::optional<Bf16> bf16;
  for (size_t i = 0; i < backends_.size(); ++i) {
    models.push_back(std::make_unique<estimate::Model>(
        estimate::seal_model(settings_, backends_[i], one, &host_)));
    const estimate::Model &model = *models.back();
    m.backends.push_back({backends_[i].text, model.refused, {}});
    if (!model.refused.empty()) continue;
    if (!batch) {
      const octavo_kernels_caps &caps = *octavo_run_session_desc(model.run->get())->caps;
      kernels_ = octavo::text(caps.id);
      is_emulated_ = (caps.flags & OCTAVO_CAPS_EMULATED) != 0;
      memory.emplace(*model.run);
      batch.emplace(*memory, rows_, shape.n, shape.k);
      bf16.emplace(*model.run, *batch);
    }
    const estimate::Placed &placed = model.placed.front();
    if (placed.linear == OCTAVO_NONE)
      m.backends.back().refused = placed.refused;
    else
      linears[i] = std::make_unique<Fp8>(*model.run, placed, rows_, *batch);
  }
  if (!batch) return m;
  double spent = 0;
  // The first round warms up: caches, scales, plans of cuBLASLt.
  for (size_t round = 0; round <= kFewest || (round <= kMost && spent < seconds_); ++round) {
    const auto add = [&](std::vector<double> &to, auto &way) {
      const double seconds = seconds_of(*batch, [&way] { way.step(); });
      spent += seconds;
      if (round > 0) to.push_back(seconds);
    };
    add(m.bf16, *bf16);
    for (size_t i = 0; i < linears.size(); ++i) {
      if (linears[i] == nullptr) continue;
      add(m.backends[i].seconds, *linears[i]);
      linears[i]->end();
    }
  }
  return m;
}

}  // namespace octavo::cli::bench

// A host over octavo.h whose kernels run late (tests/support/late_kernels.h), as any device's may:
// steps on one stream have the bits of kernels that run at once, though the structs and lists of a
// call are overwritten when it returns, the workspace after each call, and `saved` moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/cuda_on_cpu/queue.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

constexpr int64_t kRows = 24, kIn = 32, kHidden = 48, kOut = 16;
constexpr int kGarbage = 0xAB;
using Bytes = std::vector<uint8_t>;

const cuda_on_cpu::Queue &queue() {
  return *cuda_on_cpu::shared_queue();
}

template <typename Call>
Call call_of(uint32_t kind) {
  Call c{};
  c.size = sizeof c;
  c.kind = kind;
  return c;
}

// A parameter or linear with the memory of its calls.
struct Weight {
  uint32_t id;
  int64_t n, k;
  float *values, *gradient;
};
struct Layer {
  uint32_t id;
  size_t weight;
  octavo_tensor x, y, dy, dx, bias, db;
  uint8_t *saved, *elsewhere;
  uint64_t saved_bytes;
};

class Host {
 public:
  explicit Host(const std::string &recipe) {
    request.set("plugins.trust", "dev").set("layers.min_gain", "off").set("device.kind", "npu");
    request.set("fp8.backend", "te").set("fp8.te.recipe", recipe);
    request.plugins(OCTAVO_LATE_KERNELS_DIR).plugins(OCTAVO_PLUGINS_DIR);
    EXPECT_EQ(request.open(run_), OCTAVO_OK) << request.host.error();
    workspace_ = take<uint8_t>(kWorkspace);
    queue().be_lazy(0);
  }
  ~Host() {
    queue().be_lazy(0);
    octavo_store_close(store_);
  }
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  void on(void *stream) { stream_ = stream; }
  size_t add_weight(const char *name, int64_t n, int64_t k) {
    const Answer added = test::add_weight(run_.get(), name, n, k);
    EXPECT_EQ(added.status, OCTAVO_OK);
    weights_.push_back({added.id, n, k, values(n * k, 0.25f), values(n * k, 0)});
    return weights_.size() - 1;
  }
  void add_linear(const char *name, size_t weight, const float *x = nullptr) {
    const Weight &w = weights_[weight];
    const Answer added = test::add_linear(run_.get(), name, w.id);
    EXPECT_EQ(added.status, OCTAVO_OK) << request.host.error();
    const auto matrix = [](const float *data, int64_t rows, int64_t cols) {
      return octavo_tensor{const_cast<float *>(data), rows, cols, cols, OCTAVO_F32, 0};
    };
    layers_.push_back(
        {added.id, weight, matrix(x ? x : values(kRows * w.k, 1), kRows, w.k),
         matrix(values(kRows * w.n, 0), kRows, w.n), matrix(values(kRows * w.n, 0.5f), kRows, w.n),
         matrix(values(kRows * w.k, 0), kRows, w.k), matrix(values(w.n, 0.1f), 1, w.n),
         matrix(values(w.n, 0), 1, w.n), nullptr, nullptr, 0});
  }
  const float *output(size_t layer) const {
    return static_cast<const float *>(layers_[layer].y.data);
  }
  void seal() {
    ASSERT_EQ(octavo_seal(run_.get()), OCTAVO_OK) << request.host.error();
    if (store_ == nullptr)
      ASSERT_EQ(octavo_store_open(run_.get(), &store_), OCTAVO_OK) << request.host.error();
    else
      ASSERT_EQ(octavo_store_extend(store_), OCTAVO_OK);
    for (const Weight &w : weights_) {
      ASSERT_EQ(octavo_store_native(store_, w.id, OCTAVO_ROLE_WEIGHT, w.values), OCTAVO_OK);
    }
    for (Layer &l : layers_) {
      if (l.saved != nullptr) continue;
      const octavo_linear_plan *plan = octavo_run_plan(run_.get(), l.id);
      l.saved_bytes = octavo_extent_bytes(&plan->saved, kRows);
      l.saved = take<uint8_t>(l.saved_bytes), l.elsewhere = take<uint8_t>(l.saved_bytes);
      for (const uint64_t bytes :
           {octavo_extent_bytes(&plan->forward_workspace, kRows),
            octavo_extent_bytes(&plan->backward_workspace, kRows), plan->weight_workspace})
        ASSERT_LE(bytes, kWorkspace);
    }
  }
  // A step of plain SGD. ends: how often end_step is called.
  void step(int ends, bool recomputes = true) {
    for (size_t w = 0; w < weights_.size(); ++w) quantize(w);
    for (Layer &l : layers_) {
      if (recomputes) forward(l, nullptr);
      forward(l, l.saved);
    }
    for (auto l = layers_.rbegin(); l != layers_.rend(); ++l) backward(*l);
    for (const Weight &w : weights_) {
      later([w] {
        for (int64_t i = 0; i < w.n * w.k; ++i) w.values[i] -= 0.01f * w.gradient[i];
        std::fill_n(w.gradient, w.n * w.k, 0.0f);
      });
    }
    for (int i = 0; i < ends; ++i) end_step();
  }
  void quantize(size_t weight) {
    auto c = call_of<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
    c.parameter = weights_[weight].id;
    call(&octavo_backend::quantize_weight, c, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER,
         weights_[weight].id);
  }
  void forward(Layer &l, uint8_t *saved) {
    Layer own = l;
    auto c = call_of<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    c.linear = l.id, c.x = &own.x, c.y = &own.y, c.bias = &own.bias, c.saved = saved;
    call(&octavo_backend::linear_forward, c, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, l.id);
    std::memset(static_cast<void *>(&own), kGarbage, sizeof own);
    if (saved == nullptr) return;
    later([l] {
      std::memcpy(l.elsewhere, l.saved, l.saved_bytes);
      std::memset(l.saved, kGarbage, l.saved_bytes);
    });
  }
  void forward_of_first() { forward(layers_[0], nullptr); }
  void backward(Layer &l) {
    Layer own = l;
    const Weight &w = weights_[l.weight];
    octavo_tensor dw = {w.gradient, w.n, w.k, w.k, OCTAVO_F32, 0};
    auto c = call_of<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    c.linear = l.id, c.dy = &own.dy, c.x = &own.x, c.dx = &own.dx, c.db = &own.db;
    c.dw = &dw, c.saved = l.elsewhere;
    call(&octavo_backend::linear_backward, c, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, l.id);
    std::memset(static_cast<void *>(&own), kGarbage, sizeof own);
    std::memset(static_cast<void *>(&dw), kGarbage, sizeof dw);
  }
  void end_step() {
    auto c = call_of<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
    call(&octavo_backend::end_step, c, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  }
  // Outputs, gradients, weights and slots.
  std::vector<Bytes> results() {
    std::vector<Bytes> all;
    for (const Layer &l : layers_)
      for (const octavo_tensor &t : {l.y, l.dx, l.db})
        all.push_back(read(t.data, static_cast<uint64_t>(t.rows * t.cols) * sizeof(float)));
    for (const Weight &w : weights_)
      all.push_back(read(w.values, static_cast<uint64_t>(w.n * w.k) * sizeof(float)));
    for (uint32_t id = 0; id < octavo_run_slot_count(run_.get()); ++id) {
      const octavo_slot *s = octavo_run_slot(run_.get(), id);
      if ((s->flags & (OCTAVO_SLOT_NATIVE | OCTAVO_SLOT_PACKED)) != 0) continue;
      all.push_back(read(octavo_store_address(store_, id),
                         OCTAVO_DTYPE_BYTES(s->dtype, static_cast<uint64_t>(s->rows * s->cols))));
    }
    return all;
  }
  void close() { run_.reset(); }
  octavo_run *run() { return run_.get(); }

  Request request;

 private:
  static constexpr uint64_t kWorkspace = uint64_t{1} << 20;

  // The device reads the CPU's memory.
  template <typename T>
  T *take(uint64_t count) {
    const uint64_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    taken_.emplace_back(std::aligned_alloc(64, bytes), std::free);
    return static_cast<T *>(taken_.back().get());
  }
  // Values between -scale and scale, of the device.
  float *values(int64_t count, float scale) {
    std::vector<float> all(static_cast<size_t>(count));
    for (float &v : all) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      v = scale * (static_cast<float>(random_ >> 40) / 8388608.0f - 1);
    }
    auto *data = take<float>(all.size());
    std::copy(all.begin(), all.end(), data);
    return data;
  }
  static Bytes read(const void *data, uint64_t bytes) {
    queue().finish_all();
    const auto *first = static_cast<const uint8_t *>(data);
    return {first, first + bytes};
  }
  // Work of the host on the stream.
  void later(std::function<void()> work) {
    queue().append(
        stream_,
        [](void *argument) {
          const std::unique_ptr<std::function<void()>> kept(
              static_cast<std::function<void()> *>(argument));
          (*kept)();
        },
        new std::function<void()>(std::move(work)));
  }
  template <typename Call>
  void call(octavo_status (*octavo_backend::*verb)(const octavo_session *, const Call *), Call &c,
            uint32_t number, uint32_t owner_kind, uint32_t owner) {
    const uint32_t count = octavo_run_use_count(run_.get(), owner_kind, owner);
    void *const *list = octavo_store_slots(store_, number, owner_kind, owner);
    std::vector<void *> own(list, list + count);
    c.stream = stream_;
    c.slots = own.data();
    if constexpr (requires { c.workspace; }) c.workspace = workspace_;
    ASSERT_EQ((octavo_run_backend(run_.get())->*verb)(octavo_run_session(run_.get()), &c),
              OCTAVO_OK)
        << request.host.error();
    std::memset(static_cast<void *>(&c), kGarbage, sizeof c);
    std::fill(own.begin(), own.end(), reinterpret_cast<void *>(uintptr_t{kGarbage}));
    later([this] { std::memset(workspace_, kGarbage, kWorkspace); });
  }

  RunPtr run_;
  octavo_store *store_ = nullptr;
  void *stream_ = nullptr;
  std::deque<Weight> weights_;
  std::deque<Layer> layers_;
  std::vector<std::unique_ptr<void, void (*)(void *)>> taken_;
  uint8_t *workspace_ = nullptr;
  uint64_t random_ = 7;
};

class LateHost : public testing::TestWithParam<const char *> {
 protected:
  static void build(Host &host) {
    const size_t w = host.add_weight("w", kHidden, kIn), last = host.add_weight("l", kOut, kHidden);
    host.add_linear("a", w);
    host.add_linear("tied", w);
    host.add_linear("last", last, host.output(0));
    host.seal();
  }
  // seed 0: kernels run at once.
  static std::vector<Bytes> trained(uint64_t seed, bool own_stream) {
    Host host(GetParam());
    build(host);
    queue().be_lazy(seed);
    if (own_stream) host.on(queue().new_stream());
    host.step(1);
    host.step(1, false);
    host.step(0);  // end_step is left out
    host.step(2);  // and called again
    host.add_linear("late", host.add_weight("late", kOut, kOut), host.output(2));
    host.seal();  // with work in flight
    host.step(1);
    host.step(1);
    return host.results();
  }
};

TEST_P(LateHost, steps_have_the_bits_of_kernels_that_run_at_once) {
  const std::vector<Bytes> expected = trained(0, false);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Bytes> found = trained(seed, seed % 2 == 0);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], expected[i]) << "seed " << seed << ", number " << i;
  }
}

// A call that has a session to itself has it after all that was queued.
TEST_P(LateHost, setup_comes_behind_what_is_queued) {
  Host host(GetParam());
  build(host);
  queue().be_lazy(1);
  const auto busy = [&] {
    host.quantize(0);
    host.forward_of_first();
    EXPECT_FALSE(queue().is_idle());
  };
  busy();
  const Answer weight = add_weight(host.run(), "more", kOut, kOut);
  ASSERT_EQ(weight.status, OCTAVO_OK);
  EXPECT_TRUE(queue().is_idle()) << "octavo_add_parameter";
  busy();
  ASSERT_EQ(add_linear(host.run(), "more", weight.id).status, OCTAVO_OK);
  EXPECT_TRUE(queue().is_idle()) << "octavo_add_linear";
  busy();
  ASSERT_EQ(octavo_seal(host.run()), OCTAVO_OK);
  EXPECT_TRUE(queue().is_idle()) << "octavo_seal";
  busy();
  host.close();
  EXPECT_TRUE(queue().is_idle()) << "octavo_close";
}

INSTANTIATE_TEST_SUITE_P(Recipes, LateHost, testing::Values("delayed", "current", "block", "mx"));

}  // namespace
}  // namespace octavo::test

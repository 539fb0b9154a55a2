/* tests/kernels/cuda/every_verb.h: one small call of each entry of the kernels table, on memory of
 * a device, for tests of what holds for all of them.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_EVERY_VERB_H
#define OCTAVO_TESTS_KERNELS_CUDA_EVERY_VERB_H

#include <cstddef>
#include <functional>

#include "kernels/cuda/table.h"
#include "octavo/draft/optimizer.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "tests/kernels/cuda/gemm_case.h"

namespace octavo::test {

class EveryVerb {
 public:
  /* What a call is to be: as it should be, or without its size, which every verb refuses. */
  enum class Kind { kRight, kWrong };
  struct Verb {
    const char *name;
    bool launches;
    std::function<octavo_status(void *ctx, void *stream, Kind kind)> run;
    octavo_status right = OCTAVO_OK;
    octavo_status wrong = OCTAVO_INVALID;
  };

  /* Memory of the current device; it holds `fill`, which as 0x38 and a little more is finite in
   * every dtype. */
  explicit EveryVerb(void *ctx, uint8_t fill = 0x38) {
    void *data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, kBytes), cudaSuccess);
    memory_ = static_cast<uint8_t *>(data);
    std::memset(memory_, fill, kBytes);
    make_tensors();
    make_calls(ctx);
    make_table();
  }
  ~EveryVerb() {
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    for (void *data : workspaces_) EXPECT_EQ(cudaFree(data), cudaSuccess);
  }
  EveryVerb(const EveryVerb &) = delete;
  EveryVerb &operator=(const EveryVerb &) = delete;

  /* As many as the table has entries, and the extensions of adam and msamp. */
  const std::vector<Verb> &verbs() const { return verbs_; }
  static constexpr size_t kEntries =
      (sizeof(octavo_kernels) - offsetof(octavo_kernels, probe_device) - /* get_extension */
       sizeof(void (*)()) + sizeof(octavo_adam_kernels) - offsetof(octavo_adam_kernels, adam_step) +
       sizeof(octavo_msamp_kernels) - offsetof(octavo_msamp_kernels, sum_quantized)) /
      sizeof(void (*)());
  /* All that launch, in the order of the table. */
  void launch_all(void *ctx, void *stream) const {
    for (const Verb &v : verbs_) {
      if (v.launches) {
        EXPECT_EQ(v.run(ctx, stream, Kind::kRight), v.right) << v.name;
      }
    }
  }
  /* What all calls read and write, but workspaces. */
  std::vector<uint8_t> read() const { return {memory_, memory_ + used_}; }
  /* Each verb's that concurrent calls may share, from `at` on; the number of floats. */
  size_t accumulate_at(float *at) {
    float **const all[] = {&quantize_.amax,       &quantize_.nonfinite, &amax_.amax,
                           &amax_.nonfinite,      &fused_cast_.amax,    &fused_cast_.nonfinite,
                           &sum_codes_.saturated, &sum_codes_.added,    &stats_.saturated,
                           &stats_.underflow,     &stats_.signal,       &stats_.noise};
    size_t count = 0;
    for (float **target : all) *target = at + count++;
    squares_.out = at + count++;
    return count;
  }
  void write(const std::vector<uint8_t> &bytes) { std::copy(bytes.begin(), bytes.end(), memory_); }

 private:
  static constexpr size_t kBytes = size_t{2} << 20;
  static constexpr int64_t kRows = 48, kCols = 160; /* more than a block, and no multiple of one */
  static constexpr int64_t kSummed = 1024;          /* rows: sums of several blocks */

  void *take(size_t bytes) {
    void *at = memory_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    EXPECT_LE(used_, kBytes);
    return at;
  }
  float *floats(size_t count = 1) { return static_cast<float *>(take(count * sizeof(float))); }
  octavo_tensor tensor(uint32_t dtype, int64_t rows = kRows, int64_t cols = kCols) {
    return {
        take(static_cast<size_t>(rows * cols * dtype_bytes(dtype))), rows, cols, cols, dtype, 0};
  }

  void make_tensors() {
    scale_ = OCTAVO_SCALE(floats(), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
    in_ = tensor(OCTAVO_F32), codes_ = tensor(OCTAVO_E4M3FN);
    static_cast<uint8_t *>(codes_.data)[0] = 0; /* an underflow */
    quantized_ = tensor(OCTAVO_E4M3FN), decoded_ = tensor(OCTAVO_F32);
    result_ = tensor(OCTAVO_F32), fused_codes_ = tensor(OCTAVO_E4M3FN);
    summed_ = tensor(OCTAVO_F32, kSummed), summed_codes_ = tensor(OCTAVO_E4M3FN, kSummed);
    b_ = tensor(OCTAVO_E4M3FN, 32), d_ = tensor(OCTAVO_BF16, kRows, 32);
    bias_ = tensor(OCTAVO_BF16, 1, 32);
    packed_ = tensor(OCTAVO_E4M3FN);
    shape_ = in_;
    shape_.data = nullptr;
    item_ = {tensor(OCTAVO_F32),
             tensor(OCTAVO_F32),
             tensor(OCTAVO_E4M3FN),
             tensor(OCTAVO_F32),
             nullptr,
             nullptr,
             floats(),
             nullptr,
             static_cast<int32_t *>(take(sizeof(int32_t))),
             floats(OCTAVO_HYPER_COUNT)};
    for (float *&target : targets_) target = floats();
  }

  template <typename Call>
  void begin(Call *c, uint32_t kind) {
    *c = {};
    c->size = sizeof(*c);
    c->kind = kind;
  }
  template <typename Call>
  void give_workspace(void *ctx, Call *c) {
    if constexpr (requires { c->workspace; }) {
      uint64_t bytes = 0;
      EXPECT_EQ(cuda::workspace_bytes(ctx, c, &bytes), OCTAVO_OK);
      if (bytes == 0) return;
      EXPECT_EQ(cudaMalloc(&c->workspace, bytes), cudaSuccess);
      workspaces_.push_back(c->workspace);
    }
  }

  void make_calls(void *ctx) {
    const auto cast = [&](octavo_quantize *q, const octavo_tensor *in, octavo_tensor *out) {
      begin(q, OCTAVO_KIND_QUANTIZE);
      q->in = in, q->out = out;
      q->out_scale_inv = &scale_;
      q->amax = floats(), q->nonfinite = floats();
      q->format_max = 448.0f;
      q->rule = OCTAVO_RULE_QUOTIENT;
    };
    cast(&quantize_, &in_, &quantized_);
    begin(&dequantize_, OCTAVO_KIND_DEQUANTIZE);
    dequantize_.in = &codes_, dequantize_.out = &decoded_;
    dequantize_.scale_inv = &scale_, dequantize_.accumulate = 1;
    begin(&amax_, OCTAVO_KIND_COMPUTE_AMAX);
    amax_.in = &in_, amax_.amax = floats();
    begin(&from_amax_, OCTAVO_KIND_SCALE_FROM_AMAX);
    from_amax_.amax = floats(5), from_amax_.scale = floats(5), from_amax_.n = 5;
    from_amax_.format_max = 448.0f, from_amax_.divide_by = 1.0f;
    from_amax_.rule = OCTAVO_RULE_QUOTIENT;
    begin(&delayed_, OCTAVO_KIND_DELAYED_SCALE_UPDATE);
    delayed_.amax = floats(5), delayed_.history = floats(15), delayed_.scale = floats(5);
    delayed_.rule = OCTAVO_RULE_QUOTIENT, delayed_.history_flags = OCTAVO_HISTORY_TE;
    delayed_.n = 5, delayed_.length = 3, delayed_.format_max = 448.0f, delayed_.use_max = 1;
    begin(&gemm_, OCTAVO_KIND_GEMM);
    gemm_.a = &codes_, gemm_.b = &b_, gemm_.d = &d_, gemm_.bias = &bias_;
    gemm_.a_scale_inv = gemm_.b_scale_inv = &scale_;
    begin(&adam_, OCTAVO_KIND_ADAM_STEP);
    adam_.items = &item_, adam_.count = 1;
    adam_.rule = OCTAVO_RULE_MSAMP, adam_.decay_mode = OCTAVO_DECAY_DECOUPLED;
    adam_.state_granularity = OCTAVO_PER_TENSOR;
    begin(&sum_codes_, OCTAVO_KIND_SUM_QUANTIZED);
    sum_codes_.codes = summed_codes_.data, sum_codes_.out = take(kSummed * kCols / 2);
    sum_codes_.count = sum_codes_.shard_stride = kSummed * kCols / 2, sum_codes_.shards = 2;
    sum_codes_.dtype = OCTAVO_E4M3FN;
    sum_codes_.saturated = floats(), sum_codes_.added = floats();
    begin(&sum_rows_, OCTAVO_KIND_SUM);
    sum_rows_.in = &summed_, sum_rows_.accumulate = 1, sum_rows_.out = floats(kCols);
    squares_ = sum_rows_;
    squares_.accumulate = 0, squares_.out = floats();
    begin(&copy_, OCTAVO_KIND_COPY);
    copy_.in = in_.data, copy_.out = take(1000), copy_.bytes = 1000;
    begin(&values_, OCTAVO_KIND_SCALE_VALUES);
    values_.in = floats(7), values_.out = floats(7), values_.n = 7, values_.factor = 0.5f;
    begin(&prescale_, OCTAVO_KIND_PRESCALE_UPDATE);
    prescale_.prescale = floats(), prescale_.saturated = floats(), prescale_.added = floats();
    prescale_.growth = 1.01f, prescale_.low = 0.5f, prescale_.high = 1.0f;
    begin(&stats_, OCTAVO_KIND_QUANTIZE_STATS);
    stats_.in = &in_, stats_.codes = &codes_, stats_.scale_inv = &scale_;
    stats_.signal = floats(), stats_.noise = floats();
    begin(&gelu_, OCTAVO_KIND_PROLOGUE);
    gelu_.op = OCTAVO_PROLOGUE_GELU, gelu_.in = &in_;
    begin(&prologue_, OCTAVO_KIND_PROLOGUE_CALL);
    prologue_.prologue = &gelu_;
    fused_ = prologue_;
    prologue_.out = &result_;
    cast(&fused_cast_, &shape_, &fused_codes_);
    fused_.quantize = &fused_cast_;
    begin(&gradient_, OCTAVO_KIND_GRADIENT_SCALE);
    gradient_.sum = floats(3), gradient_.sum_count = 3;
    gradient_.norm = floats(), gradient_.skip = floats();
    gradient_.grad_scale = targets_, gradient_.count = std::size(targets_);
    gradient_.factor = 1.0f, gradient_.max_norm = 1.0f;
    begin(&pack_, OCTAVO_KIND_PACK);
    pack_.in = &codes_, pack_.out = &packed_;
    give_workspace(ctx, &quantize_);
    give_workspace(ctx, &gemm_);
    give_workspace(ctx, &adam_);
    give_workspace(ctx, &fused_);
    give_workspace(ctx, &sum_codes_);
    give_workspace(ctx, &sum_rows_);
    give_workspace(ctx, &squares_);
  }

  template <typename Argument, typename Call>
  void add(const char *name, octavo_status (*verb)(void *, const Argument *), const Call &call,
           bool launches = true, octavo_status right = OCTAVO_OK) {
    const auto run = [verb, &call](void *ctx, void *stream, Kind kind) {
      Call c = call;
      c.stream = stream;
      if (kind == Kind::kWrong) c.size = 0;
      return verb(ctx, &c);
    };
    verbs_.push_back({name, launches, run, right});
  }

  void make_table() {
    const octavo_kernels &t = *cuda::table();
    const auto index_of = [](Kind kind) { return kind == Kind::kRight ? 0 : 99; };
    const auto probe = [&t, index_of](void *, void *, Kind kind) {
      octavo_verdict_sink sink = {};
      sink.verdict = [](void *, const octavo_verdict *) {};
      return t.probe_device({OCTAVO_DEVICE_CUDA, index_of(kind)}, &sink);
    };
    const auto open = [&t, index_of](void *, void *, Kind kind) {
      const FakeHost host;
      void *ctx = nullptr;
      const octavo_status status =
          t.open_device({OCTAVO_DEVICE_CUDA, index_of(kind)}, host.get(), &ctx);
      t.close_device(ctx); /* null: nothing */
      return status;
    };
    const auto describe = [&t](void *ctx, void *, Kind kind) {
      octavo_kernels_caps caps = {};
      caps.size = kind == Kind::kRight ? sizeof(caps) : 0;
      return t.describe(ctx, &caps);
    };
    const auto can = [&t](void *ctx, void *, Kind kind) {
      octavo_ability question = {};
      question.size = kind == Kind::kRight ? sizeof(question) : 0;
      question.kind = OCTAVO_KIND_ABILITY;
      return t.ability(ctx, &question);
    };
    const auto ask = [&t, this](void *ctx, void *, Kind kind) {
      uint64_t bytes = 0;
      octavo_gemm c = gemm_;
      if (kind == Kind::kWrong) c.size = 0;
      return t.workspace_bytes(ctx, &c, &bytes);
    };
    verbs_ = {{"probe_device", false, probe, OCTAVO_OK, OCTAVO_OK},
              {"open_device", false, open, OCTAVO_OK, OCTAVO_FAILED_DEVICE},
              {"close_device", false, open, OCTAVO_OK, OCTAVO_FAILED_DEVICE},
              {"describe", false, describe},
              {"ability", false, can},
              {"workspace_bytes", false, ask}};
    const KernelsTables tables(&t, nullptr);
    const auto &adam = *tables.get<octavo_adam_kernels>();
    const auto &msamp = *tables.get<octavo_msamp_kernels>();
    add("quantize", t.quantize, quantize_);
    add("dequantize", t.dequantize, dequantize_);
    add("compute_amax", t.compute_amax, amax_);
    add("scale_from_amax", t.scale_from_amax, from_amax_);
    add("delayed_scale_update", t.delayed_scale_update, delayed_);
    add("gemm", t.gemm, gemm_);
    add("adam_step", adam.adam_step, adam_);
    add("sum_quantized", msamp.sum_quantized, sum_codes_);
    add("sum_rows", t.sum_rows, sum_rows_);
    add("sum_of_squares", adam.sum_of_squares, squares_);
    add("copy", t.copy, copy_);
    add("scale_values", msamp.scale_values, values_);
    add("prescale_update", msamp.prescale_update, prescale_);
    add("quantize_stats", t.quantize_stats, stats_);
    add("prologue", t.prologue, prologue_);
    add("prologue_quantize", t.prologue_quantize, fused_);
    add("gradient_scale", adam.gradient_scale, gradient_);
    add("pack", t.pack, pack_, false, OCTAVO_UNSUPPORTED);
  }

  uint8_t *memory_ = nullptr;
  size_t used_ = 0;
  std::vector<void *> workspaces_;
  std::vector<Verb> verbs_;
  octavo_scale scale_ = {};
  octavo_tensor in_ = {}, codes_ = {}, quantized_ = {}, decoded_ = {}, result_ = {};
  octavo_tensor fused_codes_ = {}, b_ = {}, d_ = {}, bias_ = {}, packed_ = {}, shape_ = {};
  octavo_tensor summed_ = {}, summed_codes_ = {};
  octavo_adam_item item_ = {};
  float *targets_[3] = {};
  octavo_quantize quantize_ = {}, fused_cast_ = {};
  octavo_dequantize dequantize_ = {};
  octavo_compute_amax amax_ = {};
  octavo_scale_from_amax from_amax_ = {};
  octavo_delayed_scale_update delayed_ = {};
  octavo_gemm gemm_ = {};
  octavo_adam_step adam_ = {};
  octavo_sum_quantized sum_codes_ = {};
  octavo_sum sum_rows_ = {}, squares_ = {};
  octavo_copy copy_ = {};
  octavo_scale_values values_ = {};
  octavo_prescale_update prescale_ = {};
  octavo_quantize_stats stats_ = {};
  octavo_prologue gelu_ = {};
  octavo_prologue_call prologue_ = {}, fused_ = {};
  octavo_gradient_scale gradient_ = {};
  octavo_pack pack_ = {};
};

}  // namespace octavo::test

#endif

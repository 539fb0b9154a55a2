/* tests/kernels/fake_host.h: a host for kernels under test: it keeps diagnostics and brings
 * threads.
 *
 * parallel_for ignores the grain on purpose and always cuts the range into one part per thread, so
 * that small tests cross part borders, too.
 */
#ifndef OCTAVO_TESTS_KERNELS_FAKE_HOST_H
#define OCTAVO_TESTS_KERNELS_FAKE_HOST_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/cpu/table.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {

class FakeHost {
 public:
  explicit FakeHost(int threads = 1) : threads_(threads) {
    host_.size = sizeof(host_);
    host_.kind = OCTAVO_KIND_HOST;
    host_.abi_major = OCTAVO_ABI_MAJOR;
    host_.abi_minor = OCTAVO_ABI_MINOR;
    host_.ctx = this;
    host_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
      auto *self = static_cast<FakeHost *>(ctx);
      self->texts_.emplace_back(d->text.data, d->text.size);
      self->codes_.push_back(d->code);
    };
    host_.get_extension = [](void *ctx, octavo_str id) -> const void * {
      auto *self = static_cast<FakeHost *>(ctx);
      const bool is_parallel = std::string_view(id.data, id.size) == OCTAVO_PARALLEL_ID;
      return is_parallel && self->threads_ > 0 ? &self->parallel_ : nullptr;
    };
    parallel_.size = sizeof(parallel_);
    parallel_.kind = OCTAVO_KIND_PARALLEL;
    parallel_.ctx = this;
    parallel_.parallel_for = [](void *ctx, int64_t begin, int64_t end, int64_t,
                                void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
      const int64_t parts = static_cast<FakeHost *>(ctx)->threads_;
      std::vector<std::thread> workers;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t from = begin + (end - begin) * part / parts;
        const int64_t to = begin + (end - begin) * (part + 1) / parts;
        if (from < to) workers.emplace_back(body, arg, from, to);
      }
      for (std::thread &worker : workers) worker.join();
      return octavo_status{OCTAVO_OK};
    };
  }
  FakeHost(const FakeHost &) = delete;
  FakeHost &operator=(const FakeHost &) = delete;

  const octavo_host *get() const { return &host_; }
  const std::vector<std::string> &texts() const { return texts_; }
  const std::vector<int32_t> &codes() const { return codes_; }
  std::string last_text() const { return texts_.empty() ? std::string() : texts_.back(); }

 private:
  int threads_; /* 0: no octavo.parallel/1 */
  octavo_host host_ = {};
  octavo_parallel parallel_ = {};
  std::vector<std::string> texts_;
  std::vector<int32_t> codes_;
};

constexpr octavo_device kCpu = {OCTAVO_DEVICE_CPU, 0};

/* The CPU kernels, opened on a fake host; `level` "" takes what the machine offers. */
class Kernels {
 public:
  explicit Kernels(int threads = 1, const std::string &level = "") : host_(threads) {
    /* The environment's own choice comes back afterwards, so a whole run can be forced from
     * outside. */
    const char *outer = std::getenv("OCTAVO_FORCE_KERNELS");
    const std::string kept = outer == nullptr ? "" : outer;
    if (!level.empty()) setenv("OCTAVO_FORCE_KERNELS", level.c_str(), 1);
    status_ = table->open_device(kCpu, host_.get(), &ctx_);
    if (!level.empty() && outer == nullptr) unsetenv("OCTAVO_FORCE_KERNELS");
    if (!level.empty() && outer != nullptr) setenv("OCTAVO_FORCE_KERNELS", kept.c_str(), 1);
  }
  ~Kernels() {
    if (ctx_ != nullptr) table->close_device(ctx_);
  }
  Kernels(const Kernels &) = delete;
  Kernels &operator=(const Kernels &) = delete;

  octavo_status status() const { return status_; }
  void *ctx() const { return ctx_; }
  const FakeHost &host() const { return host_; }

  octavo_status quantize(const octavo_quantize &c) { return table->quantize(ctx_, &c); }
  octavo_status dequantize(const octavo_dequantize &c) { return table->dequantize(ctx_, &c); }
  octavo_status adam_step(const octavo_adam_step &c) { return draft_call(table, ctx_, &c); }
  octavo_status sum_of_squares(const octavo_sum &c) const {
    return KernelsTables(table, ctx_).get<octavo_adam_kernels>()->sum_of_squares(ctx_, &c);
  }
  /* With a workspace of exactly the stated size. */
  octavo_status gemm(octavo_gemm c) {
    uint64_t bytes = 0;
    const octavo_status status = table->workspace_bytes(ctx_, &c, &bytes);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes workspace(bytes);
    c.workspace = workspace.get();
    return table->gemm(ctx_, &c);
  }

  const octavo_kernels *table = octavo_cpu_kernels();

 private:
  FakeHost host_;
  void *ctx_ = nullptr;
  octavo_status status_ = OCTAVO_OK;
};

/* The levels that this CPU has; the baseline is always one of them. Where OCTAVO_TEST_LEVELS names
 * levels, these, and a test that asks fails when this CPU lacks one. */
inline std::vector<std::string> supported_levels() {
  const char *chosen = std::getenv("OCTAVO_TEST_LEVELS");
  std::istringstream names(chosen != nullptr ? chosen : "baseline avx2 avx512 avx512_bf16 neon");
  std::vector<std::string> levels;
  for (std::string name; names >> name;) {
    if (Kernels(0, name.c_str()).status() == OCTAVO_OK) {
      levels.push_back(name);
    } else if (chosen != nullptr) {
      throw std::runtime_error("OCTAVO_TEST_LEVELS: expected levels that this CPU has, found " +
                               name);
    }
  }
  return levels;
}

}  // namespace octavo::test

#endif

// What a session of a backend runs on, and sizes as its kernels need them.
#pragma once

#include <cstdint>

#include "octavo/kernels.h"
#include "octavo/plugin.h"

namespace octavo::plugin {

constexpr float kE4m3Max = 448.0f;
constexpr float kE5m2Max = 57344.0f;
constexpr float kF16Max = 65504.0f;

// Copied from the session's description, without the options, which are valid during open only.
class Device {
 public:
  Device() = default;
  explicit Device(const octavo_session_desc &desc)
      : host_(desc.host), kernels_(desc.kernels), caps_(desc.caps), ctx_(desc.kernels_ctx) {}

  const octavo_host *host() const { return host_; }
  const octavo_kernels &kernels() const { return *kernels_; }
  void *ctx() const { return ctx_; }
  bool has(uint64_t caps_flag) const { return (caps_->flags & caps_flag) != 0; }

  // Whether the kernels know scales of this granularity.
  bool has_granularity(uint32_t granularity) const {
    return (caps_->granularities >> granularity & 1) != 0;
  }

  int64_t alignment() const {
    return caps_->alignment > 1 ? static_cast<int64_t>(caps_->alignment) : 1;
  }
  // A size as the kernels need it; the difference is padding of zeros.
  int64_t aligned(int64_t n) const { return (n + alignment() - 1) / alignment() * alignment(); }
  // Rows of a panel of weights that `pack` writes; 0: the kernels have no such order.
  int64_t pack_rows() const {
    return OCTAVO_HAS(caps_, octavo_kernels_caps, pack_rows)
               ? static_cast<int64_t>(caps_->pack_rows)
               : 0;
  }
  // A number of rows that fills whole panels.
  int64_t packed(int64_t rows) const {
    return (rows + pack_rows() - 1) / pack_rows() * pack_rows();
  }
  bool pads() const { return alignment() > 1; }
  bool pads(int64_t rows, int64_t cols) const {
    return aligned(rows) != rows || aligned(cols) != cols;
  }

 private:
  const octavo_host *host_ = nullptr;
  const octavo_kernels *kernels_ = nullptr;
  const octavo_kernels_caps *caps_ = nullptr;
  void *ctx_ = nullptr;
};

// A call struct with its head filled in.
template <typename Call>
Call make_call(uint32_t kind, void *stream) {
  Call c{};
  c.size = sizeof(c);
  c.kind = kind;
  c.stream = stream;
  return c;
}

}  // namespace octavo::plugin

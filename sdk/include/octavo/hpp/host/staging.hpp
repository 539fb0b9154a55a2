// octavo/hpp/host/staging.hpp: float32 tensors of the host where the run's device reads and writes
// them, for hosts whose own loops run on the CPU.
//
// What a call on a GPU reads is copied there first, and what it wrote is copied back; where the
// device works on host memory both are the same and nothing is copied.
#ifndef OCTAVO_HPP_HOST_STAGING_HPP
#define OCTAVO_HPP_HOST_STAGING_HPP

#include <vector>

#include "octavo/hpp/host/memory.hpp"

namespace octavo {
inline namespace hpp {

// A norm or activation in front of a linear, with the tensors that it points to; it stays where it
// was filled.
struct Prologue {
  octavo_prologue call = make<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
  octavo_tensor in{}, gamma{}, beta{};
};

// The tensors of one call.
class Staging {
 public:
  explicit Staging(const Memory &memory) : memory_(memory) {}

  // A dense tensor that the call reads, writes, or adds to. Null stays null.
  octavo_tensor in(const float *data, int64_t rows, int64_t cols) {
    return view(place(data, rows * cols, true), rows, cols);
  }
  octavo_tensor out(float *data, int64_t rows, int64_t cols) {
    return view(result(data, rows * cols, false), rows, cols);
  }
  octavo_tensor in_out(float *data, int64_t rows, int64_t cols) {
    return view(result(data, rows * cols, true), rows, cols);
  }
  // A prologue whose tensors are the host's own.
  void stage(const octavo_prologue &own, Prologue &staged) {
    staged.call = own;
    const auto tensor = [this](const octavo_tensor *from, octavo_tensor *to) {
      if (from != nullptr) *to = in(static_cast<const float *>(from->data), from->rows, from->cols);
      return from != nullptr ? to : nullptr;
    };
    staged.call.in = tensor(own.in, &staged.in);
    staged.call.gamma = tensor(own.gamma, &staged.gamma);
    staged.call.beta = tensor(own.beta, &staged.beta);
    staged.call.mean = result(own.mean, own.in->rows, false);
    staged.call.rstd = result(own.rstd, own.in->rows, false);
  }
  // After the call: what it wrote is in the host's tensors. What the functions above gave is no
  // longer valid.
  void finish() {
    for (const Result &r : results_) memory_.copy(r.host, r.there, r.bytes);
    results_.clear();
    used_ = 0;
  }

 private:
  struct Result {
    float *host;
    const float *there;
    uint64_t bytes;
  };
  float *place(const float *data, int64_t count, bool reads) {
    if (data == nullptr || memory_.is_host()) return const_cast<float *>(data);
    if (used_ == places_.size()) places_.emplace_back(memory_);
    DeviceBuffer &buffer = places_[used_++];
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    buffer.grow(bytes);
    if (reads) memory_.copy(buffer.data(), data, bytes);
    return static_cast<float *>(buffer.data());
  }
  float *result(float *data, int64_t count, bool reads) {
    float *there = place(data, count, reads);
    if (there != data)
      results_.push_back({data, there, static_cast<uint64_t>(count) * sizeof(float)});
    return there;
  }

  const Memory &memory_;
  std::vector<DeviceBuffer> places_;  // of a call's first tensor, of its second, ...
  size_t used_ = 0;
  std::vector<Result> results_;
};

// Floats of the host, which outlive this object, and the same ones on the device.
class Twin {
 public:
  Twin(const Memory &memory, float *host, size_t count)
      : memory_(memory), host_(host), bytes_(count * sizeof(float)), there_(memory) {
    if (memory.is_host()) return;
    there_.grow(bytes_);
    upload();
  }
  float *device() { return memory_.is_host() ? host_ : static_cast<float *>(there_.data()); }
  void upload() {
    if (!memory_.is_host()) memory_.copy(there_.data(), host_, bytes_);
  }
  void download() {
    if (!memory_.is_host()) memory_.copy(host_, there_.data(), bytes_);
  }

 private:
  const Memory &memory_;
  float *host_;
  uint64_t bytes_;
  DeviceBuffer there_;
};

// A twin with an array of its own, zero at first.
struct TwinArray {
  TwinArray(const Memory &memory, size_t count) : host(count), twin(memory, host.data(), count) {}

  Array<float> host;
  Twin twin;
};

}  // namespace hpp
}  // namespace octavo

#endif

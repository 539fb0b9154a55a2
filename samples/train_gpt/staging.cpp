// On the CPU every function gives the program's own tensor.
#include "staging.h"

#include <tuple>

namespace gpt {
namespace {

size_t elements(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols);
}

}  // namespace

octavo_tensor Staging::in_matrix(const float *data, int64_t rows, int64_t cols) {
  return f32_matrix(place(data, elements(rows, cols), true), rows, cols);
}

octavo_tensor Staging::out_matrix(float *data, int64_t rows, int64_t cols) {
  return f32_matrix(out(data, elements(rows, cols), false), rows, cols);
}

octavo_tensor Staging::in_out_matrix(float *data, int64_t rows, int64_t cols) {
  return f32_matrix(out(data, elements(rows, cols), true), rows, cols);
}

void Staging::stage(const octavo_prologue &own, Prologue &staged) {
  staged.call = own;
  for (auto [from, to, field] : {std::tuple(own.in, &staged.in, &staged.call.in),
                                 std::tuple(own.gamma, &staged.gamma, &staged.call.gamma),
                                 std::tuple(own.beta, &staged.beta, &staged.call.beta)}) {
    if (from == nullptr) continue;
    *to = in_matrix(static_cast<const float *>(from->data), from->rows, from->cols);
    *field = to;
  }
  const size_t rows = elements(own.in->rows, 1);
  staged.call.mean = out(own.mean, rows, false);
  staged.call.rstd = out(own.rstd, rows, false);
}

float *Staging::place(const float *data, size_t count, bool reads) {
  // Octavo's tensors are borrowed and untyped; a call writes only what its header says it writes.
  if (data == nullptr || device_.is_host()) return const_cast<float *>(data);
  if (used_ == places_.size()) places_.emplace_back(device_);
  DeviceBuffer &buffer = places_[used_++];
  buffer.grow(count * sizeof(float));
  if (reads) device_.copy(buffer.data(), data, count * sizeof(float));
  return static_cast<float *>(buffer.data());
}

float *Staging::out(float *data, size_t count, bool reads) {
  float *there = place(data, count, reads);
  if (there != data) results_.push_back({data, there, count});
  return there;
}

void Staging::finish() {
  for (const Result &r : results_) device_.copy(r.host, r.there, r.count * sizeof(float));
  results_.clear();
  used_ = 0;
}

}  // namespace gpt

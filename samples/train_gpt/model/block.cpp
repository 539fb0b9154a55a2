// Forward keeps what backward needs; backward walks the same steps in reverse.
#include "block.h"

namespace gpt {
namespace {

void add(const Threads &threads, const float *a, const float *b, float *sum, int64_t count) {
  threads.for_ranges(count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
  });
}

}  // namespace

void norm_and_linear(LayerNorm &norm, Linear &linear, const float *x, int64_t rows, float *normed,
                     float *y, bool training) {
  if (linear.takes_prologue()) {
    linear.forward(norm.prologue(x, rows), normed, rows, y, training);
    return;
  }
  norm.forward(x, rows, normed);
  linear.forward(normed, rows, y, training);
}

Block::Block(const std::string &name, int64_t heads, int64_t width, Precision precision,
             const Threads &threads)
    : width_(width),
      threads_(threads),
      norm1_(name + ".norm1", width, threads),
      qkv_(name + ".qkv", width, 3 * width, true, precision, threads),
      attention_(heads, width, threads),
      proj_(name + ".proj", width, width, true, precision, threads),
      norm2_(name + ".norm2", width, threads),
      fc1_(name + ".fc1", width, 4 * width, true, precision, threads),
      fc2_(name + ".fc2", 4 * width, width, true, precision, threads) {}

void Block::reserve(int64_t rows) {
  const auto size = static_cast<size_t>(rows * width_);
  for (Buffer<float> *b : {&normed1_, &mixed_, &middle_, &normed2_, &narrow_}) b->reset(size);
  for (Buffer<float> *b : {&hidden_, &active_, &wide_}) b->reset(4 * size);
  qkv_out_.reset(3 * size);
}

void Block::forward(const float *x, int64_t batch, int64_t time, float *out, bool training) {
  const int64_t rows = batch * time;
  norm_and_linear(norm1_, qkv_, x, rows, normed1_.data(), qkv_out_.data(), training);
  attention_.forward(qkv_out_.data(), batch, time, mixed_.data());
  proj_.forward(mixed_.data(), rows, narrow_.data(), training);
  add(threads_, x, narrow_.data(), middle_.data(), rows * width_);

  norm_and_linear(norm2_, fc1_, middle_.data(), rows, normed2_.data(), hidden_.data(), training);
  gelu_and_fc2(rows, training);
  add(threads_, middle_.data(), narrow_.data(), out, rows * width_);
}

void Block::gelu_and_fc2(int64_t rows, bool training) {
  if (fc2_.takes_prologue()) {
    gelu_.in = octavo::view(hidden_, rows, 4 * width_);
    gelu_.call.op = OCTAVO_PROLOGUE_GELU_TANH;  // the form whose slope backward computes
    gelu_.call.in = &gelu_.in;
    fc2_.forward(gelu_.call, active_.data(), rows, narrow_.data(), training);
    return;
  }
  threads_.for_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * 4 * width_;
    simd().gelu_forward(hidden_.data() + first, active_.data() + first, (end - begin) * 4 * width_);
  });
  fc2_.forward(active_.data(), rows, narrow_.data(), training);
}

void Block::backward(float *gradient, int64_t batch, int64_t time) {
  const int64_t rows = batch * time;
  // `gradient` is of `out`, hence of fc2's output and, along the residual, of `middle_`.
  fc2_.backward(gradient, rows, wide_.data());
  threads_.for_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * 4 * width_;
    simd().gelu_backward(hidden_.data() + first, wide_.data() + first, wide_.data() + first,
                         (end - begin) * 4 * width_);
  });
  fc1_.backward(wide_.data(), rows, narrow_.data());
  norm2_.backward(narrow_.data(), rows, gradient);

  proj_.backward(gradient, rows, narrow_.data());
  attention_.backward(qkv_out_.data(), narrow_.data(), batch, time, wide_.data());
  qkv_.backward(wide_.data(), rows, narrow_.data());
  norm1_.backward(narrow_.data(), rows, gradient);
}

}  // namespace gpt

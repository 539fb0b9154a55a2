// Builds the layers, gives them their first values, and runs them forward and backward.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host_adapters/standalone/simd.h"

namespace gpt {
namespace {

// The mean over rows of -ln softmax(logits)[target], in nats. logits [rows, kBytes] become the
// gradient of that mean: their softmax minus one at the target, divided by the rows.
double cross_entropy(const Threads &threads, float *logits, const unsigned char *targets,
                     int64_t rows, Buffer<float> &losses) {
  losses.grow(static_cast<size_t>(rows));
  const float share = 1.0f / static_cast<float>(rows);
  float *loss = losses.data();
  threads.for_ranges(rows, 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float *row = logits + i * kBytes;
      const float wanted = row[targets[i]];
      loss[i] = simd().softmax_row(row, kBytes) - wanted;
      row[targets[i]] -= 1.0f;
      for (int64_t j = 0; j < kBytes; ++j) row[j] *= share;
    }
  });
  return sum_of<double>(rows, [&](int64_t i) { return static_cast<double>(loss[i]); }) /
         static_cast<double>(rows);
}

// A byte of the model's distribution, sharpened a little.
unsigned char draw(const float *logits, Random &random) {
  const float top = *std::max_element(logits, logits + kBytes);
  double weights[kBytes];
  double sum = 0.0;
  for (int64_t i = 0; i < kBytes; ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(top)) / 0.7);
    sum += weights[i];
  }
  double left = random.uniform() * sum;
  for (int64_t i = 0; i < kBytes; ++i) {
    left -= weights[i];
    if (left < 0.0) return static_cast<unsigned char>(i);
  }
  return static_cast<unsigned char>(kBytes - 1);
}

void add(const Threads &threads, const float *a, const float *b, float *sum, int64_t count) {
  threads.for_ranges(count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
  });
}

// y = linear(norm(x)); normed is a buffer [rows, width] that stays until backward.
void norm_and_linear(LayerNorm &norm, Linear &linear, const float *x, int64_t rows, float *normed,
                     float *y, bool training) {
  if (linear.takes_prologue()) {
    linear.forward(norm.prologue(x, rows), normed, rows, y, training);
    return;
  }
  norm.forward(x, rows, normed);
  linear.forward(normed, rows, y, training);
}

}  // namespace

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

Model::Model(const ModelSize &size, int64_t batch, uint64_t seed, Precision precision,
             const Threads &threads)
    : size_(size),
      batch_(batch),
      threads_(threads),
      bytes_("embed.bytes", kBytes, size.width, true),
      positions_("embed.positions", size.context, size.width, true),
      norm_("norm", size.width, threads),
      head_("head", size.width, kBytes, false, precision, threads) {
  parameters_ = {&bytes_, &positions_};
  for (int64_t i = 0; i < size.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>("block" + std::to_string(i), size.heads, size.width,
                                              precision, threads));
    Block &block = *blocks_.back();
    block.reserve(batch * size.context);
    for (LayerNorm *norm : block.norms())
      parameters_.insert(parameters_.end(), {&norm->gain(), &norm->bias()});
    for (Linear *linear : block.linears()) linears_.push_back(linear);
  }
  linears_.push_back(&head_);
  parameters_.insert(parameters_.end(), {&norm_.gain(), &norm_.bias()});
  for (Linear *linear : linears_) {
    parameters_.push_back(&linear->weight());
    if (linear->bias() != nullptr) parameters_.push_back(linear->bias());
  }

  const auto rows = static_cast<size_t>(batch * size.context);
  const size_t floats = rows * static_cast<size_t>(size.width);
  for (int64_t i = 0; i <= size.layers; ++i) stream_.emplace_back(floats);
  normed_.reset(floats);
  d_normed_.reset(floats);
  gradient_.reset(floats);
  logits_.reset(rows * static_cast<size_t>(kBytes));
  initialize(seed);
}

void Model::nudge() {
  float &first = positions_.value[0];
  first = std::nextafter(first, std::numeric_limits<float>::infinity());
}

void Model::initialize(uint64_t seed) {
  Random random(seed, 0);
  // 0.02 at GPT-2's width of 768; narrower models want larger weights.
  const double deviation = 0.55 / std::sqrt(static_cast<double>(size_.width));
  bytes_.fill_normal(random, deviation);
  positions_.fill_normal(random, deviation);
  for (Linear *linear : linears_) linear->weight().fill_normal(random, deviation);
  // The residual stream sums 2 * layers outputs: smaller weights keep its size at the start.
  const auto shrink = static_cast<float>(1.0 / std::sqrt(2.0 * static_cast<double>(size_.layers)));
  for (auto &block : blocks_) {
    for (Linear *linear : block->outputs()) {
      Parameter &w = linear->weight();
      for (size_t i = 0; i < w.count(); ++i) w.value[i] *= shrink;
    }
  }
}

void Model::weights_changed() {
  for (Linear *linear : linears_) linear->quantize_weight();
}

void Model::run_layers(const unsigned char *tokens, int64_t batch, int64_t time, bool training) {
  const int64_t width = size_.width;
  threads_.for_ranges(batch * time, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float *byte = bytes_.value.data() + tokens[i] * width;
      const float *position = positions_.value.data() + i % time * width;
      float *out = stream_[0].data() + i * width;
      for (int64_t j = 0; j < width; ++j) out[j] = byte[j] + position[j];
    }
  });
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i]->forward(stream_[i].data(), batch, time, stream_[i + 1].data(), training);
  norm_and_linear(norm_, head_, stream_.back().data(), batch * time, normed_.data(), logits_.data(),
                  training);
}

double Model::forward(const unsigned char *tokens, const unsigned char *targets, int64_t batch,
                      int64_t time, bool training) {
  run_layers(tokens, batch, time, training);
  if (training) {
    tokens_ = tokens;
    last_batch_ = batch;
    last_time_ = time;
  }
  return cross_entropy(threads_, logits_.data(), targets, batch * time, losses_);
}

const float *Model::logits(const unsigned char *tokens, int64_t time) {
  run_layers(tokens, 1, time, false);
  return logits_.data();
}

void Model::backward() {
  const int64_t rows = last_batch_ * last_time_;
  const int64_t width = size_.width;
  head_.backward(logits_.data(), rows, d_normed_.data());
  gradient_.clear();
  norm_.backward(d_normed_.data(), rows, gradient_.data());
  for (size_t i = blocks_.size(); i-- > 0;)
    blocks_[i]->backward(gradient_.data(), last_batch_, last_time_);
  // Several rows add to one embedding: one thread walks the rows in order.
  bytes_.grad.clear();
  positions_.grad.clear();
  for (int64_t i = 0; i < rows; ++i) {
    const float *in = gradient_.data() + i * width;
    float *byte = bytes_.grad.data() + tokens_[i] * width;
    float *position = positions_.grad.data() + i % last_time_ * width;
    for (int64_t j = 0; j < width; ++j) {
      byte[j] += in[j];
      position[j] += in[j];
    }
  }
}

std::string Model::generate(const std::string &prompt, int64_t count, uint64_t seed) {
  Random random(seed, ~uint64_t{0});  // a stream apart from those of weights and batches
  std::vector<unsigned char> bytes(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < count; ++i) {
    // The model sees at most one context of bytes; the oldest ones fall out.
    const size_t time = std::min(bytes.size(), static_cast<size_t>(size_.context));
    const float *last = logits(bytes.data() + bytes.size() - time, static_cast<int64_t>(time));
    bytes.push_back(draw(last + (time - 1) * static_cast<size_t>(kBytes), random));
  }
  std::string continuation(bytes.begin() + static_cast<int64_t>(prompt.size()), bytes.end());
  for (char &c : continuation)
    if (c != '\n' && (c < ' ' || c > '~')) c = '?';
  return continuation;
}

}  // namespace gpt

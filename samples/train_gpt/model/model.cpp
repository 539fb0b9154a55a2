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

}  // namespace

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

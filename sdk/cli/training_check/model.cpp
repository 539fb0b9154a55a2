// h1 = relu(fc1 x), h2 = h1 + relu(fc2 h1), h3 = h2 + relu(fc3 h2), y = fc4 h3.
#include "model.h"

#include <cmath>

namespace octavo::training_check {
namespace {

void relu(Floats &values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] > 0 ? values[i] : 0;
}
// d = dh where the ReLU let its input through.
void back_through(const Floats &dh, const Floats &gate, Floats &d) {
  for (size_t i = 0; i < d.size(); ++i) d[i] = gate[i] > 0 ? dh[i] : 0;
}
void add(const Floats &from, Floats &to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

Task::Task(uint64_t seed) : seed_(seed), teacher_(kOutputs * kInputs) {
  // x has the variance 1/3, so 3 of a sum of squared weights gives the variance 1.
  fill(teacher_, seed_ * 1000003 + 7, std::sqrt(9.0F / kInputs));
}

void Task::draw(uint64_t number, Part &part) const {
  fill(part.x, seed_ * 1000003 + 1000 + number, 1);
  forward(part.x, teacher_, none_, kRows, kOutputs, kInputs, part.wanted);
}

Model::Model(Session *session, uint64_t seed)
    : h1_(kRows * kHidden),
      r2_(h1_.size()),
      h2_(h1_.size()),
      r3_(h1_.size()),
      h3_(h1_.size()),
      y_(kRows * kOutputs),
      dy_(y_.size()),
      dh_(h1_.size()),
      d_(h1_.size()),
      dx_(h1_.size()) {
  layers.emplace_back("fc1", kHidden, kInputs, seed * 1000003 + 11);
  layers.emplace_back("fc2", kHidden, kHidden, seed * 1000003 + 13);
  layers.emplace_back("fc3", kHidden, kHidden, seed * 1000003 + 15);
  layers.emplace_back("fc4", kOutputs, kHidden, seed * 1000003 + 17);
  if (session == nullptr) return;
  for (Layer &layer : layers) layer.add(*session);
  session->seal();
  for (Layer &layer : layers) layer.lend();
  for (Layer &layer : layers) layer.bind(kRows);
}

void Model::clear_gradients() {
  for (Layer &layer : layers) layer.clear_gradients();
}

double Model::train(const Part &part, float share) {
  Layer &fc1 = layers[0], &fc2 = layers[1], &fc3 = layers[2], &fc4 = layers[3];
  fc1.forward(part.x, kRows, h1_);
  relu(h1_);
  fc2.forward(h1_, kRows, r2_);
  relu(r2_);
  for (size_t i = 0; i < h2_.size(); ++i) h2_[i] = h1_[i] + r2_[i];
  fc3.forward(h2_, kRows, r3_);
  relu(r3_);
  for (size_t i = 0; i < h3_.size(); ++i) h3_[i] = h2_[i] + r3_[i];
  fc4.forward(h3_, kRows, y_);
  double loss = 0;
  for (size_t i = 0; i < y_.size(); ++i) {
    const float error = y_[i] - part.wanted[i];
    dy_[i] = share * 2 * error / kRows;
    loss += static_cast<double>(error * error) / static_cast<double>(y_.size());
  }
  fc4.backward(h3_, dy_, kRows, &dh_);
  back_through(dh_, r3_, d_);
  fc3.backward(h2_, d_, kRows, &dx_);
  add(dx_, dh_);
  back_through(dh_, r2_, d_);
  fc2.backward(h1_, d_, kRows, &dx_);
  add(dx_, dh_);
  back_through(dh_, h1_, d_);
  fc1.backward(part.x, d_, kRows, nullptr);  // nobody wants dx of the input
  return loss;
}

}  // namespace octavo::training_check

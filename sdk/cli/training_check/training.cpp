// What is compared, and where each limit comes from.
//
// Outputs and gradients of one batch, from equal weights. The backend may need some steps until its
// scales fit, so it sees the batch twice before; no weight changes.
//
// Outputs: each linear in FP8 adds the errors of two casts. Their squares add up over the layers.
// Gradients: each layer on the way back adds the errors of dy and of the other operand. They differ
// from element to element, so they change the size of the gradient along float32's by less than if
// all of them pointed there; the cosine has all of them. A wrong scale shows in the size, noise in
// the cosine.
//
// The loss at the end. The targets have the variance 1, so errors of outputs, squared, are a loss
// that float32 does not have.
#include "training.h"

#include <chrono>
#include <cmath>

#include "model.h"
#include "octavo/kernels.h"
#include "optimizer.h"
#include "sdk/verify/report.h"

namespace octavo::training_check {
namespace {

using conformance::shown;
using conformance::text;
using nlohmann::json;

constexpr int kSteps = 400, kParts = 2, kFewest = 100, kMean = 20;
// "Decreased": below this part of the first loss.
constexpr double kDecreased = 0.25;

struct Side {
  Side(Session *session, uint64_t seed, bool adam)
      : model(session, seed), optimizer(model.layers, session, adam) {}

  double gradients(const std::vector<Part> &batch) {
    model.clear_gradients();
    double loss = 0;
    for (const Part &part : batch) loss += model.train(part, 1.0F / kParts) / kParts;
    return loss;
  }

  Model model;
  Optimizer optimizer;
  std::vector<double> losses;

  double last() const {  // the mean of the last steps
    double sum = 0;
    const size_t count = std::min<size_t>(kMean, losses.size());
    for (size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(count);
  }
};

class Trial {
 public:
  Trial(const octavo::Settings &settings, double seconds, uint64_t seed)
      : session_(settings),
        task_(seed),
        backend_(&session_, seed, adam()),
        plain_(nullptr, seed, adam()),
        batch_(kParts),
        seconds_(seconds) {}

  json run() {
    describe();
    compare();
    train();
    judge();
    result_["passed"] = failures_.empty();
    result_["failures"] = failures_;
    return result_;
  }

 private:
  // Another algorithm than Adam is for a host that wants it. Weights and gradients of the host it
  // can do without.
  bool adam() const {
    const octavo::Run &run = session_.run;
    if (run.optimizer() == nullptr) return false;
    const std::string rule = octavo::algorithm_of(run);
    if (rule == "adam" || rule == "adamw") return true;
    for (const octavo_slot &slot : run.slots())
      if ((slot.role == OCTAVO_ROLE_WEIGHT || slot.role == OCTAVO_ROLE_GRADIENT) &&
          (slot.flags & OCTAVO_SLOT_NATIVE) == 0)
        throw octavo::Error("backend " + run.backend_id() +
                                " keeps weights or gradients in its own slots: expected that it "
                                "steps them by adam or adamw, found " +
                                rule + "; a trial has no other rule to compare with",
                            OCTAVO_UNSUPPORTED, {});
    return false;
  }

  void describe() {
    int64_t elements = 0;
    for (const Layer &layer : backend_.model.layers) {
      layers_ += layer.in_backend() ? 1 : 0;
      elements += layer.in_backend() ? layer.n * layer.k : 0;
      all_elements_ += layer.n * layer.k;
    }
    result_["backend"] = session_.run.backend_id();
    result_["kernels"] = view(octavo_run_session_desc(session_.run.get())->caps->id);
    result_["optimizer"] = backend_.optimizer.in_backend() ? "the backend's Adam"
                           : adam()                        ? "Adam in float32"
                                                           : "gradient descent with momentum";
    result_["layers_in_backend"] = layers_;
    result_["layers"] = backend_.model.layers.size();
    result_["share_of_weights"] =
        static_cast<double>(elements) / static_cast<double>(all_elements_);
    require(layers_ > 0, "no layer runs through the backend, so nothing was tried");
  }

  void draw(int step) {
    for (int part = 0; part < kParts; ++part)
      task_.draw(static_cast<uint64_t>(step * kParts + part), batch_[static_cast<size_t>(part)]);
  }

  void compare() {
    draw(0);
    for (int turn = 0; turn < 2; ++turn) {
      backend_.gradients(batch_);
      session_.store->clear(OCTAVO_ROLE_GRADIENT);
      session_.end_step();
    }
    backend_.gradients(batch_);
    plain_.gradients(batch_);
    const double distance = difference(backend_.model.output(), plain_.model.output()).distance();
    const double allowed = kAllowance * std::sqrt(casts());
    result_["output"] = {{"distance", distance}, {"allowed", allowed}};
    require(distance <= allowed,
            text("the first outputs differ from float32's by ", percent(distance),
                 " of their size, more than ", percent(allowed)));
    json layers = json::array();
    Floats found, wanted;
    for (size_t i = 0; i < backend_.model.layers.size(); ++i) {
      Layer &layer = backend_.model.layers[i], &other = plain_.model.layers[i];
      layer.read_gradient(found);
      other.read_gradient(wanted);
      const Difference weight = difference(found, wanted),
                       bias = difference(layer.bias_gradient, other.bias_gradient);
      layers.push_back({{"name", layer.name},
                        {"rows", layer.n},
                        {"cols", layer.k},
                        {"in_backend", layer.in_backend()},
                        {"refusal", shown(layer.refusal)},
                        {"gradient_size", weight.size()},
                        {"gradient_cosine", weight.cosine()},
                        {"bias_gradient_size", bias.size()},
                        {"bias_gradient_cosine", bias.cosine()}});
      check_gradient("the gradient of " + layer.name + "'s weight", weight);
      check_gradient("the gradient of " + layer.name + "'s bias", bias);
    }
    result_["placements"] = layers;
    session_.store->clear(OCTAVO_ROLE_GRADIENT);
    session_.end_step();
  }

  void check_gradient(const std::string &what, const Difference &d) {
    const auto [e, e_dy] = errors_of(session_.run);
    const double noise = std::sqrt(casts() + layers_ * (e_dy * e_dy + e * e));
    const double cosine = 1 / std::sqrt(1 + kAllowance * kAllowance * noise * noise);
    if (!(std::abs(d.size() - 1) <= noise))
      failures_.push_back(text(what, " has ", rounded(d.size()), " times the size of float32's, ",
                               "expected ", rounded(1 - noise), " to ", rounded(1 + noise)));
    else if (!(d.cosine() >= cosine))
      failures_.push_back(text(what, " points elsewhere than float32's: the cosine is ",
                               rounded(d.cosine()), ", expected at least ", rounded(cosine)));
  }

  void train() {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    int step = 0;
    for (; step < kSteps && elapsed() < seconds_; ++step) {
      draw(step + 1);
      const float rate = 1 - 0.95F * static_cast<float>(step) / kSteps;
      for (Side *side : {&plain_, &backend_}) {
        side->losses.push_back(side->gradients(batch_));
        skipped_ += side->optimizer.step(rate) ? 0 : 1;
      }
    }
    result_["steps"] = step;
    result_["skipped_steps"] = skipped_;
    result_["seconds"] = elapsed();
    require(step >= kFewest, text("only ", step, " steps in ", seconds_, " s, expected at least ",
                                  kFewest, "; give it more --seconds"));
    json losses = json::array();
    for (int i = 0; i < step; ++i) {
      if (i == 0 || (i + 1) % 50 == 0 || i + 1 == step)
        losses.push_back({{"step", i + 1},
                          {"float32", number(plain_.losses[static_cast<size_t>(i)])},
                          {"backend", number(backend_.losses[static_cast<size_t>(i)])}});
    }
    result_["losses"] = losses;
  }

  void judge() {
    if (plain_.losses.empty()) return;
    const double first = plain_.losses.front(), plain = plain_.last(), found = backend_.last();
    const double margin = kAllowance * casts();
    result_["first_loss"] = {{"float32", number(first)},
                             {"backend", number(backend_.losses.front())}};
    result_["last_loss"] = {{"float32", number(plain)}, {"backend", number(found)}};
    result_["margin"] = margin;
    require(plain <= kDecreased * first,
            text("float32's own loss fell from ", rounded(first), " to ", rounded(plain),
                 " only; give it more --seconds"));
    require(found <= kDecreased * backend_.losses.front(),
            text("the loss did not decrease: ", rounded(backend_.losses.front()), " at first, ",
                 rounded(found), " at the end, expected a quarter at most"));
    require(found <= plain + margin,
            text("the loss at the end is ", rounded(found), ", more than float32's ",
                 rounded(plain), " + ", rounded(margin)));
  }

  // Squares of the relative error of outputs, over all layers in FP8.
  double casts() const {
    const double e = errors_of(session_.run).forward;
    return layers_ * 2 * e * e;
  }

  // NaN compares as false, so it fails.
  void require(bool holds, const std::string &failure) {
    if (!holds) failures_.push_back(failure);
  }
  static std::string percent(double part) { return text(std::round(1000 * part) / 10, " %"); }
  static double rounded(double value) { return std::round(1000 * value) / 1000; }
  static json number(double value) {
    return std::isfinite(value) ? json(value) : json(text(value));
  }

  Session session_;
  Task task_;
  Side backend_, plain_;
  std::vector<Part> batch_;
  double seconds_;
  int layers_ = 0, skipped_ = 0;
  int64_t all_elements_ = 0;
  json result_ = json::object();
  std::vector<std::string> failures_;
};

}  // namespace

json train(const octavo::Settings &settings, double seconds, uint64_t seed) {
  return Trial(settings, seconds, seed).run();
}

}  // namespace octavo::training_check

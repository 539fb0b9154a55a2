// The situations of ../situations.txt that LibTorch can be in, each next to a plain twin.
#include <gtest/gtest.h>
#include <octavo/torch/checkpoint.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "transformer.h"

namespace {

using octavo::torch::Prepared;
using testing_torch::config_of;
namespace nn = torch::nn;

struct Situation {
  std::string name;
  std::string backend, recipe;
  std::vector<std::string> lines;
};

std::vector<std::string> words_of(const std::string &line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool has(const std::vector<std::string> &words, const std::string &word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<Situation> read() {
  std::ifstream file(OCTAVO_SITUATIONS);
  std::vector<Situation> all;
  std::vector<std::string> lines;
  std::string name, hosts, backends;
  const auto finish = [&] {
    for (const std::string &each : words_of(backends)) {
      const size_t colon = each.find(':');
      const std::string backend = each.substr(0, colon);
      if (has(words_of(hosts), "libtorch") || has(words_of(hosts), "libtorch:" + backend))
        all.push_back({name, backend, each.substr(colon + 1), lines});
    }
    lines.clear();
  };
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.rfind("no ", 0) == 0) continue;
    if (line.rfind("situation ", 0) == 0) {
      finish();
      name = line.substr(10, line.find(':') - 10);
    } else if (line.rfind("hosts ", 0) == 0) {
      hosts = line.substr(6);
    } else if (line.rfind("backends ", 0) == 0) {
      backends = line.substr(9);
    } else {
      lines.push_back(line);
    }
  }
  finish();
  return all;
}

// Numbers from -1 to 1 that look random, the same in every host.
at::Tensor noise(at::IntArrayRef sizes, int64_t seed) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  const at::Tensor values =
      torch::sin(torch::arange(count, torch::kDouble) + 1000.0 * seed) * 43758.5453;
  return (2 * (values - values.floor()) - 1).to(torch::kFloat).view(sizes);
}

struct NetImpl : nn::Module {
  explicit NetImpl(int64_t width = 32, int64_t seed = 1) {
    layers = {register_module("0", nn::Linear(width, 64)),
              register_module("1", nn::Linear(64, 16))};
    const at::NoGradGuard no_grad;
    for (const at::Tensor &p : parameters()) p.copy_(noise(p.sizes(), seed++) / 4);
  }
  at::Tensor forward(const at::Tensor &x) { return layers[1](torch::relu(layers[0](x))); }
  std::vector<nn::Linear> layers;
};
TORCH_MODULE(Net);

// A model, with whatever one does to it.
struct Side {
  Net net;
  std::unique_ptr<torch::optim::AdamW> adam;
  at::Tensor y, loss;
  Net copy;

  at::Tensor weight(size_t layer) const { return net->layers[layer]->weight; }
};

double distance(const at::Tensor &found, const at::Tensor &expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

class Runner {
 public:
  explicit Runner(const Situation &situation) : situation_(situation) {}

  void run() {
    for (const std::string &line : situation_.lines) {
      SCOPED_TRACE(line);
      std::vector<std::string> words = words_of(line);
      if (words[0][0] == '@') {
        if (words[0] != "@libtorch" && words[0] != "@" + situation_.backend &&
            words[0] != "@libtorch:" + situation_.backend)
          continue;
        words.erase(words.begin());
      }
      const std::string rest = line.substr(line.find(words[0]) + words[0].size());
      if (words[0] == "refused" || words[0] == "fails") {
        is_typed_ = words[0] == "refused";
        refused_ = rest.substr(1);
        continue;
      }
      if (refused_.empty()) {
        act(words);
      } else {
        expect_refusal(words);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  using Words = std::vector<std::string>;

  void expect_refusal(const Words &words) {
    const std::string word = std::exchange(refused_, "");
    bool is_typed = false;
    std::string found = "no error";
    try {
      act(words);
    } catch (const octavo::torch::Error &e) {
      is_typed = true;
      found = e.what();
    } catch (const std::exception &e) {
      found = e.what();
    }
    EXPECT_NE(found.find(word), std::string::npos) << found;
    EXPECT_TRUE(is_typed || !is_typed_) << found;
  }

  void act(const Words &words) {
    const auto number = [&](size_t i) { return std::stod(words.at(i)); };
    const auto layer = [&] { return static_cast<size_t>(std::stoi(words.at(1))); };
    const std::map<std::string, std::function<void()>> operations = {
        {"prepare", [&] { prepare(); }},
        {"optimizer", [&] { only_ = std::stoi(words.at(1)); }},
        {"freeze", [&] { set_requires_grad(layer(), false); }},
        {"unfreeze", [&] { set_requires_grad(layer(), true); }},
        {"mode", [&] { each([&](Side &s) { s.net->train(words.at(1) == "train"); }); }},
        {"grad", [&] { torch::autograd::GradMode::set_enabled(words.at(1) == "on"); }},
        {"input", [&] { factor_ = number(1); }},
        {"forward", [&] { each([&](Side &s) { forward(s); }); }},
        {"peek", [&] { each([&](Side &s) { s.net->forward(x()); }); }},
        {"checkpointed", [&] { checkpointed(); }},
        {"backward", [&] { each([&](Side &s) { s.loss.backward(); }); }},
        {"inf", [&] { inf(); }},
        {"part", [&] { part(layer()); }},
        {"step", [&] { step(); }},
        {"zero", [&] { zero(); }},
        {"train", [&] { train(std::stoi(words.at(1))); }},
        {"scale", [&] { in_place(layer(), number(2), false); }},
        {"data", [&] { in_place(layer(), number(2), true); }},
        {"set", [&] { set(layer(), number(2)); }},
        {"lr", [&] { each([&](Side &s) { set_rate(*s.adam, number(1)); }); }},
        {"lr_of_result",
         [&] {
           set_rate(prepared_->optimizer(), number(1));
           set_rate(*twin_.adam, number(1));
         }},
        {"add_group", [&] { add_group(layer(), number(2)); }},
        {"add_foreign", [&] { add_foreign(number(1)); }},
        {"other", [&] { other(number(1)); }},
        {"manual", [&] { manual(number(1), false); }},
        {"manual_data", [&] { manual(number(1), true); }},
        {"refresh", [&] { prepared_->refresh(); }},
        {"share", [&] { share(); }},
        {"second", [&] { second(); }},
        {"against", [&] { against(); }},
        {"through", [&] { through(); }},
        {"copy", [&] { copy(); }},
        {"towards_copy", [&] { towards_copy(std::stoi(words.at(1))); }},
        {"lbfgs", [&] { lbfgs(std::stoi(words.at(1))); }},
        {"grad_of", [&] { grad_of(layer()); }},
        {"narrow_input", [&] { ours_.net->forward(x().narrow(1, 0, 31)); }},
        {"output", [&] { EXPECT_LE(output_error(ours_, *prepared_, x()), number(1)); }},
        {"output_of_second",
         [&] {
           const at::Tensor y = twin_.net->forward(x()).detach();
           EXPECT_LE(output_error(seconds_[0], *second_, y), number(1));
         }},
        {"output_of_copy",
         [&] {
           const at::Tensor expected = plain(copied_, ours_.copy, x());
           EXPECT_LE(distance(ours_.copy->forward(x()), expected), number(1));
         }},
        {"copy_stays", [&] { copy_stays(); }},
        {"loss", [&] { EXPECT_LE(distance(ours_.loss, twin_.loss), number(1)); }},
        {"gradients", [&] { gradients(number(1)); }},
        {"mark", [&] { mark_ = weights(); }},
        {"still", [&] { EXPECT_TRUE(torch::equal(weights()[layer()], mark_[layer()])); }},
        {"moved", [&] { EXPECT_FALSE(torch::equal(weights()[layer()], mark_[layer()])); }},
        {"boundaries", [&] { EXPECT_EQ(boundaries(), number(1)); }},
        {"calls", [&] { EXPECT_EQ(prepared_->layers()[0].forward_calls, number(1)); }},
        {"skipped", [&] { EXPECT_EQ(prepared_->skipped_steps(), number(1)); }},
    };
    const auto found = operations.find(words[0]);
    ASSERT_NE(found, operations.end()) << "no such operation";
    found->second();
  }

  template <class Fn>
  void each(const Fn &fn) {
    fn(ours_);
    fn(twin_);
  }
  at::Tensor x() const { return noise({64, 32}, 5) * factor_; }
  at::Tensor target() const { return noise({64, 16}, 6); }

  void prepare() {
    each([&](Side &s) {
      const auto &source = only_ < 0 ? s.net->parameters() : s.net->layers[only_]->parameters();
      s.adam = std::make_unique<torch::optim::AdamW>(
          source, torch::optim::AdamWOptions(1e-3).weight_decay(0));
    });
    octavo::torch::Config config = config_of(situation_.backend, situation_.recipe);
    prepared_.emplace(octavo::torch::prepare(*ours_.net, *ours_.adam, config));
    for (const octavo::torch::Layer &l : prepared_->layers()) ASSERT_TRUE(l.fp8) << l.reason;
  }
  void set_requires_grad(size_t layer, bool wanted) {
    each([&](Side &s) {
      for (at::Tensor &p : s.net->layers[layer]->parameters()) p.requires_grad_(wanted);
    });
  }
  void forward(Side &s) {
    s.y = s.net->forward(x());
    s.loss = torch::mse_loss(s.y, target());
  }
  void checkpointed() {
    ours_.y = octavo::torch::checkpoint([&](const at::Tensor &t) { return ours_.net->forward(t); },
                                        x().requires_grad_());
    ours_.loss = torch::mse_loss(ours_.y, target());
    forward(twin_);
  }
  // The twin leaves the step out.
  void inf() {
    const double infinity = std::numeric_limits<double>::infinity();
    (ours_.net->forward(x()).sum() * infinity).backward();
  }
  void part(size_t layer) {
    each([&](Side &s) { s.net->layers[layer](x()).square().mean().backward(); });
  }
  void step() {
    prepared_->step();
    twin_.adam->step();
  }
  void zero() {
    prepared_->zero_grad();
    each([](Side &s) { s.net->zero_grad(); });
  }
  void train(int count) {
    for (int i = 0; i < count; ++i) {
      zero();
      each([&](Side &s) {
        forward(s);
        s.loss.backward();
      });
      step();
    }
  }
  void in_place(size_t layer, double by, bool through_data) {
    const at::NoGradGuard no_grad;
    each([&](Side &s) { (through_data ? s.weight(layer).data() : s.weight(layer)).mul_(by); });
  }
  void set(size_t layer, double by) {
    const at::Tensor values = weights()[layer] * by;
    each([&](Side &s) { s.weight(layer).set_data(values.clone()); });
  }
  static void set_rate(torch::optim::Optimizer &optimizer, double rate) {
    for (auto &group : optimizer.param_groups()) group.options().set_lr(rate);
  }
  void add_group(size_t layer, double rate) {
    each([&](Side &s) {
      const auto options = torch::optim::AdamWOptions(rate).weight_decay(0);
      s.adam->add_param_group({s.net->layers[layer]->parameters(),
                               std::make_unique<torch::optim::AdamWOptions>(options)});
    });
  }
  void add_foreign(double rate) {
    ours_.adam->add_param_group({{torch::zeros({4}, torch::requires_grad())},
                                 std::make_unique<torch::optim::AdamWOptions>(rate)});
  }
  template <class Step>
  void step_as(const Step &step_of) {
    each([&](Side &s) {
      s.net->zero_grad();
      forward(s);
      s.loss.backward();
      step_of(s);
    });
  }
  void other(double rate) {
    step_as([&](Side &s) { torch::optim::SGD(s.net->parameters(), rate).step(); });
  }
  void manual(double rate, bool through_data) {
    const auto update = [&](Side &s) {
      const at::NoGradGuard no_grad;
      for (const at::Tensor &p : s.net->parameters())
        (through_data ? p.data() : p).sub_(p.grad(), rate);
    };
    step_as(update);
  }
  void share() {
    nn::Linear linear(32, 64);
    linear->weight = ours_.weight(0);
    nn::Sequential second(linear);
    torch::optim::AdamW adam(second->parameters());
    static_cast<void>(
        octavo::torch::prepare(*second, adam, config_of(situation_.backend, situation_.recipe)));
  }
  void second() {
    for (Side &s : seconds_) {
      s.net = Net(16, 11);
      s.adam = std::make_unique<torch::optim::AdamW>(
          s.net->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0));
    }
    second_.emplace(octavo::torch::prepare(*seconds_[0].net, *seconds_[0].adam,
                                           config_of(situation_.backend, situation_.recipe)));
  }
  void zero_second() {
    second_->zero_grad();
    for (Side &s : seconds_) s.net->zero_grad();
  }
  void against() {
    zero_second();
    for (size_t i : {0, 1}) {
      Side &first = i == 0 ? ours_ : twin_;
      at::Tensor y;
      {
        const at::NoGradGuard no_grad;
        y = first.net->forward(x());
      }
      first.loss = torch::mse_loss(seconds_[i].net->forward(y), target());
      first.loss.backward();
    }
    second_->step();
    seconds_[1].adam->step();
  }
  void through() {
    zero();
    for (size_t i : {0, 1}) {
      Side &first = i == 0 ? ours_ : twin_;
      first.loss = torch::mse_loss(seconds_[i].net->forward(first.net->forward(x())), target());
      first.loss.backward();
    }
    zero_second();
    step();
  }
  // Of LibTorch's own layers: what prepare did is the model's, not its values'.
  void copy() {
    copied_ = weights();
    const at::NoGradGuard no_grad;
    each([&](Side &s) {
      s.copy = Net();
      const bool is_ours = &s == &ours_;
      for (size_t i : {0, 1}) {
        s.copy->layers[i]->weight.copy_(is_ours ? copied_[i] : s.weight(i));
        s.copy->layers[i]->bias.copy_(s.net->layers[i]->bias);
      }
    });
  }
  void towards_copy(int count) {
    for (int i = 0; i < count; ++i) {
      zero();
      each([&](Side &s) {
        at::Tensor half;
        {
          const at::NoGradGuard no_grad;
          half = s.copy->forward(x()) / 2;
        }
        s.loss = torch::mse_loss(s.net->forward(x()), target() + half);
        s.loss.backward();
      });
      step();
    }
  }
  void copy_stays() {
    for (size_t i : {0, 1}) EXPECT_TRUE(torch::equal(ours_.copy->layers[i]->weight, copied_[i]));
    EXPECT_FALSE(torch::equal(weights()[0], copied_[0]));
  }
  void lbfgs(int count) {
    each([&](Side &s) {
      torch::optim::LBFGS optimizer(s.net->parameters(),
                                    torch::optim::LBFGSOptions(0.1).max_iter(4));
      for (int i = 0; i < count; ++i)
        optimizer.step([&] {
          optimizer.zero_grad();
          forward(s);
          s.loss.backward();
          return s.loss;
        });
    });
  }
  void grad_of(size_t layer) {
    std::vector<at::Tensor> found;
    each([&](Side &s) {
      found.push_back(torch::autograd::grad({s.loss}, {s.weight(layer)}, {}, true)[0]);
    });
    EXPECT_LE(distance(found[0], found[1]), 0.15);
  }

  // Plain values, also of weights in slots.
  static std::vector<at::Tensor> weights_of(const Side &side, Prepared &prepared) {
    std::vector<at::Tensor> all;
    prepared.with_plain_weights([&] {
      for (size_t i : {0, 1}) all.push_back(side.weight(i).detach().clone());
    });
    return all;
  }
  std::vector<at::Tensor> weights() { return weights_of(ours_, *prepared_); }
  static at::Tensor plain(const std::vector<at::Tensor> &w, const Net &net, const at::Tensor &x) {
    const at::Tensor hidden = torch::relu(torch::linear(x, w[0], net->layers[0]->bias));
    return torch::linear(hidden, w[1], net->layers[1]->bias);
  }
  static double output_error(const Side &side, Prepared &prepared, const at::Tensor &x) {
    Net net = side.net;
    return distance(net->forward(x), plain(weights_of(side, prepared), net, x));
  }
  void gradients(double bound) {
    for (size_t i : {0, 1})
      EXPECT_LE(distance(ours_.weight(i).grad().clone(), twin_.weight(i).grad()), bound) << i;
  }
  uint64_t boundaries() { return prepared_->session().steps(); }

  const Situation &situation_;
  Side ours_, twin_, seconds_[2];
  std::optional<Prepared> prepared_, second_;
  std::vector<at::Tensor> mark_, copied_;
  std::string refused_;
  bool is_typed_ = false;
  double factor_ = 1.0;
  int only_ = -1;
};

class Situations : public ::testing::TestWithParam<Situation> {};

TEST_P(Situations, ComeOutAsThePlainTwin) {
  Runner(GetParam()).run();
  torch::autograd::GradMode::set_enabled(true);
}

std::string name_of(const ::testing::TestParamInfo<Situation> &given) {
  return given.param.name + "_" + given.param.backend + "_" + given.param.recipe;
}

INSTANTIATE_TEST_SUITE_P(Table, Situations, ::testing::ValuesIn(read()), name_of);

}  // namespace

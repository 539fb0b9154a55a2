// optimizer: octavo.optimizer/2 reads and writes what it steps, and one that says that it is Adam
// or AdamW steps that by the hyperparameters that each item names.
//
// The same steps run here in double precision. States and weights may have few bits, so what is
// compared is the change of all weights of a parameter together: its length along the expected
// change, and what is left of it across. A wrong or ignored hyperparameter changes the first by
// more than a tenth in one of the settings below; roundings are independent, and do not.
#include <cmath>
#include <string_view>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

using Values = std::vector<double>;

constexpr double kAlong = 0.1;                // of the expected change
constexpr double kAcross = 0.35;              // likewise: codes of 8 bits are off by up to 1/16
constexpr double kOneCast = 0x1p-3 + 0x1p-6;  // E5M2, the coarsest form of a state, of the largest

struct State {
  Values weight, exp_avg, exp_avg_sq;
  int step = 0;
};

void step_adam(State &state, const Values &gradient, const float *hyper, bool is_decoupled) {
  const auto h = [&](int i) { return static_cast<double>(hyper[i]); };
  ++state.step;
  const double first = 1 - std::pow(h(OCTAVO_HYPER_BETA1), state.step);
  const double second = 1 - std::pow(h(OCTAVO_HYPER_BETA2), state.step);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double &m = state.exp_avg[i], &v = state.exp_avg_sq[i], &w = state.weight[i];
    const double decay = h(OCTAVO_HYPER_WEIGHT_DECAY) * w;
    const double g = gradient[i] * h(OCTAVO_HYPER_GRAD_SCALE) + (is_decoupled ? 0 : decay);
    m = h(OCTAVO_HYPER_BETA1) * m + (1 - h(OCTAVO_HYPER_BETA1)) * g;
    v = h(OCTAVO_HYPER_BETA2) * v + (1 - h(OCTAVO_HYPER_BETA2)) * g * g;
    w -= h(OCTAVO_HYPER_LR) *
         (m / first / (std::sqrt(v / second) + h(OCTAVO_HYPER_EPS)) + (is_decoupled ? decay : 0));
  }
}

struct Setting {
  const char *name;
  float hyper[OCTAVO_HYPER_COUNT];  // in the order of OCTAVO_HYPER_...
};
// Each makes one of them decide: eps and the scale of gradients divide like numbers, the decay is
// as large as the step, beta1 and beta2 forget at once or hardly.
constexpr Setting kSettings[] = {
    {"usual", {0.0625F, 0.875F, 0.9375F, 0x1p-20F, 0.03125F, 1}},
    {"scale of gradients", {0.25F, 0.5F, 0.75F, 0.25F, 0, 4}},
    {"large eps", {0.25F, 0.5F, 0.75F, 0.25F, 0, 1}},
    {"weight decay", {0.0625F, 0.5F, 0.75F, 0x1p-10F, 4, 1}},
    {"no momentum", {0.0625F, 0, 0.5F, 0x1p-10F, 0, 1}},
    {"long memory", {0.03125F, 0.96875F, 0.984375F, 0x1p-10F, 0, 1}},
};

class Steps {
 public:
  explicit Steps(const Context &context) : session_(context) {
    session_.add(standard_model());
    session_.seal();
    host_.emplace(session_, context.seed);
    for (uint32_t id = 0; id < session_.parameters().size(); ++id) {
      const ParameterSpec &spec = session_.parameters()[id].spec;
      plain_.push_back(make_matrix(host_->arena(), text("plain '", spec.name, "'"), spec.rows,
                                   spec.cols, OCTAVO_F32));
      hyper_.push_back(reinterpret_cast<float *>(
          host_->arena().allocate(OCTAVO_HYPER_COUNT * sizeof(float), Use::kTensor,
                                  text("hyperparameters of '", spec.name, "'"))));
    }
    scalars_ = reinterpret_cast<float *>(
        host_->arena().allocate(8 * sizeof(float), Use::kTensor, "sum, norm and skip"));
    start_ = host_->arena().snapshot();
  }

  // The numbers of another algorithm are its author's to test.
  void check_settings(uint64_t seed) {
    auto desc = octavo::make<octavo_optimizer_desc>(OCTAVO_KIND_OPTIMIZER_DESC);
    host_->run(OCTAVO_VERB_OPTIMIZER_STEP, "describe",
               [&] { return session_.optimizer()->describe(session_.handle(), &desc); });
    const std::string_view algorithm(desc.algorithm.data, desc.algorithm.size);
    if (algorithm != "adamw" && algorithm != "adam")
      throw Skip(text("the steps of '", algorithm,
                      "' were not compared, only those of adam and adamw can be; what it reads and "
                      "writes is right"));
    for (const Setting &setting : kSettings) {
      host_->arena().restore(start_);
      run(setting, seed, algorithm == "adamw");
    }
  }

  void check_write() {
    host_->arena().restore(start_);
    for (const uint32_t id : stepped()) {
      for (const auto &[role, name] : kRoles) {
        const Values first = write(id, role, 3), second = write(id, role, 5);
        if (first.empty() || second.empty()) continue;
        Values found;
        if (read(id, role, found)) expect_close(found, second, name, id);
      }
    }
  }

  void check_norm(uint64_t seed) {
    host_->arena().restore(start_);
    double expected = 3;
    for (const uint32_t id : stepped()) {
      set_gradient(id, mix(seed, id));
      for (const double g : gradient(id)) expected += g * g;
    }
    float *const sum = scalars_, *const norm = scalars_ + 1, *const skip = scalars_ + 2;
    *sum = 3;
    std::vector<std::vector<void *>> lists;
    const auto items = with_hyper(lists);
    auto c = octavo::make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
    c.items = items.data();
    c.count = items.size();
    c.sum = sum;
    c.workspace = host_->optimizer_workspace();
    const octavo_optimizer &o = *session_.optimizer();
    host_->run(OCTAVO_VERB_OPTIMIZER_STEP, "sum_of_squares",
               [&] { return o.sum_of_squares(session_.handle(), &c); });
    const auto found = static_cast<double>(*sum);
    expect(std::fabs(found - expected) <= 0x1p-12 * expected,
           "sum_of_squares of all gradients, added to 3, is ", found, "; expected ", expected);
    check_prepare(sum, norm, skip);
  }

 private:
  static constexpr std::pair<uint32_t, const char *> kRoles[] = {
      {OCTAVO_ROLE_WEIGHT, "WEIGHT"},
      {OCTAVO_ROLE_MASTER_WEIGHT, "MASTER_WEIGHT"},
      {OCTAVO_ROLE_GRADIENT, "GRADIENT"},
      {OCTAVO_ROLE_EXP_AVG, "EXP_AVG"},
      {OCTAVO_ROLE_EXP_AVG_SQ, "EXP_AVG_SQ"}};

  std::vector<uint32_t> stepped() const {
    std::vector<uint32_t> ids;
    std::vector<std::vector<void *>> lists;
    for (const octavo_parameter_item &item : host_->items(lists)) ids.push_back(item.parameter);
    return ids;
  }
  // Every item with an array of its own.
  std::vector<octavo_parameter_item> with_hyper(std::vector<std::vector<void *>> &lists) const {
    auto items = host_->items(lists);
    for (octavo_parameter_item &item : items) item.hyper = hyper_[item.parameter];
    return items;
  }
  const std::string &name_of(uint32_t id) const { return session_.parameters()[id].spec.name; }

  // OCTAVO_UNSUPPORTED: the backend keeps no such role.
  bool call(bool writes, uint32_t id, uint32_t role) {
    octavo_status status = OCTAVO_OK;
    const auto all = host_->list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id, {});
    auto c = octavo::make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    c.parameter = id;
    c.role = role;
    c.plain = &plain_[id].tensor;
    c.slots = all.data();
    c.workspace = host_->optimizer_workspace();
    const octavo_optimizer &o = *session_.optimizer();
    host_->run(OCTAVO_VERB_OPTIMIZER_STEP,
               text(writes ? "write" : "read", "_parameter of '", name_of(id), "', role ", role),
               [&] {
                 status = (writes ? o.write_parameter : o.read_parameter)(session_.handle(), &c);
                 return status == OCTAVO_OK || has(id, role) ? status : octavo_status{OCTAVO_OK};
               });
    return status == OCTAVO_OK;
  }
  // Whether a slot of this role is in the parameter's list.
  bool has(uint32_t id, uint32_t role) const {
    for (const octavo_slot_use &use : session_.uses(OCTAVO_OWNER_PARAMETER, id))
      if (session_.slots()[use.slot].desc.role == role) return true;
    return false;
  }
  bool read(uint32_t id, uint32_t role, Values &values) {
    if (!call(false, id, role)) return false;
    values = values_of(plain_[id]);
    return true;
  }
  // What was written; empty: the backend keeps no such role.
  Values write(uint32_t id, uint32_t role, uint64_t seed) {
    fill(plain_[id], mix(seed, id), role == OCTAVO_ROLE_EXP_AVG_SQ ? 0.25 : 0.5);
    if (role == OCTAVO_ROLE_EXP_AVG_SQ)
      for (int64_t row = 0; row < plain_[id].rows(); ++row)
        for (int64_t col = 0; col < plain_[id].cols(); ++col)
          plain_[id].set(row, col, std::fabs(plain_[id].at(row, col)));
    const Values wanted = values_of(plain_[id]);
    return call(true, id, role) ? wanted : Values();
  }
  void expect_close(const Values &found, const Values &wanted, const char *role, uint32_t id) {
    double largest = 0;
    for (const double v : wanted) largest = std::max(largest, std::fabs(v));
    for (size_t i = 0; i < wanted.size(); ++i)
      expect(std::fabs(found[i] - wanted[i]) <= kOneCast * largest, "read_parameter of '",
             name_of(id), "', ", role, ", gives ", found[i], " for element ", i,
             "; write_parameter got ", wanted[i]);
  }

  bool has_slot_gradient(uint32_t id) const {
    return has(id, OCTAVO_ROLE_GRADIENT) && !session_.is_native(id, OCTAVO_ROLE_GRADIENT);
  }
  void set_gradient(uint32_t id, uint64_t seed) {
    if (has_slot_gradient(id)) {
      fill(plain_[id], seed, 1);
      call(true, id, OCTAVO_ROLE_GRADIENT);
    } else {
      fill(host_->dw(id), seed, 1);
    }
  }
  Values gradient(uint32_t id) {
    Values values;
    if (!has_slot_gradient(id)) return values_of(host_->dw(id));
    expect(read(id, OCTAVO_ROLE_GRADIENT, values), "read_parameter of '", name_of(id),
           "' does not read the gradient slot");
    return values;
  }
  Values weight(uint32_t id) {
    Values values;
    if (has(id, OCTAVO_ROLE_MASTER_WEIGHT) && read(id, OCTAVO_ROLE_MASTER_WEIGHT, values))
      return values;
    return read(id, OCTAVO_ROLE_WEIGHT, values) ? values : values_of(host_->weight(id));
  }

  void run(const Setting &setting, uint64_t seed, bool is_decoupled) {
    const std::vector<uint32_t> ids = stepped();
    std::vector<State> states(session_.parameters().size());
    for (const uint32_t id : ids) {
      std::copy(std::begin(setting.hyper), std::end(setting.hyper), hyper_[id]);
      if (id % 2 == 1) hyper_[id][OCTAVO_HYPER_LR] *= 0.5F;  // a group of its own
      states[id].weight = weight(id);
      states[id].exp_avg.assign(states[id].weight.size(), 0);
      states[id].exp_avg_sq = states[id].exp_avg;
    }
    for (uint64_t step = 0; step < 4; ++step) {
      std::vector<Values> before(states.size());
      for (const uint32_t id : ids) {
        set_gradient(id, mix(seed, 10 * step + id));
        before[id] = weight(id);
        states[id].weight = before[id];
        step_adam(states[id], gradient(id), hyper_[id], is_decoupled);
      }
      std::vector<std::vector<void *>> lists;
      const auto items = with_hyper(lists);
      auto c = octavo::make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
      c.items = items.data();
      c.count = items.size();
      c.workspace = host_->optimizer_workspace();
      host_->run(OCTAVO_VERB_OPTIMIZER_STEP, "optimizer_step",
                 [&] { return session_.optimizer()->optimizer_step(session_.handle(), &c); });
      for (const uint32_t id : ids)
        expect_change(
            before[id], weight(id), states[id].weight,
            text("optimizer_step ", step, " of '", name_of(id), "', setting '", setting.name, "'"),
            is_decoupled ? "AdamW" : "Adam");
    }
  }

  void expect_change(const Values &before, const Values &found, const Values &wanted,
                     const std::string &what, const char *rule) {
    double along = 0, square = 0, across = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double e = wanted[i] - before[i], f = found[i] - before[i];
      along += e * f, square += e * e;
    }
    if (before.size() < 16) return;  // too few to tell a rounding from a mistake
    const double slope = along / square;
    for (size_t i = 0; i < before.size(); ++i)
      across += std::pow(found[i] - before[i] - slope * (wanted[i] - before[i]), 2);
    expect(std::fabs(slope - 1) <= kAlong, what, ": the change of the weight is ", slope,
           " times that of ", rule, " with these hyperparameters; expected 1 within ", kAlong);
    expect(across <= kAcross * kAcross * square, what, ": the change of the weight is off by ",
           std::sqrt(across / square), " of that of ", rule,
           " with these hyperparameters; expected at most ", kAcross);
  }

  void check_prepare(const float *sum, float *norm, float *skip) {
    const octavo_optimizer &o = *session_.optimizer();
    const auto prepared = [&](const float *sums, const float *bad, float max_norm) {
      auto c = octavo::make<octavo_prepare_call>(OCTAVO_KIND_PREPARE_CALL);
      c.sum = sums;
      c.sum_count = 1;
      c.nonfinite = bad;
      c.norm = norm;
      c.skip = skip;
      c.hyper = hyper_.data();
      c.count = hyper_.size();
      c.factor = 0.5F;
      c.max_norm = max_norm;
      octavo_status status = OCTAVO_OK;
      host_->run(OCTAVO_VERB_OPTIMIZER_STEP, "prepare_step", [&] {
        status = o.prepare_step(session_.handle(), &c);
        return status == OCTAVO_UNSUPPORTED ? octavo_status{OCTAVO_OK} : status;
      });
      return status == OCTAVO_OK;
    };
    const auto close = [](float found, double wanted) {
      return std::fabs(static_cast<double>(found) - wanted) <= 0x1p-18 * std::fabs(wanted);
    };
    const double length = 0.5 * std::sqrt(static_cast<double>(*sum));
    for (const float max_norm : {0.0F, 0.25F, 1e6F}) {
      if (!prepared(sum, nullptr, max_norm)) return;  // the host derives its inputs itself
      const double limit = static_cast<double>(max_norm) / (length + 1e-6);
      const double wanted = 0.5 * (max_norm > 0 ? std::min(1.0, limit) : 1);
      expect(close(*norm, length), "prepare_step gives the norm ", *norm, "; expected ", length);
      expect(!(*skip > 0), "prepare_step sets skip for a finite norm");
      for (const float *hyper : hyper_)
        expect(close(hyper[OCTAVO_HYPER_GRAD_SCALE], wanted), "prepare_step with max_norm ",
               max_norm, " gives a scale of gradients of ", hyper[OCTAVO_HYPER_GRAD_SCALE],
               "; expected ", wanted);
    }
    float *const bad = scalars_ + 3, *const infinite = scalars_ + 4;
    *bad = 1;
    *infinite = HUGE_VALF;
    prepared(sum, bad, 0);
    expect(*skip > 0, "prepare_step does not set skip where nonfinite is 1");
    prepared(infinite, nullptr, 1);
    expect(*skip > 0, "prepare_step does not set skip for an infinite norm");
  }

  Session session_;
  std::optional<Host> host_;
  std::vector<Matrix> plain_;
  std::vector<float *> hyper_;
  float *scalars_ = nullptr;
  Snapshot start_;
};

}  // namespace

void check_optimizer(const Context &context) {
  need_optimizer(context);
  Steps steps(context);
  steps.check_write();
  steps.check_norm(context.seed);
  steps.check_settings(context.seed);
}

}  // namespace octavo::conformance

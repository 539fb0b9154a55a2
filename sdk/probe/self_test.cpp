// The parts of liboctavo that a host uses, with the options at their defaults and no other device.
#include "self_test.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/format/float16.h"
#include "sdk/src/base/dtype.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/run/run.h"

namespace octavo::probe {
namespace {

constexpr int64_t kSize = 16;  // rows, outputs and inputs
constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;
constexpr const char *kShape = "[16, 16]";
constexpr const char *kOverrun = "wrote beyond the workspace or the output that it was given";
constexpr const char *kWriteWeight = "write_parameter of a float32 weight [16, 16]";

// Of an output, as a share of the product's norm. With both factors in E2M1 and one scale a tensor
// this pattern's product is off by 0.08, with signs and powers of two alone by 0.13; zeros are off
// by 1, and numbers that have nothing to do with it by more.
constexpr double kMostError = 0.5;

// Of memory: sixteen rows need kibibytes.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
struct TooMuch {};

// Memory with a guard after it.
class Fenced {
 public:
  explicit Fenced(uint64_t bytes) : bytes_(bytes), all_(allowed(bytes) + kGuard + 256, 0) {
    const auto address = reinterpret_cast<uintptr_t>(all_.data());
    begin_ = all_.data() + (256 - address % 256) % 256;
    std::memset(begin_ + bytes_, kGuardByte, kGuard);
  }
  void *data() { return begin_; }
  bool broken() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (begin_[bytes_ + i] != kGuardByte) return true;
    return false;
  }

 private:
  // A sanitizer would not survive the attempt.
  static uint64_t allowed(uint64_t bytes) {
    if (bytes > kMostBytes) throw TooMuch{};
    return bytes;
  }

  uint64_t bytes_;
  std::vector<unsigned char> all_;
  unsigned char *begin_;
};

Negotiation negotiation(const LoadedPlugin &plugin) {
  Negotiation n;
  n.config[key::kMinGain] = "off";
  n.device = std::make_shared<OpenDevice>(octavo_device{OCTAVO_DEVICE_CPU, 0},
                                          *octavo_cpu_kernels(), nullptr, helper_host());
  std::vector<Verdict> unused;
  if (plugin.layer)  // a backend that brings calls of its own
    if (auto device = with_layer(n.device, plugin, helper_host(), unused)) n.device = device;
  Candidate c;
  c.id = plugin.id;
  c.plugin = &plugin;
  c.options = effective_options(declared_options(plugin.backend, plugin.id), plugin.id, {});
  n.candidates.push_back(std::move(c));
  n.chosen = 0;
  return n;
}

struct Pattern {
  std::vector<float> x, w;
  Pattern() {
    for (int i = 0; i < kSize * kSize; ++i) {
      x.push_back(static_cast<float>(i * 7 % 31 - 15) / 16);
      w.push_back(static_cast<float>(i * 5 % 23 - 11) / 32);
    }
  }
  // Of y against the product in float64, as a share of the product's norm.
  double error(const float *y) const {
    double wrong = 0, all = 0;
    for (int64_t m = 0; m < kSize; ++m)
      for (int64_t n = 0; n < kSize; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kSize; ++k)
          sum += double{x[static_cast<size_t>(m * kSize + k)]} *
                 double{w[static_cast<size_t>(n * kSize + k)]};
        wrong += (sum - y[m * kSize + n]) * (sum - y[m * kSize + n]);
        all += sum * sum;
      }
    return std::sqrt(wrong / all);
  }
};

// x and y in a dtype that the plan takes; the pattern is exact in each.
class Operands {
 public:
  Operands(const octavo_linear_plan &plan, const std::vector<float> &x) {
    if ((plan.flags & OCTAVO_LINEAR_DECLINES_F32) != 0)
      dtype_ = (plan.flags & OCTAVO_LINEAR_DECLINES_BF16) != 0 ? OCTAVO_F16 : OCTAVO_BF16;
    x_.resize(x.size() * width());
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t half = dtype_ == OCTAVO_F16 ? encode_f16(x[i]) : encode_bf16(x[i]);
      std::memcpy(&x_[i * width()], width() == 4 ? static_cast<const void *>(&x[i]) : &half,
                  width());
    }
  }
  size_t width() const { return element_bytes(dtype_); }
  octavo_tensor x() { return of(x_.data()); }
  octavo_tensor of(void *memory) const { return {memory, kSize, kSize, kSize, dtype_, 0}; }
  std::vector<float> values(const void *y) const {
    std::vector<float> all(kSize * kSize);
    for (size_t i = 0; i < all.size(); ++i) {
      uint16_t half = 0;
      const auto *from = static_cast<const unsigned char *>(y) + i * width();
      std::memcpy(width() == 4 ? static_cast<void *>(&all[i]) : &half, from, width());
      if (width() == 2) all[i] = dtype_ == OCTAVO_F16 ? decode_f16(half) : decode_bf16(half);
    }
    return all;
  }

 private:
  uint32_t dtype_ = OCTAVO_F32;
  std::vector<unsigned char> x_;
};

struct Layer {
  octavo_run *run;
  octavo_store *store = nullptr;
  uint32_t weight = OCTAVO_NONE;
  uint32_t linear = OCTAVO_NONE;

  explicit Layer(std::unique_ptr<octavo_run> r) : run(open_handle(std::move(r))) {}
  ~Layer() {
    octavo_store_close(store);
    octavo_close(run);
  }
  Layer(const Layer &) = delete;
  Layer &operator=(const Layer &) = delete;

  // The first status that is not OCTAVO_OK.
  octavo_status describe() {
    auto p = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    p.name = borrow("probe.weight");
    p.rows = p.cols = kSize;
    p.dtype = p.gradient_dtype = OCTAVO_F32;
    p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    octavo_status status = octavo_add_parameter(run, &p, nullptr, &weight);
    if (status != OCTAVO_OK || weight == OCTAVO_NONE) return status;
    auto l = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    l.name = borrow("probe");
    l.weight = weight;
    status = octavo_add_linear(run, &l, nullptr, &linear);
    if (status == OCTAVO_OK) status = octavo_seal(run);
    if (status == OCTAVO_OK) status = octavo_store_open(run, &store);
    return status;
  }

  // That the plugin asks for.
  uint64_t slot_bytes() const {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < octavo_run_slot_count(run); ++i)
      bytes += octavo::slot_bytes(*octavo_run_slot(run, i));
    return bytes;
  }
};

// Gives the weight of the pattern to a backend that owns weights. False: it stays as it is.
bool write_weight(const LoadedPlugin &plugin, const Layer &layer, Pattern &pattern,
                  std::string *fault) {
  if (!plugin.optimizer) return false;
  const octavo_session *session = octavo_run_session(layer.run);
  uint64_t bytes = 0;
  octavo_status status = plugin.optimizer->workspace_bytes(session, &layer.weight, 1, &bytes);
  pass_resource(status, plugin.id + ": workspace_bytes", Stage::kProbe);
  if (status != OCTAVO_OK) {
    *fault = concat("ended early: workspace_bytes of the optimizer gave status ", status);
    return false;
  }
  Fenced work(bytes);
  octavo_tensor plain{pattern.w.data(), kSize, kSize, kSize, OCTAVO_F32, 0};
  auto w = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
  w.parameter = layer.weight;
  w.role = OCTAVO_ROLE_WEIGHT;
  w.plain = &plain;
  w.slots = octavo_store_slots(layer.store, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER,
                               layer.weight);
  w.workspace = work.data();
  status = plugin.optimizer->write_parameter(session, &w);
  if (work.broken()) *fault = kOverrun;
  pass_resource(status, plugin.id + ": write_parameter", Stage::kProbe);
  if (status != OCTAVO_OK) *fault = concat("ended early: write_parameter gave status ", status);
  return fault->empty();
}

std::string forward_twice(const LoadedPlugin &plugin, Layer &layer, const Voice &voice) {
  Pattern pattern;
  const octavo_linear_plan *plan = octavo_run_plan(layer.run, layer.linear);
  if (plan == nullptr) return "ended early: the sealed layer has no plan";
  std::string fault;
  bool known = octavo_store_native(layer.store, layer.weight, OCTAVO_ROLE_WEIGHT,
                                   pattern.w.data()) == OCTAVO_OK;
  if (!known) {
    voice.call(kWriteWeight);
    known = write_weight(plugin, layer, pattern, &fault);
    if (!fault.empty()) return fault;
  }
  const uint64_t forward_bytes = octavo_extent_bytes(&plan->forward_workspace, kSize);
  Fenced cast(plan->weight_workspace);
  Fenced work(forward_bytes);
  Operands operands(*plan, pattern.x);
  const uint64_t output = kSize * kSize * operands.width();
  std::vector<std::unique_ptr<Fenced>> outputs;
  for (int pass = 0; pass < 2; ++pass) {
    auto q = make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
    q.parameter = layer.weight;
    q.slots = octavo_store_slots(layer.store, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER,
                                 layer.weight);
    q.workspace = cast.data();
    voice.call(concat("quantize_weight of a float32 weight ", kShape,
                      ", for which the plan states ", plan->weight_workspace,
                      " bytes of workspace"));
    octavo_status status = plugin.backend.quantize_weight(octavo_run_session(layer.run), &q);
    pass_resource(status, plugin.id + ": quantize_weight", Stage::kProbe);
    if (status != OCTAVO_OK && status != OCTAVO_UNSUPPORTED)
      return concat("ended early: quantize_weight gave status ", status);
    outputs.push_back(std::make_unique<Fenced>(output));
    const octavo_tensor x = operands.x();
    octavo_tensor y = operands.of(outputs.back()->data());
    auto f = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    f.linear = layer.linear;
    f.x = &x;
    f.y = &y;
    f.slots =
        octavo_store_slots(layer.store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, layer.linear);
    f.workspace = work.data();
    voice.call(concat("linear_forward with M = ", kSize, ", a float32 weight ", kShape,
                      ", for which the plan states ", forward_bytes, " bytes of workspace"));
    status = plugin.backend.linear_forward(octavo_run_session(layer.run), &f);
    if (cast.broken() || work.broken() || outputs.back()->broken()) return kOverrun;
    pass_resource(status, plugin.id + ": linear_forward", Stage::kProbe);
    if (status != OCTAVO_OK) return concat("ended early: linear_forward gave status ", status);
  }
  const std::vector<float> first = operands.values(outputs[0]->data());
  for (const float y : first)
    if (!std::isfinite(y)) return "gave an output that is not finite for finite inputs";
  if (std::memcmp(outputs[0]->data(), outputs[1]->data(), output) != 0)
    return "gave two outputs for the same inputs";
  if (!known) {
    voice.warn(
        "its self-test compared no numbers: the backend owns its weight and has "
        "no " OCTAVO_OPTIMIZER_ID " that could write one");
    return {};
  }
  const double error = pattern.error(first.data());
  char text[96];
  std::snprintf(text, sizeof(text), "%.2f %% of the product's norm away from it", 100 * error);
  if (error > kMostError)
    return concat("gave an output that is ", text, ", expected at most ",
                  static_cast<int>(100 * kMostError), " %");
  voice.note(concat("self-test: ", text));
  return {};
}

}  // namespace

const octavo_host *helper_host() {
  static const octavo_host host = [] {
    auto h = make<octavo_host>(OCTAVO_KIND_HOST);
    h.abi_major = OCTAVO_ABI_MAJOR;
    h.abi_minor = OCTAVO_ABI_MINOR;
    h.diagnose = [](void *, const octavo_diagnostic *d) {
      if (d->severity < OCTAVO_SEVERITY_WARNING) return;
      const std::string domain = take_text(d->domain);
      std::fprintf(stderr, "%s: %s\n", domain.c_str(), take_text(d->text).c_str());
    };
    h.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    return h;
  }();
  return &host;
}

bool describe(const LoadedPlugin &plugin, const Voice &voice) {
  const std::string left_out = "its self-test was left out: ";
  try {
    const Negotiation n = negotiation(plugin);
    const std::vector<octavo_option_value> options = lend_options(n.candidates[0].options);
    const octavo_session_desc desc = describe_session(n, helper_host(), options);
    std::vector<Verdict> verdicts;
    const VerdictSink sink(verdicts);
    const octavo_status status = plugin.backend.check_session(&desc, sink.get());
    if (status == OCTAVO_OK && !verdicts.empty() && !declined(verdicts)) return true;
    voice.warn(left_out + "with default options the plugin declines a session on the CPU" +
               (verdicts.empty() ? concat(", status ", status) : ": " + verdicts[0].text));
  } catch (const Failure &f) {
    voice.warn(left_out + f.text());
  }
  return false;
}

std::string self_test(const LoadedPlugin &plugin, const Voice &voice) {
  try {
    voice.call(concat("open_session with default options on the CPU"));
    Layer layer(std::make_unique<octavo_run>(negotiation(plugin),
                                             std::make_unique<octavo_host>(*helper_host())));
    voice.call(concat("add_parameter, add_linear and seal of a float32 weight ", kShape));
    const octavo_status status = layer.describe();
    if (status == OCTAVO_NO_RESOURCE && layer.slot_bytes() > kMostBytes) throw TooMuch{};
    pass_resource(status, plugin.id + ": describing a layer", Stage::kProbe);
    if (status != OCTAVO_OK) return concat("ended early: describing a layer gave status ", status);
    if (layer.linear == OCTAVO_NONE) {
      voice.warn("its self-test was left out: the plugin leaves a 16 x 16 layer with the host");
      return {};
    }
    std::string fault = forward_twice(plugin, layer, voice);
    if (fault.empty()) voice.call("close_session");
    return fault;
  } catch (const Failure &f) {
    return "ended early: " + f.text();
  } catch (const TooMuch &) {
    return "ended early: the stated sizes are more memory than the helper may use";
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const ResourceUnavailable &) {
    throw;
  } catch (const std::exception &e) {
    return "ended early: it threw an exception: " + take_words(e.what());
  } catch (...) {
    return "ended early: it threw an exception of unknown type";
  }
}

}  // namespace octavo::probe

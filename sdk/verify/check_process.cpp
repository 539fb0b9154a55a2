// process, heap and texts: what a plugin does to its host outside of the verbs' results.
#include "all_checks.h"
#include "heap.h"
#include "host.h"
#include "sdk/src/base/utf8.h"

namespace octavo::conformance {
namespace {

constexpr uint64_t kLongestName = 256, kLongestSentence = 4096;

// Counts the verbs that take memory.
class HeapVerbs : public Host::Observer {
 public:
  void before(const std::string &) override { count_.emplace(); }
  void after(const std::string &what) override {
    const uint64_t calls = count_->calls();
    count_.reset();
    expect(calls == 0, what, " called malloc or its like ", calls,
           " times; a hot verb uses the workspace of its call");
  }

 private:
  std::optional<HeapCount> count_;
};

// What each of many sessions leaves behind is lost; what the first ones leave may be a cache.
void check_close(const Context &context) {
  step("memory of closed sessions");
  constexpr size_t kFirst = 4, kSessions = 12;
  std::vector<uint64_t> in_use;
  in_use.reserve(kSessions);
  while (in_use.size() < kSessions) {
    {
      Session s(context);
      s.add(standard_model());
      s.seal();
    }
    in_use.push_back(heap_in_use());
  }
  step("memory of closed sessions");
  bool grows = true;
  for (size_t i = kFirst; i < kSessions; ++i) grows = grows && in_use[i] > in_use[i - 1];
  expect(!grows, "each session that was opened, sealed and closed left memory behind, ",
         (in_use.back() - in_use[kFirst - 1]) / (kSessions - kFirst), " bytes of the heap");
}

void expect_text(const std::string &what, octavo_str s, uint64_t longest) {
  expect(s.data != nullptr || s.size == 0, what, " has no data but states ", s.size, " bytes");
  expect(s.size <= longest, what, " states ", s.size, " bytes; expected at most ", longest);
  const std::string all = text_of(s);
  expect(is_utf8(all), what, " is no UTF-8: '", all, "'");
  for (const char c : all) {
    const auto byte = static_cast<unsigned char>(c);
    expect(byte >= 0x20 && byte != 0x7F, what, " has the control character ", unsigned{byte}, ": '",
           all, "'");
  }
}

// Texts come inside of callbacks, which may not throw: the first failure is kept.
struct Texts {
  std::string failure;

  void take(const std::string &what, octavo_str s, uint64_t longest) {
    try {
      expect_text(what, s, longest);
    } catch (const Failure &found) {
      if (failure.empty()) failure = found.what();
    }
  }
  void take(const octavo_verdict &v) {
    take("a verdict's text", v.text, kLongestSentence);
    take("a verdict's evidence", v.evidence, kLongestSentence);
    take("a verdict's remedy", v.remedy, kLongestSentence);
  }
  void finish() const { expect(failure.empty(), failure); }
};

octavo_status take_option(void *ctx, const octavo_option *o) {
  auto &texts = *static_cast<Texts *>(ctx);
  texts.take("an option's name", o->name, kLongestName);
  texts.take("an option's help", o->help, kLongestSentence);
  if (o->initial.type == OCTAVO_VALUE_TEXT)
    texts.take("an option's default", o->initial.text, kLongestSentence);
  for (uint64_t i = 0; o->choices != nullptr && i < o->choice_count && i < 1000; ++i)
    texts.take("an option's choice", o->choices[i], kLongestName);
  return OCTAVO_OK;
}

void take_verdict(void *ctx, const octavo_verdict *v) {
  static_cast<Texts *>(ctx)->take(*v);
}

}  // namespace

void check_process(const Context &context) {
  const Target &target = context.target;
  if (!target.changes) throw Skip("the backend is part of this program, which loaded no plugin");
  if (target.desc.device.type != OCTAVO_DEVICE_CPU)
    throw Skip("the device's kernels and driver change the process, too; on the CPU it is judged");
  const auto unchanged = [&](const char *phase) {
    step(phase);
    std::string all;
    for (const std::string &change : target.changes()) all += text(all.empty() ? "" : "; ", change);
    expect(all.empty(), "the plugin, ", phase, ": ", all);
  };
  unchanged("while it is loaded");
  {
    Session s(context);
    unchanged("in open_session");
    s.add(standard_model());
    unchanged("in add_parameter and add_linear");
    s.seal();
    unchanged("in seal and linear_plan");
    Host host(s, context.seed);
    host.add_standard_batches();
    host.quantize_weights();
    unchanged("in quantize_weight");
    for (Batch &batch : host.batches()) host.forward(batch);
    unchanged("in linear_forward");
    for (Batch &batch : host.batches()) host.backward(batch);
    unchanged("in linear_backward");
    host.optimizer_step();
    unchanged("in optimizer_step");
    host.end_step();
    unchanged("in end_step");
  }
  unchanged("in close_session");
}

void check_heap(const Context &context) {
  if (!heap_is_counted()) throw Skip("the heap of this build belongs to a sanitizer");
  Standard standard(context);
  Host &host = standard.host;
  host.train_step();  // what is made on first use
  HeapVerbs heap;
  host.set_observer(&heap);
  host.train_step();
  host.set_observer(nullptr);
  check_close(context);
}

void check_texts(const Context &context) {
  const octavo_backend &backend = *context.target.backend;
  Texts texts;
  step("options");
  const octavo_option_sink options = {sizeof options, OCTAVO_KIND_OPTION_SINK, &texts, take_option};
  backend.list_options(&options);
  texts.finish();
  step("verdicts of check_session");
  const WrappedKernels kernels(context.target.desc, context.alignment);
  const octavo_session_desc desc = kernels.desc();
  const octavo_verdict_sink sink = {sizeof sink, OCTAVO_KIND_VERDICT_SINK, &texts, take_verdict};
  backend.check_session(&desc, &sink);
  texts.finish();
  Session s(context);
  step("verdicts of add_parameter and add_linear");
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_I32}) {
    octavo_parameter_desc parameter{};
    parameter.name = OCTAVO_STR("candidate");
    parameter.rows =
        17;  // no multiple of an alignment, about which a verdict may have something to say
    parameter.cols = 33;
    parameter.dtype = dtype;
    parameter.gradient_dtype = OCTAVO_F32;
    parameter.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    octavo_verdict verdict;
    uint32_t id = 0;
    if (s.add_parameter(parameter, &verdict, &id) != OCTAVO_OK) continue;
    texts.take(verdict);
    if (verdict.decision == OCTAVO_DECLINE) continue;
    octavo_linear_desc linear{};
    linear.name = OCTAVO_STR("candidate");
    linear.weight = id;
    if (s.add_linear(linear, &verdict, &id) == OCTAVO_OK) texts.take(verdict);
  }
  texts.finish();
  step("names of slots");
  s.add(standard_model());
  s.seal();
  for (const Slot &slot : s.slots()) texts.take("a slot's name", str_of(slot.name), kLongestName);
  texts.finish();
}

void check_symbols(const Context &context) {
  if (!context.target.symbols_of_libc)
    throw Skip("the backend is part of this program, which loaded no plugin");
  std::string all;
  step("symbols of the C and C++ libraries");
  for (const std::string &name : context.target.symbols_of_libc()) all += " " + name;
  expect(all.empty(), "the plugin exports functions of the C or C++ library:", all,
         "; hide all symbols but one with a version script");
}

}  // namespace octavo::conformance

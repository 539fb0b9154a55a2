// octavo/plugin.hpp from inside: options, barrier, tables, refusals, seals and sizes.
//
// The classes here are backends as an author would write them; Tables<T> gives what a host sees.
#include "octavo/plugin.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/plugins/counting_new.h"
#include "tests/sdk/hpp/plugin_hpp_backends.h"
#include "tests/support/recording_host.h"

namespace octavo::test {
namespace {

using plugin::Tables;
using testing::ElementsAre;
using testing::HasSubstr;

struct Described {
  std::string name, initial, help;
  int64_t whole = 0;
  double real = 0, low = 0, high = 0;
  uint32_t type = 0;
  std::vector<std::string> choices;
};

std::vector<Described> options_of(const octavo_backend &b) {
  std::vector<Described> all;
  const octavo_option_sink sink = {
      sizeof sink, OCTAVO_KIND_OPTION_SINK, &all, [](void *ctx, const octavo_option *o) {
        Described d{text(o->name),
                    text(o->initial.text),
                    text(o->help),
                    o->initial.integer,
                    o->initial.real,
                    0,
                    0,
                    o->initial.type,
                    {}};
        const bool whole = o->initial.type == OCTAVO_VALUE_INT;
        d.low = whole ? static_cast<double>(o->low.integer) : o->low.real;
        d.high = whole ? static_cast<double>(o->high.integer) : o->high.real;
        for (uint64_t i = 0; i < o->choice_count; ++i) d.choices.push_back(text(o->choices[i]));
        static_cast<std::vector<Described> *>(ctx)->push_back(d);
        return octavo_status{OCTAVO_OK};
      }};
  EXPECT_EQ(b.list_options(&sink), OCTAVO_OK);
  return all;
}

TEST(PluginHpp, options_have_the_type_default_range_and_choices_of_their_members) {
  const auto options = options_of(*Tables<EveryOption>::backend());
  ASSERT_EQ(options.size(), 5u);
  EXPECT_EQ(options[0].type, uint32_t{OCTAVO_VALUE_BOOL});
  EXPECT_EQ(options[0].whole, 1);
  EXPECT_EQ(options[0].help, "a switch");
  EXPECT_EQ(options[1].type, uint32_t{OCTAVO_VALUE_INT});
  EXPECT_EQ(options[1].whole, 7);
  EXPECT_EQ(options[1].low, 1);
  EXPECT_EQ(options[1].high, 9);
  EXPECT_EQ(options[2].type, uint32_t{OCTAVO_VALUE_REAL});
  EXPECT_EQ(options[2].real, 0.5);
  EXPECT_EQ(options[2].high, 2.5);
  EXPECT_EQ(options[3].type, uint32_t{OCTAVO_VALUE_TEXT});
  EXPECT_EQ(options[3].initial, "some text");
  EXPECT_EQ(options[4].initial, "most_recent");
  EXPECT_THAT(options[4].choices, ElementsAre("max", "most_recent"));
}

TEST(PluginHpp, options_of_a_session_are_parsed_into_the_struct) {
  const octavo_option_value values[] = {
      {OCTAVO_STR("flag"), value_of(false)},
      {OCTAVO_STR("count"), value_of(int64_t{3})},
      {OCTAVO_STR("factor"), value_of(1.25)},
      {OCTAVO_STR("label"), value_of(std::string_view("other"))},
      {OCTAVO_STR("algorithm"), value_of(std::string_view("max"))}};
  const plugin::OptionList<EveryOptions> list;
  const EveryOptions o = list.parse(values, 5);
  EXPECT_FALSE(o.flag);
  EXPECT_EQ(o.count, 3);
  EXPECT_EQ(o.factor, 1.25F);
  EXPECT_EQ(o.label, "other");
  EXPECT_EQ(o.algorithm, Algorithm::kMax);
  const EveryOptions defaults = list.parse(nullptr, 0);
  EXPECT_EQ(defaults.count, 7);
  EXPECT_EQ(defaults.algorithm, Algorithm::kMostRecent);
  const octavo_option_value wrong = {OCTAVO_STR("count"), value_of(1.0)};
  EXPECT_THROW(list.parse(&wrong, 1), plugin::Error);
}

// Pieces of s bytes for each 256 rows, at multiples of 256 bytes, and one of 100 bytes at the end.
TEST(PluginHpp, an_extent_covers_pieces_that_grow_slowly_and_is_exact_for_others) {
  for (const int64_t s : {0, 1, 8, 100, 255, 256, 257, 511, 512, 8192, 8200}) {
    const auto used = [s](int64_t rows) {
      plugin::Carver carver;
      const int64_t steps = (rows + 255) / 256;
      carver.take(s * steps), carver.take(3 * s * steps), carver.take(100);
      return carver.used();
    };
    const octavo_extent extent = plugin::extent_of(used);
    for (int64_t rows = 0; rows < 300000; rows += 37) {
      const uint64_t found = plugin::bytes_of(extent, rows);
      ASSERT_GE(found, used(rows)) << s << ", " << rows;
      if (s % 256 == 0) {
        ASSERT_EQ(found, used(rows)) << s << ", " << rows;
      }
    }
    const int64_t large = int64_t{1} << 40;
    EXPECT_GE(plugin::bytes_of(extent, large), used(large)) << s;
  }
}

TEST(PluginHpp, an_exception_becomes_a_status_and_a_diagnostic_that_names_the_verb) {
  RecordingHost host;
  const FakeDevice device(host.get());
  const octavo_backend &b = *Tables<Throwing>::backend();
  octavo_session *s = nullptr;
  ASSERT_EQ(b.open_session(&device.desc, &s), OCTAVO_OK);
  auto c = make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  const std::map<Throwing::Kind, std::pair<octavo_status, const char *>> expected = {
      {Throwing::kError, {OCTAVO_UNSUPPORTED, "end_step: expected less"}},
      {Throwing::kNoMemory, {OCTAVO_NO_RESOURCE, "end_step: out of memory"}},
      {Throwing::kStandard, {OCTAVO_INTERNAL, "end_step: a defect"}},
      {Throwing::kNumber, {OCTAVO_INTERNAL, "end_step: an exception of unknown type"}}};
  for (const auto &[kind, answer] : expected) {
    Throwing::next = kind;
    EXPECT_EQ(b.end_step(s, &c), answer.first);
    EXPECT_EQ(host.error(), answer.second);
    EXPECT_EQ(host.all().back().code, answer.first);
  }
  b.close_session(s);
}

TEST(PluginHpp, a_constructor_that_throws_leaves_no_session) {
  RecordingHost host;
  const FakeDevice device(host.get());
  octavo_session *s = nullptr;
  EXPECT_EQ(Tables<Unopenable>::backend()->open_session(&device.desc, &s), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(s, nullptr);
  EXPECT_EQ(host.error(), "open_session: out of memory");
}

template <typename T>
std::string refusal_of_open() {
  RecordingHost host;
  const FakeDevice device(host.get());
  octavo_session *s = nullptr;
  EXPECT_EQ(Tables<T>::backend()->open_session(&device.desc, &s), OCTAVO_INTERNAL);
  EXPECT_EQ(s, nullptr);
  return host.error();
}

TEST(PluginHpp, a_slot_whose_verb_is_missing_is_refused_at_open) {
  EXPECT_EQ(refusal_of_open<MisspeltCast>(),
            "open_session: quantize_weight writes slot \"cache\", but the backend has no "
            "cast_weight()");
  EXPECT_EQ(refusal_of_open<MisspeltStep>(),
            "open_session: end_step updates slot \"x/amax\", but the backend has no "
            "finish_step()");
}

TEST(PluginHpp, optional_interfaces_are_there_when_their_verbs_are) {
  const auto interface = [](auto tables, const char *id) {
    return decltype(tables)::get_interface({id, std::char_traits<char>::length(id)});
  };
  EXPECT_NE(interface(Tables<Pooled>(), OCTAVO_BACKEND_ID), nullptr);
  EXPECT_EQ(interface(Tables<Pooled>(), OCTAVO_OPTIMIZER_ID), nullptr);
  EXPECT_EQ(interface(Tables<Pooled>(), OCTAVO_GRADIENTS_ID), nullptr);
  EXPECT_EQ(interface(Tables<Pooled>(), OCTAVO_FUSED_ID), nullptr);
  EXPECT_EQ(interface(Tables<Pooled>(), OCTAVO_SHARD_ID), nullptr);
  EXPECT_NE(interface(Tables<Pooled>(), OCTAVO_GROUPED_ID), nullptr) << "every Backend has it";
  EXPECT_EQ(interface(Tables<Pooled>(), "octavo.backend/10"), nullptr);
  EXPECT_EQ(interface(Tables<Pooled>(), ""), nullptr);
  const auto *fused =
      static_cast<const octavo_fused *>(interface(Tables<Fusing>(), OCTAVO_FUSED_ID));
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->kind, uint32_t{OCTAVO_KIND_FUSED});
  octavo_extent extent{};
  const FakeDevice device(nullptr);
  octavo_session *s = nullptr;
  ASSERT_EQ(Tables<Fusing>::backend()->open_session(&device.desc, &s), OCTAVO_OK);
  EXPECT_EQ(fused->workspace(s, 5, &extent), OCTAVO_OK);
  EXPECT_EQ(extent.fixed_bytes, 5u);
  Tables<Fusing>::backend()->close_session(s);
}

TEST(PluginHpp, verdicts_decline_what_lacks_and_say_emulated) {
  const auto decisions = [](FakeDevice &device) {
    std::vector<std::pair<uint32_t, std::string>> all;
    const octavo_verdict_sink sink = {
        sizeof sink, OCTAVO_KIND_VERDICT_SINK, &all, [](void *ctx, const octavo_verdict *v) {
          static_cast<std::vector<std::pair<uint32_t, std::string>> *>(ctx)->emplace_back(
              v->decision, text(v->text));
        }};
    EXPECT_EQ(Tables<Pooled>::backend()->check_session(&device.desc, &sink), OCTAVO_OK);
    return all;
  };
  FakeDevice device(nullptr);
  ASSERT_EQ(decisions(device).size(), 1u);
  EXPECT_EQ(decisions(device)[0].first, uint32_t{OCTAVO_ACCEPT});
  device.caps.flags = OCTAVO_CAPS_EMULATED;
  EXPECT_EQ(decisions(device)[0].first, uint32_t{OCTAVO_ACCEPT_EMULATED});
  LackingKernels::dtypes() = {OCTAVO_E5M2};
  ASSERT_EQ(decisions(device).size(), 1u);
  EXPECT_EQ(decisions(device)[0].first, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(decisions(device)[0].second, "the kernels lack a cast of the recipe");
  device.caps.alignment = 48;  // does not divide the rows that sizes are measured at
  EXPECT_EQ(decisions(device).size(), 2u);
}

TEST(PluginHpp, a_backend_declines_a_device_kernels_or_a_layout) {
  FakeDevice fake(nullptr);
  fake.desc.device = {12, 3};
  fake.caps.id = OCTAVO_STR("npu");
  fake.kernels.ability = [](void *, octavo_ability *q) {
    q->decision = q->flags == OCTAVO_GEMM_B_KN ? OCTAVO_DECLINE : OCTAVO_ACCEPT;
    return octavo_status{OCTAVO_OK};
  };
  const plugin::Device device(fake.desc);
  EXPECT_EQ(device.where().type, 12u);
  EXPECT_EQ(device.where().index, 3);
  EXPECT_EQ(device.kernels_id(), "npu");
  plugin::Verdicts verdicts(device, nullptr);
  verdicts.need_product({}, {});
  EXPECT_FALSE(verdicts.declined());
  verdicts.need_product({}, {}, "take rows", OCTAVO_GEMM_B_KN);
  EXPECT_TRUE(verdicts.declined());
}

class Sealed : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(b.open_session(&device.desc, &s), OCTAVO_OK); }
  void TearDown() override { b.close_session(s); }

  octavo_status add_weight(const char *name, uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT,
                           uint32_t dtype = OCTAVO_F32) {
    auto d = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    d.name = borrow(name);
    d.rows = 3, d.cols = 5, d.dtype = dtype, d.gradient_dtype = OCTAVO_F32, d.flags = flags;
    verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    return b.add_parameter(s, &d, &verdict, &id);
  }
  octavo_status add_linear(const char *name, uint32_t weight) {
    auto d = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    d.name = borrow(name);
    d.weight = weight;
    verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    return b.add_linear(s, &d, &verdict, &id);
  }
  // "session nonfinite", or "use linear 0 of 3 (1, 1)"; stops with a failure after `limit` slots.
  octavo_status seal(size_t limit = 1000) {
    emitted.clear();
    limit_ = limit;
    const octavo_slot_sink sink = {sizeof sink, OCTAVO_KIND_SLOT_SINK, this, take_slot, take_use};
    return b.seal(s, &sink);
  }
  static octavo_status take_slot(void *ctx, const octavo_slot *slot) {
    auto *self = static_cast<Sealed *>(ctx);
    if (self->limit_-- == 0) return OCTAVO_NO_RESOURCE;
    self->emitted.push_back(std::to_string(slot->id) + " " + text(slot->name) + " [" +
                            std::to_string(slot->rows) + ", " + std::to_string(slot->cols) + "]" +
                            (slot->labels == nullptr ? "" : " " + text(slot->labels[0])));
    return OCTAVO_OK;
  }
  static octavo_status take_use(void *ctx, const octavo_slot_use *u) {
    const char *kinds[] = {"", "session", "parameter", "linear"};
    static_cast<Sealed *>(ctx)->emitted.push_back(
        std::string(kinds[u->owner_kind]) + " " + std::to_string(u->owner) + ": " +
        std::to_string(u->slot) + (u->count == 0 ? "" : " column " + std::to_string(u->first)));
    return OCTAVO_OK;
  }

  RecordingHost host;
  FakeDevice device{host.get()};
  const octavo_backend &b = *Tables<Pooled>::backend();
  octavo_session *s = nullptr;
  octavo_verdict verdict{};
  uint32_t id = 77;
  std::vector<std::string> emitted;

 private:
  size_t limit_ = 0;
};

TEST_F(Sealed, every_rule_is_emitted_for_its_objects_and_stands_in_the_lists_of_its_verbs) {
  ASSERT_EQ(add_weight("w"), OCTAVO_OK);
  ASSERT_EQ(add_weight("norm", 0), OCTAVO_OK);
  ASSERT_EQ(add_linear("a", 0), OCTAVO_OK);
  ASSERT_EQ(add_linear("b", 0), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  EXPECT_THAT(
      emitted,
      ElementsAre("0 nonfinite [1, 1]", "session 0: 0",                   // the session's own
                  "parameter 0: 0", "1 weight [3, 5]", "parameter 0: 1",  // w
                  "2 cache [3, 5]", "parameter 0: 2",                     //
                  "3 cache/scale_inv [1, 1]", "parameter 0: 3",           //
                  "parameter 1: 0", "4 weight [3, 5]", "parameter 1: 4",  // norm has no codes
                  "5 x/amax [1, 2] a", "session 0: 5",                    // the pool of linears
                  "linear 0: 0", "linear 0: 2", "linear 0: 3", "linear 0: 5 column 0",
                  "linear 1: 0", "linear 1: 2", "linear 1: 3", "linear 1: 5 column 1"));
}

TEST_F(Sealed, a_later_seal_adds_pools_and_changes_nothing) {
  ASSERT_EQ(add_weight("w"), OCTAVO_OK);
  ASSERT_EQ(add_linear("a", 0), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  EXPECT_THAT(emitted, ElementsAre());
  ASSERT_EQ(add_linear("late", 0), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  EXPECT_THAT(emitted, ElementsAre("5 x/amax [1, 1] late", "session 0: 5", "linear 1: 0",
                                   "linear 1: 2", "linear 1: 3", "linear 1: 5 column 0"));
}

TEST_F(Sealed, a_seal_that_fails_anywhere_leaves_the_session_as_it_was) {
  ASSERT_EQ(add_weight("w"), OCTAVO_OK);
  ASSERT_EQ(add_linear("a", 0), OCTAVO_OK);
  ASSERT_EQ(seal(0), OCTAVO_NO_RESOURCE);
  for (size_t limit = 1; limit < 5; ++limit) ASSERT_EQ(seal(limit), OCTAVO_NO_RESOURCE) << limit;
  octavo_linear_plan plan = make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
  EXPECT_EQ(b.linear_plan(s, 0, &plan), OCTAVO_INVALID);
  ASSERT_EQ(seal(5), OCTAVO_OK);
  EXPECT_EQ(emitted.front(), "0 nonfinite [1, 1]");
  EXPECT_EQ(emitted.size(), 15u);
}

TEST_F(Sealed, malformed_objects_are_refused_and_odd_ones_declined) {
  EXPECT_EQ(add_weight("w", 1U << 20), OCTAVO_INVALID);
  EXPECT_THAT(host.error(), HasSubstr("add_parameter \"w\": expected reserved 0 and known flags"));
  EXPECT_EQ(add_linear("early", 0), OCTAVO_INVALID);
  EXPECT_EQ(add_weight("w", OCTAVO_PARAMETER_LINEAR_WEIGHT, OCTAVO_I32), OCTAVO_OK);
  EXPECT_EQ(verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(verdict.reason, uint32_t{OCTAVO_REASON_DTYPE});
  EXPECT_EQ(id, 77u);
  EXPECT_EQ(add_weight("w"), OCTAVO_OK);
  EXPECT_EQ(id, 0u);
  EXPECT_EQ(verdict.decision, uint32_t{OCTAVO_ACCEPT});
  EXPECT_EQ(add_linear("refused", 0), OCTAVO_OK);
  EXPECT_EQ(verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(text(verdict.text), "not this one");
  EXPECT_EQ(text(verdict.remedy), "name it otherwise");
}

TEST_F(Sealed, a_plan_follows_from_what_the_verbs_take_and_read) {
  ASSERT_EQ(add_weight("w"), OCTAVO_OK);
  ASSERT_EQ(add_weight("frozen", OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN),
            OCTAVO_OK);
  ASSERT_EQ(add_linear("a", 0), OCTAVO_OK);
  ASSERT_EQ(add_linear("b", 1), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  octavo_linear_plan plan = make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
  ASSERT_EQ(b.linear_plan(s, 0, &plan), OCTAVO_OK);
  EXPECT_EQ(plan.flags, uint32_t{OCTAVO_LINEAR_NEEDS_X});
  EXPECT_EQ(plan.gradient, uint32_t{OCTAVO_GRADIENT_TENSOR});
  // saved: codes [5, M rounded up to 16] and one scale_inv.
  EXPECT_EQ(plan.saved.row_multiple, 16u);
  EXPECT_EQ(plan.saved.bytes_per_row, 5u);
  EXPECT_EQ(plan.saved.fixed_bytes, 4u);
  // forward: a piece of 8 bytes a row; FakeDevice's kernels ask for 64 bytes a call, rounded up.
  EXPECT_EQ(plan.forward_workspace.bytes_per_row, 8u);
  EXPECT_EQ(plan.forward_workspace.fixed_bytes, 256u);
  ASSERT_EQ(b.linear_plan(s, 1, &plan), OCTAVO_OK);
  EXPECT_EQ(plan.flags, 0u);
  EXPECT_EQ(plan.gradient, uint32_t{OCTAVO_GRADIENT_NONE});
  EXPECT_EQ(plan.saved.bytes_per_row, 0u);
  EXPECT_EQ(plan.saved.fixed_bytes, 0u);
}

TEST_F(Sealed, verbs_allocate_nothing_and_refuse_what_does_not_fit) {
  ASSERT_EQ(add_weight("w"), OCTAVO_OK);
  ASSERT_EQ(add_linear("a", 0), OCTAVO_OK);
  ASSERT_EQ(seal(), OCTAVO_OK);
  float memory[64] = {};
  void *slots[8] = {memory, memory, memory, memory, memory, memory, memory, memory};
  octavo_tensor x{memory, 2, 5, 5, OCTAVO_F32, 0}, y{memory, 2, 3, 3, OCTAVO_F32, 0};
  octavo_tensor dw{memory, 3, 5, 5, OCTAVO_F32, 0};
  auto f = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  f.x = &x, f.y = &y, f.slots = slots, f.workspace = memory;
  auto g = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  g.x = &x, g.dy = &y, g.dw = &dw, g.slots = slots, g.workspace = memory;
  auto w = make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
  w.slots = slots;
  auto e = make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  e.slots = slots;
  const uint64_t before = allocations;
  const octavo_status status = b.quantize_weight(s, &w) | b.linear_forward(s, &f) |
                               b.linear_backward(s, &g) | b.end_step(s, &e);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(status, OCTAVO_OK) << host.error();

  f.linear = 1;
  EXPECT_EQ(b.linear_forward(s, &f), OCTAVO_INVALID);
  EXPECT_EQ(host.error(), "linear_forward: expected a sealed linear");
  f.linear = 0, y.cols = 4;
  EXPECT_EQ(b.linear_forward(s, &f), OCTAVO_INVALID);
  EXPECT_EQ(b.linear_backward(s, &g), OCTAVO_INVALID);
  y.cols = 3, f.flags = OCTAVO_FORWARD_EVALUATION, f.saved = memory;
  EXPECT_EQ(b.linear_forward(s, &f), OCTAVO_INVALID);
  w.parameter = 1;
  EXPECT_EQ(b.quantize_weight(s, &w), OCTAVO_INVALID);
  f.flags = 0, f.saved = nullptr;
  device.kernels.quantize = [](void *, const octavo_quantize *) {
    return octavo_status{OCTAVO_FAILED_DEVICE};
  };
  EXPECT_EQ(b.linear_forward(s, &f), OCTAVO_FAILED_DEVICE);
}

}  // namespace
}  // namespace octavo::test

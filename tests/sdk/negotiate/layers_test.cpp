// Layers: which calls they take, which pass through to what is below, and how they are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/cpu/table.h"
#include "octavo/draft/streams.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/memory.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/negotiate/negotiate.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Kernels whose functions answer a status of their own.
int marker = 0;
std::vector<std::string> closings;
template <int number, typename... A>
octavo_status answer(void *ctx, A...) {
  return ctx == &marker ? octavo_status{100 + number} : octavo_status{OCTAVO_INTERNAL};
}
template <int number, typename Table, typename... A>
void number_one(Table &table, octavo_status (*Table::*member)(void *, A...)) {
  table.*member = answer<number, A...>;
}
template <typename Table, int... numbers, typename... F>
void number_all(Table &table, std::integer_sequence<int, numbers...>, F... members) {
  (number_one<numbers>(table, members), ...);
}
template <typename Table, typename... F>
Table numbered(uint32_t kind, F... members) {
  auto table = make<Table>(kind);
  number_all(table, std::make_integer_sequence<int, sizeof...(F)>(), members...);
  return table;
}
template <typename Table, typename... A>
octavo_status called(const Table &table, void *ctx, octavo_status (*Table::*member)(void *, A...)) {
  return (table.*member)(ctx, A()...);
}
template <typename Table, typename... F>
std::vector<octavo_status> statuses(const Table &table, void *ctx, F... members) {
  return {called(table, ctx, members)...};
}

using K = octavo_kernels;
#define ALL_CALLS                                                                      \
  &K::ability, &K::workspace_bytes, &K::quantize, &K::dequantize, &K::compute_amax,    \
      &K::scale_from_amax, &K::delayed_scale_update, &K::gemm, &K::sum_rows, &K::copy, \
      &K::quantize_stats, &K::prologue, &K::prologue_quantize, &K::pack
// What is not a call: probe_device, open_device, close_device, describe and get_extension.
static_assert(sizeof(octavo_kernels) == 8 + 8 * (14 + 5), "a new call: add it here");
#define ADAM_CALLS                                                       \
  &octavo_adam_kernels::adam_step, &octavo_adam_kernels::gradient_scale, \
      &octavo_adam_kernels::sum_of_squares
static_assert(sizeof(octavo_adam_kernels) == 8 + 8 * 3 &&
                  sizeof(octavo_msamp_kernels) == 8 + 8 * 3 &&
                  sizeof(octavo_rounding_kernels) == 8 + 8 * 3 &&
                  sizeof(octavo_one_pass_kernels) == 8 + 8 && sizeof(octavo_fp4_kernels) == 8 + 8,
              "a new call: add it here");
#define MSAMP_CALLS                                                          \
  &octavo_msamp_kernels::sum_quantized, &octavo_msamp_kernels::scale_values, \
      &octavo_msamp_kernels::prescale_update
#define ROUNDING_CALLS                                                           \
  &octavo_rounding_kernels::adam_rounded, &octavo_rounding_kernels::round_codes, \
      &octavo_rounding_kernels::count
// Without graphs.
#define STREAMS_CALLS                                                          \
  &octavo_streams::make_stream, &octavo_streams::order, &octavo_streams::wait, \
      &octavo_streams::call_host, &octavo_streams::current_device,             \
      &octavo_streams::set_current_device
static_assert(sizeof(octavo_streams) == 8 + 8 * 11, "a new call: add it here");

const octavo_kernels &numbered_kernels() {
  static const octavo_kernels table = [] {
    auto t = numbered<octavo_kernels>(OCTAVO_KIND_KERNELS, ALL_CALLS);
    t.open_device = [](octavo_device, const octavo_host *, void **ctx) {
      *ctx = &marker;
      return octavo_status{OCTAVO_OK};
    };
    t.close_device = [](void *) { closings.emplace_back("kernels"); };
    t.describe = [](void *, octavo_kernels_caps *out) {
      out->id = OCTAVO_STR("numbers");
      out->alignment = 16;
      return octavo_status{OCTAVO_OK};
    };
    t.get_extension = [](void *, octavo_str id) -> const void * {
      static const auto adam = numbered<octavo_adam_kernels>(OCTAVO_KIND_ADAM_KERNELS, ADAM_CALLS);
      static const auto msamp =
          numbered<octavo_msamp_kernels>(OCTAVO_KIND_MSAMP_KERNELS, MSAMP_CALLS);
      static const auto rounding =
          numbered<octavo_rounding_kernels>(OCTAVO_KIND_ROUNDING_KERNELS, ROUNDING_CALLS);
      static const auto one_pass = numbered<octavo_one_pass_kernels>(
          OCTAVO_KIND_ONE_PASS_KERNELS, &octavo_one_pass_kernels::adam_one_pass);
      static const auto streams = [] {
        auto s = numbered<octavo_streams>(OCTAVO_KIND_STREAMS, STREAMS_CALLS);
        s.destroy_stream = [](void *ctx, void *) {
          if (ctx == &marker) closings.emplace_back("stream");
        };
        return s;
      }();
      if (view(id) == OCTAVO_STREAMS_ID) return &streams;
      if (view(id) == OCTAVO_ADAM_KERNELS_ID) return &adam;
      if (view(id) == OCTAVO_MSAMP_KERNELS_ID) return &msamp;
      if (view(id) == OCTAVO_ROUNDING_KERNELS_ID) return &rounding;
      if (view(id) == OCTAVO_ONE_PASS_KERNELS_ID) return &one_pass;
      return view(id) == "vendor.kernels/1" ? &marker : nullptr;  // and no table for fp4
    };
    return t;
  }();
  return table;
}

// A layer that keeps its name, and accepts unless a test says otherwise.
octavo_status accepts(octavo_layer_ctx *, const octavo_verdict_sink *sink) {
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = OCTAVO_ACCEPT;
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

class Layers : public testing::Test {
 protected:
  Layers() { closings.clear(); }
  std::shared_ptr<OpenDevice> base() {
    static const octavo_memory memory = [] {
      auto m = numbered<octavo_memory>(OCTAVO_KIND_MEMORY, &octavo_memory::allocate,
                                       &octavo_memory::copy, &octavo_memory::synchronize);
      m.release = [](void *ctx, void *) {
        if (ctx == &marker) closings.emplace_back("memory");
      };
      return m;
    }();
    return std::make_shared<OpenDevice>(octavo_device{12, 0}, numbered_kernels(), &memory,
                                        host.get());
  }
  static LoadedPlugin plugin(const std::string &id, const octavo_kernels &calls) {
    LoadedPlugin p;
    p.id = id;
    auto layer = make<octavo_layer>(OCTAVO_KIND_LAYER);
    layer.open_layer = accepts;
    layer.close_layer = [](octavo_layer_ctx *) { closings.emplace_back("layer"); };
    layer.calls = &calls;
    p.layer = complete(layer);
    return p;
  }
  std::shared_ptr<OpenDevice> on(std::shared_ptr<OpenDevice> below, const LoadedPlugin &p) {
    return with_layer(std::move(below), p, host.get(), verdicts);
  }
  test::RecordingHost host;
  std::vector<Verdict> verdicts;
};

TEST_F(Layers, every_call_passes_through_an_empty_layer_to_where_it_went) {
  const auto nothing = make<octavo_kernels>(OCTAVO_KIND_KERNELS);
  const auto below = base();
  const auto device = on(on(below, plugin("lower", nothing)), plugin("upper", nothing));
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(view(device->caps().id), "upper on lower on numbers");
  EXPECT_EQ(device->caps().alignment, 16u);
  const octavo_kernels &k = device->kernels();
  EXPECT_EQ(statuses(k, device->ctx(), ALL_CALLS), statuses(below->kernels(), &marker, ALL_CALLS));
  EXPECT_EQ(k.quantize(device->ctx(), nullptr), 102u);
  static_assert(sizeof(octavo_memory) == 8 + 8 * 4, "a new call: add it here");
  const octavo_memory &m = *device->memory();
  const auto own = &octavo_memory::allocate;
  EXPECT_EQ(statuses(m, device->ctx(), own, &octavo_memory::copy, &octavo_memory::synchronize),
            (std::vector<octavo_status>{100, 101, 102}));
  m.release(device->ctx(), nullptr);
  EXPECT_THAT(closings, ElementsAre("memory"));
  const KernelsTables drafts(&k, device->ctx());
  const KernelsTables real(&below->kernels(), &marker);
  const auto expect_same = [&](const auto *table, const auto *expected, auto... members) {
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(statuses(*table, device->ctx(), members...),
              statuses(*expected, &marker, members...));
  };
  expect_same(drafts.get<octavo_adam_kernels>(), real.get<octavo_adam_kernels>(), ADAM_CALLS);
  expect_same(drafts.get<octavo_msamp_kernels>(), real.get<octavo_msamp_kernels>(), MSAMP_CALLS);
  expect_same(drafts.get<octavo_rounding_kernels>(), real.get<octavo_rounding_kernels>(),
              ROUNDING_CALLS);
  expect_same(drafts.get<octavo_one_pass_kernels>(), real.get<octavo_one_pass_kernels>(),
              &octavo_one_pass_kernels::adam_one_pass);
  EXPECT_EQ(drafts.get<octavo_fp4_kernels>(), nullptr);
  const auto *streams = static_cast<const octavo_streams *>(
      k.get_extension(device->ctx(), OCTAVO_STR(OCTAVO_STREAMS_ID)));
  ASSERT_NE(streams, nullptr);
  EXPECT_EQ(statuses(*streams, device->ctx(), STREAMS_CALLS),
            (std::vector<octavo_status>{100, 101, 102, 103, 104, 105}));
  streams->destroy_stream(device->ctx(), nullptr);
  EXPECT_THAT(closings, ElementsAre("memory", "stream"));
  EXPECT_EQ(streams->begin_capture, nullptr);
  EXPECT_EQ(streams->destroy_graph, nullptr);
  // Its functions would be called with a ctx that is not theirs.
  EXPECT_EQ(k.get_extension(device->ctx(), OCTAVO_STR("vendor.kernels/1")), nullptr);
}

TEST_F(Layers, each_call_goes_to_the_highest_layer_that_takes_it) {
  auto lower = make<octavo_kernels>(OCTAVO_KIND_KERNELS), upper = lower;
  lower.gemm = [](void *, const octavo_gemm *) { return octavo_status{1}; };  // OCTAVO_UNSUPPORTED
  lower.copy = [](void *ctx, const octavo_copy *) {
    const auto &layer = *static_cast<octavo_layer_ctx *>(ctx);
    return layer.below->copy(layer.below_ctx, nullptr) + 1;
  };
  upper.sum_rows = [](void *ctx, const octavo_sum *) {
    const auto &layer = *static_cast<octavo_layer_ctx *>(ctx);
    return view(layer.below_caps->id) == "lower on numbers" ? octavo_status{7} : octavo_status{8};
  };
  upper.describe = [](void *, octavo_kernels_caps *out) {
    out->alignment *= 2;
    out->id = OCTAVO_STR("a name that is not taken");
    return octavo_status{OCTAVO_OK};
  };
  upper.get_extension = [](void *ctx, octavo_str id) -> const void * {
    return view(id) == "upper.kernels/1" ? ctx : nullptr;
  };
  upper.size = offsetof(octavo_kernels, get_extension) + sizeof(upper.get_extension);
  const auto device = on(on(base(), plugin("lower", lower)), plugin("upper", upper));
  const octavo_kernels &k = device->kernels();
  EXPECT_EQ(k.gemm(device->ctx(), nullptr), 107u);
  EXPECT_EQ(k.copy(device->ctx(), nullptr), 110u);
  EXPECT_EQ(k.sum_rows(device->ctx(), nullptr), 7u);
  EXPECT_EQ(view(device->caps().id), "upper on lower on numbers");
  EXPECT_EQ(device->caps().alignment, 32u);
  EXPECT_EQ(k.get_extension(device->ctx(), OCTAVO_STR("upper.kernels/1")), device->ctx());
  EXPECT_NE(k.get_extension(device->ctx(), OCTAVO_STR(OCTAVO_ADAM_KERNELS_ID)), nullptr);
}

TEST_F(Layers, close_from_above_and_once) {
  const auto nothing = make<octavo_kernels>(OCTAVO_KIND_KERNELS);
  auto device = on(base(), plugin("one", nothing));
  EXPECT_THAT(closings, ElementsAre());
  device.reset();
  EXPECT_THAT(closings, ElementsAre("layer", "kernels"));
}

TEST_F(Layers, that_do_not_open) {
  struct Case {
    decltype(octavo_layer::open_layer) open;
    uint32_t reason;
    const char *text;
  };
  const auto nothing = make<octavo_kernels>(OCTAVO_KIND_KERNELS);
  for (const Case &c :
       {Case{[](octavo_layer_ctx *, const octavo_verdict_sink *) { return octavo_status{7}; },
             OCTAVO_REASON_KERNEL, "layer one on numbers: open_layer failed with status 7"},
        Case{[](octavo_layer_ctx *, const octavo_verdict_sink *) { return octavo_status{0}; },
             OCTAVO_REASON_ABI, "layer one on numbers: open_layer gave no verdict"},
        Case{[](octavo_layer_ctx *, const octavo_verdict_sink *) -> octavo_status {
               throw std::runtime_error("out of luck");
             },
             OCTAVO_REASON_KERNEL, "layer one on numbers: open_layer failed with status 7"},
        Case{[](octavo_layer_ctx *ctx, const octavo_verdict_sink *sink) {
               octavo_verdict v{};
               v.size = sizeof(v);
               v.level = OCTAVO_LEVEL_DEVICE;
               v.reason = OCTAVO_REASON_KERNEL;
               v.text = OCTAVO_STR("needs float16");
               v.decision = ctx->below->gemm(ctx->below_ctx, nullptr) == 107 ? OCTAVO_DECLINE
                                                                             : OCTAVO_ACCEPT;
               sink->verdict(sink->ctx, &v);
               return octavo_status{OCTAVO_OK};
             },
             OCTAVO_REASON_KERNEL, "layer one on numbers: needs float16"}}) {
    verdicts.clear();
    closings.clear();
    LoadedPlugin p = plugin("one", nothing);
    p.layer->open_layer = c.open;
    EXPECT_EQ(on(base(), p), nullptr);
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].reason, c.reason);
    EXPECT_THAT(verdicts[0].text, StartsWith(c.text));
    EXPECT_THAT(closings, ElementsAre("layer", "kernels"));
  }
  LoadedPlugin p = plugin("one", nothing);
  p.layer->open_layer = [](octavo_layer_ctx *, const octavo_verdict_sink *) {
    return octavo_status{OCTAVO_NO_RESOURCE};
  };
  EXPECT_THROW(on(base(), p), ResourceUnavailable);  // which says nothing about the layer
}

// From the names in device.layers to the answers of negotiation.
class NamedLayers : public Layers {
 protected:
  NamedLayers() {
    n.config[key::kProbe] = "never";
    n.trust.mode = "dev";
  }
  // A plugin's manifest; the library is the zoo's backend, which has no layer.
  void add(const std::string &id, const std::string &lines, int minor = 0) {
    std::string text = "manifest_version = 1\n[plugin]\nname = \"" + id + "\"\nversion = \"1\"\n";
    text += "[abi]\nmajor = 1\nminor = " + std::to_string(minor) + "\n[library]\n";
    text += std::string(test::kTuple) + " = \"" + id + ".so\"\n" + lines;
    dir.copy(test::fake_library("good"), id + ".so");
    n.discovery.manifests.push_back(
        {id, dir.write(id + ".octavo-plugin.toml", text), "a place", ""});
  }
  Verdict refusal(const std::vector<std::string> &layers) {
    n.config[key::kLayers] = layers;
    n.device_verdicts.clear();
    n.device = nullptr;
    octavo_open_desc desc = test::Request().desc();
    choose_device(n, desc, host.get());
    EXPECT_EQ(n.device, nullptr);
    return n.device_verdicts.empty() ? Verdict{} : n.device_verdicts.back();
  }
  test::TempDir dir;
  Negotiation n;
};

TEST_F(NamedLayers, that_nobody_has_or_not_for_this_device) {
  add("int9", "[kernels]\nover = [\"cuda\"]\n");
  add("int7", "[kernels]\nover = \"cpu\"\n");
  add("te", "");
  Verdict v = refusal({"int8"});
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_KERNEL});
  EXPECT_EQ(v.text, "device.layers: no plugin \"int8\" has a layer for cpu");
  EXPECT_THAT(v.evidence, StartsWith("installed layers: int9 over cuda and int7 over cpu; looked"));
  EXPECT_THAT(v.remedy.text, testing::MatchesRegex("did you mean \"int[79]\"\\?"));
  v = refusal({"int9"});
  EXPECT_EQ(v.text, "device.layers: no plugin \"int9\" has a layer for cpu");
  EXPECT_THAT(v.remedy.text, HasSubstr("or choose another device"));
  EXPECT_EQ(refusal({"te"}).text, "device.layers: no plugin \"te\" has a layer for cpu");
}

TEST_F(NamedLayers, whose_plugin_is_refused) {
  add("fake", "[kernels]\nover = \"cpu\"\n");
  Verdict v = refusal({"fake"});
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_ABI});
  EXPECT_THAT(v.text, HasSubstr("expected the interface octavo.kernels.layer/1, found "
                                "octavo.backend/1 only"));
  EXPECT_EQ(v.remedy.text, "the plugin has no layer; reinstall the plugin fake");
  add("newer", "[kernels]\nover = \"cpu\"\n", 99);
  v = refusal({"newer"});
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_ABI});
  EXPECT_THAT(v.text, HasSubstr("the manifest states ABI 1.99, this host has ABI 1."));
  add("broken", "[kernels]\nover = []\n");
  EXPECT_THAT(refusal({"broken"}).text, HasSubstr("[kernels] over: expected the kinds of devices"));
}

}  // namespace
}  // namespace octavo

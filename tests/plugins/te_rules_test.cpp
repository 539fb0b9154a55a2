// Options of single linears in one session of te: each linear has the bits, the slots and the plan
// of the same linear in a session that has its options for all.
#include <gmock/gmock.h>

#include "octavo/fused.h"
#include "octavo/shard.h"
#include "tests/plugins/layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

using Options = std::vector<std::pair<std::string, std::string>>;

// What differs between the entries; a rule names all of it.
const Options kDefaults = {{"recipe", "\"delayed\""},
                           {"fp8_format", "\"default\""},
                           {"margin", "0"},
                           {"amax_history_len", "2"},
                           {"override_linear_precision", "\"none\""},
                           {"mxfp8_2d_quantization", "false"},
                           {"current_scaling_power_2_scales", "false"},
                           {"block_scaling_fp32_scales", "false"},
                           {"disable_rht", "false"},
                           {"gradient_rounding", "\"default\""},
                           {"rounding_seed", "0"}};

struct Kind {
  const char *name;
  Options options;
};
const Kind kKinds[] = {
    {"delayed", {}},
    {"delayed_e4m3", {{"margin", "2"}, {"fp8_format", "\"E4M3\""}, {"amax_history_len", "3"}}},
    {"current", {{"recipe", "\"current\""}}},
    {"current_pow2",
     {{"recipe", "\"current\""},
      {"current_scaling_power_2_scales", "true"},
      {"override_linear_precision", "\"dgrad\""}}},
    {"block", {{"recipe", "\"block\""}, {"block_scaling_fp32_scales", "true"}}},
    {"mx", {{"recipe", "\"mx\""}, {"mxfp8_2d_quantization", "true"}}},
    {"rowwise", {{"recipe", "\"rowwise\""}}},
    {"current_stochastic",
     {{"recipe", "\"current\""}, {"gradient_rounding", "\"stochastic\""}, {"rounding_seed", "7"}}},
    {"nvfp4", {{"recipe", "\"nvfp4\""}}},
    {"nvfp4_without_rht", {{"recipe", "\"nvfp4\""}, {"disable_rht", "true"}}},
};

std::string lines(const Kind &kind, const std::string &prefix) {
  std::string all;
  for (auto [name, value] : kDefaults) {
    for (const auto &[other, own] : kind.options)
      if (other == name) value = own;
    all += prefix + "fp8.te." + name + " = " + value + "\n";
  }
  return all;
}

constexpr int kLinears = 3, kSteps = 3;

// The bytes of an object's slots, by name; of a pool its own column.
void read_slots(Session &s, uint32_t kind, uint32_t owner, std::vector<std::string> &trace) {
  for (uint32_t i = 0; i < octavo_run_use_count(s.run(), kind, owner); ++i) {
    const octavo_slot_use &use = *octavo_run_use(s.run(), kind, owner, i);
    const octavo_slot &slot = *octavo_run_slot(s.run(), use.slot);
    std::string text = text_of(slot.name) + " role " + std::to_string(slot.role) + " dtype " +
                       std::to_string(slot.dtype) + " rows " + std::to_string(slot.rows) +
                       " flags " + std::to_string(slot.flags) + " granularity " +
                       std::to_string(slot.granularity) + " access ";
    for (const uint8_t access : slot.access) text += static_cast<char>('0' + access);
    const auto *bytes = static_cast<const char *>(s.address(use.slot));
    const auto width = static_cast<size_t>(OCTAVO_DTYPE_BITS(slot.dtype) / 8);
    const auto cols = static_cast<size_t>(slot.cols);
    if ((slot.flags & OCTAVO_SLOT_NATIVE) == 0)
      for (size_t r = 0; r < static_cast<size_t>(slot.rows); ++r)
        text.append(bytes + (r * cols + use.first) * width,
                    (use.count == 0 ? cols : use.count) * width);
    trace.push_back(std::move(text));
  }
}

void append(std::string &text, const Matrix &m) {
  text.append(reinterpret_cast<const char *>(m.v.data()), m.v.size() * sizeof(float));
}

// A fused forward of GELU: the plan, y and what it saves, or that it is not offered.
std::string fused_forward(Session &s, uint32_t linear, Matrix &x) {
  const octavo_fused &fused = *static_cast<const octavo_fused *>(
      octavo_run_interface(s.run(), OCTAVO_STR(OCTAVO_FUSED_ID)));
  octavo_extent extent{};
  if (fused.workspace(octavo_run_session(s.run()), linear, &extent) != OCTAVO_OK) return "none";
  octavo_tensor in = tensor_of(x), shape = in;
  shape.data = nullptr;
  Matrix y(x.rows, s.weight(linear).rows);
  octavo_tensor ty = tensor_of(y);
  const auto rows = static_cast<uint64_t>(x.rows);
  const AlignedBytes saved(octavo_extent_bytes(&s.plan(linear).saved, rows));
  const AlignedBytes workspace(octavo_extent_bytes(&extent, rows));
  octavo_prologue p{};
  p.size = sizeof p;
  p.kind = OCTAVO_KIND_PROLOGUE;
  p.op = OCTAVO_PROLOGUE_GELU;
  p.in = &in;
  octavo_forward_call f{};
  f.size = sizeof f;
  f.kind = OCTAVO_KIND_FORWARD_CALL;
  f.linear = linear;
  f.x = &shape;
  f.y = &ty;
  f.slots = s.slots(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
  f.saved = saved.get();
  f.workspace = workspace.get();
  octavo_fused_forward_call c{};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_FUSED_FORWARD_CALL;
  c.forward = &f;
  c.prologue = &p;
  EXPECT_EQ(fused.linear_forward(octavo_run_session(s.run()), &c), OCTAVO_OK);
  std::string text(reinterpret_cast<const char *>(&extent), sizeof extent);
  append(text, y);
  return text.append(static_cast<const char *>(saved.get()), saved.size());
}

// The weight as the shard of one rank, cast and placed: the packet, and the cache is in the slots;
// or why values are gathered instead.
std::string gathered(Session &s, Request &request, uint32_t parameter) {
  const octavo_shard &shard = *static_cast<const octavo_shard *>(
      octavo_run_interface(s.run(), OCTAVO_STR(OCTAVO_SHARD_ID)));
  const octavo_session *session = octavo_run_session(s.run());
  Matrix &w = s.weight(parameter);
  octavo_shard_plan plan{};
  plan.size = sizeof plan;
  plan.kind = OCTAVO_KIND_SHARD_PLAN;
  plan.parameter = parameter;
  plan.rows = w.rows;
  if (shard.plan(session, &plan) != OCTAVO_OK) return request.host.error();
  const AlignedBytes packet(plan.packet_bytes), cast(plan.cast_workspace),
      place(plan.place_workspace), amax(sizeof(float));
  std::memset(packet.get(), 0, packet.size());
  std::memset(amax.get(), 0, amax.size());
  const octavo_tensor rows = tensor_of(w);
  octavo_shard_call c{};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_SHARD_CALL;
  c.parameter = parameter;
  c.rows = w.rows;
  c.shard = &rows;
  c.amax = static_cast<float *>(amax.get());
  EXPECT_EQ(shard.measure(session, &c), OCTAVO_OK) << request.host.error();
  c.slots = s.slots(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
  c.packet = packet.get();
  c.workspace = cast.get();
  EXPECT_EQ(shard.cast(session, &c), OCTAVO_OK) << request.host.error();
  octavo_gathered_call g{};
  g.size = sizeof g;
  g.kind = OCTAVO_KIND_GATHERED_CALL;
  g.parameter = parameter;
  g.rows = w.rows;
  g.world = 1;
  g.packets = packet.get();
  g.amax = c.amax;
  g.slots = c.slots;
  g.workspace = place.get();
  EXPECT_EQ(shard.place(session, &g), OCTAVO_OK) << request.host.error();
  return std::string(static_cast<const char *>(packet.get()), packet.size());
}

// By linear, everything that a training of a few steps shows. `second`: the options of l1.
std::vector<std::vector<std::string>> trace(const Kind &session, const Kind *second) {
  Environment environment;
  Request request;
  std::string toml = lines(session, "");
  if (second != nullptr) toml += "[[layers.rule]]\nmatch = \"l1\"\n" + lines(*second, "");
  request.set("fp8.backend", "te").text(toml);
  Session s(request);
  for (int l = 0; l < kLinears; ++l)
    s.add_linear(s.add_weight(uneven_matrix(33, 129, static_cast<unsigned>(10 + l), 0.75f)));
  s.seal();
  std::vector<std::vector<std::string>> traces(kLinears);
  for (uint32_t l = 0; l < kLinears; ++l) {
    const octavo_linear_plan &p = s.plan(l);
    traces[l].emplace_back(reinterpret_cast<const char *>(&p), sizeof p);
  }
  for (unsigned step = 0; step < kSteps; ++step) {
    for (uint32_t l = 0; l < kLinears; ++l) {
      EXPECT_EQ(s.quantize_weight(l), OCTAVO_OK) << request.host.error();
      Matrix x = uneven_matrix(17, 129, 3 + l + 7 * step, 30.0f), y;
      Matrix dy = uneven_matrix(17, 33, 5 + l + 11 * step, 0.5f);
      EXPECT_EQ(s.forward(l, x, y), OCTAVO_OK) << request.host.error();
      Gradients g;
      EXPECT_EQ(s.backward(l, dy, x, g), OCTAVO_OK) << request.host.error();
      std::string text(static_cast<const char *>(s.saved().get()), s.saved().size());
      for (const Matrix *m : {&y, &g.dx, &g.dw, &g.db}) append(text, *m);
      traces[l].push_back(std::move(text));
      // Before end_step, which clears what was accumulated.
      read_slots(s, OCTAVO_OWNER_LINEAR, l, traces[l]);
      read_slots(s, OCTAVO_OWNER_PARAMETER, l, traces[l]);
      traces[l].push_back(fused_forward(s, l, x));
      traces[l].push_back(gathered(s, request, l));
      read_slots(s, OCTAVO_OWNER_PARAMETER, l, traces[l]);
      Matrix &w = s.weight(l);
      for (size_t i = 0; i < w.v.size(); ++i) w.v[i] -= 0.01f * g.dw.v[i];
    }
    EXPECT_EQ(s.end_step(), OCTAVO_OK) << request.host.error();
    for (uint32_t l = 0; l < kLinears; ++l) read_slots(s, OCTAVO_OWNER_LINEAR, l, traces[l]);
  }
  return traces;
}

const std::vector<std::vector<std::string>> &alone(const Kind &kind) {
  static std::map<std::string, std::vector<std::vector<std::string>>> kept;
  auto found = kept.find(kind.name);
  if (found == kept.end()) found = kept.emplace(kind.name, trace(kind, nullptr)).first;
  return found->second;
}

class TeRules : public testing::TestWithParam<std::tuple<Kind, Kind>> {};

TEST_P(TeRules, every_linear_has_the_bits_of_a_session_of_its_options) {
  const auto &[session, second] = GetParam();
  const auto mixed = trace(session, &second);
  for (size_t l = 0; l < kLinears; ++l) {
    const auto &expected = alone(l == 1 ? second : session)[l];
    ASSERT_EQ(mixed[l].size(), expected.size()) << l;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(mixed[l][i] == expected[i], true)
          << "linear " << l << ", item " << i << ": " << mixed[l][i].substr(0, 80);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TeRules,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kKinds)),
                         [](const auto &of) {
                           return std::string(std::get<0>(of.param).name) + "_with_" +
                                  std::get<1>(of.param).name;
                         });

class TeRulesSetup : public testing::Test {
 protected:
  void open(const std::string &toml) {
    request.set("fp8.backend", "te").text(toml);
    session.emplace(request);
  }
  // The answer for a linear on a weight.
  Answer add(const std::string &name, uint32_t weight) {
    return add_linear(session->run(), name, weight);
  }

  Environment environment;
  Request request;
  std::optional<Session> session;
};

TEST_F(TeRulesSetup, a_shared_weight_has_the_options_of_its_first_linear) {
  open("[[layers.rule]]\nmatch = [\"a\", \"c\"]\nfp8.te.recipe = \"block\"\n");
  const uint32_t w = session->add_weight(Matrix(16, 32));
  EXPECT_EQ(add("a", w).id, 0u);
  const Answer b = add("b", w);
  EXPECT_EQ(b.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(b.verdict.reason, uint32_t{OCTAVO_REASON_OPTION});
  EXPECT_EQ(text_of(b.verdict.text), "it shares its weight with a linear of other options");
  EXPECT_EQ(text_of(b.verdict.remedy), "give all linears of one weight the same options");
  EXPECT_EQ(add("c", w).id, 1u);
  session->seal();
  EXPECT_NE(session->slot("weight_cache"), nullptr);
}

TEST_F(TeRulesSetup, a_weight_that_was_sealed_keeps_its_options) {
  open("[[layers.rule]]\nmatch = \"b\"\nfp8.te.recipe = \"block\"\n");
  const uint32_t w = session->add_weight(Matrix(16, 32));
  session->seal();
  const Answer b = add("b", w);
  EXPECT_EQ(text_of(b.verdict.text), "the weight was sealed for other options of linears");
  EXPECT_EQ(add("a", w).id, 0u);
}

TEST_F(TeRulesSetup, a_later_seal_may_bring_other_options) {
  open(
      "fp8.te.amax_history_len = 2\n[[layers.rule]]\nmatch = [\"l1\", \"l2\"]\n"
      "fp8.te.amax_history_len = 5\n");
  session->add_linear(session->add_weight(Matrix(16, 32)));
  session->seal();
  EXPECT_EQ(session->end_step(), OCTAVO_OK);
  session->add_linear(session->add_weight(Matrix(16, 32)));
  EXPECT_EQ(session->end_step(), OCTAVO_OK);  // before its options are sealed
  session->seal();
  session->add_linear(session->add_weight(Matrix(16, 32)));
  session->seal();
  std::vector<int64_t> histories;
  int nonfinite = 0;
  for (uint32_t id = 0; id < octavo_run_slot_count(session->run()); ++id) {
    const octavo_slot &slot = *octavo_run_slot(session->run(), id);
    if (text_of(slot.name) == "x/amax_history") histories.push_back(slot.rows);
    if (slot.role == OCTAVO_ROLE_NONFINITE) ++nonfinite;
  }
  EXPECT_EQ(histories, (std::vector<int64_t>{2, 5, 5}));
  EXPECT_EQ(nonfinite, 1);  // one flag of the session, whatever the options
  EXPECT_EQ(session->end_step(), OCTAVO_OK) << request.host.error();
}

TEST_F(TeRulesSetup, a_refused_linear_leaves_no_slots_of_its_options) {
  open("[[layers.rule]]\nmatch = \"b\"\nfp8.te.recipe = \"block\"\n");
  const uint32_t w = session->add_weight(Matrix(16, 32));
  add("a", w);
  EXPECT_EQ(add("b", w).verdict.decision, uint32_t{OCTAVO_DECLINE});
  session->seal();
  EXPECT_EQ(session->slot("x/amax", 1), nullptr);
  EXPECT_NE(session->slot("x/amax", 0), nullptr);
}

struct Refused {
  const char *session;
  const char *rule;
  const char *text;
  const char *remedy;
};

TEST_F(TeRulesSetup, what_cannot_differ_is_declined_by_name) {
  const Refused all[] = {
      {"", "telemetry = true", "a host samples the casts of all linears, or of none",
       "in layers.rule.0: leave the linear's own option out"},
      {"", "reduce_amax = false", "ranks reduce amax for all linears, or for none", "leave"},
      {"", "use_autocast_during_eval = true", "an evaluation is one of the whole model", "leave"},
      {"", "use_mxfp8_block_scaling = true", "give the linear recipe = \"mx\"", "leave"},
      {"", "interval = 2", "no linear has an interval", "leave"},
      {"fp8.te.margin = 2\n", "recipe = \"block\"", "only delayed scaling has a margin",
       "in layers.rule.0: set fp8.te.margin = 0"},
      {"fp8.te.use_mxfp8_block_scaling = true\n", "recipe = \"current\"",
       "use_mxfp8_block_scaling chooses the recipe mx", "in layers.rule.0: set fp8.te.recipe"},
      {"", "profile = \"te2-mx\"", "the profile belongs to another recipe",
       "in layers.rule.0: set fp8.te.profile"},
  };
  for (const Refused &r : all) {
    SCOPED_TRACE(r.rule);
    Request own;
    own.set("fp8.backend", "te")
        .text(std::string(r.session) + "[[layers.rule]]\nmatch = \"a\"\nfp8.te." + r.rule + "\n");
    Session s(own);
    const Answer a = add_linear(s.run(), "a", s.add_weight(Matrix(16, 32)));
    EXPECT_EQ(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(a.verdict.reason, uint32_t{OCTAVO_REASON_OPTION});
    EXPECT_THAT(text_of(a.verdict.text), HasSubstr(r.text));
    EXPECT_THAT(text_of(a.verdict.remedy), HasSubstr(r.remedy));
    EXPECT_EQ(add_linear(s.run(), "b", 0).id, 0u) << "no id was used up";
  }
}

TEST_F(TeRulesSetup, a_remark_about_options_is_the_layers_evidence) {
  open("[[layers.rule]]\nmatch = \"a\"\nfp8.te.recipe = \"mx\"\nfp8.te.fp8_format = \"HYBRID\"\n");
  const Answer a = add("a", session->add_weight(Matrix(16, 32)));
  EXPECT_EQ(text_of(a.verdict.text), "MX block scaling, HYBRID");
  EXPECT_THAT(text_of(a.verdict.evidence), HasSubstr("gradients in E5M2 with MX scales"));
}

}  // namespace
}  // namespace octavo::test

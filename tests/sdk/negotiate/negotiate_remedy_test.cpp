// From a verdict to what a user can paste, for negotiations made by hand.
#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "sdk/src/negotiate/negotiate.h"
#include "tests/support/recording_host.h"

namespace octavo {
namespace {

class NegotiateRemedy : public testing::Test {
 protected:
  NegotiateRemedy() {
    n.config.name = "octavo.toml";
    n.config.has_file = true;
    n.config[key::kBackend] = "fake";
    c.id = "fake";
    c.options = {{"mode", "help", {std::string("x"), "default"}}};
  }
  std::string applied(const Remedy &remedy, const Candidate *candidate) const {
    Verdict v;
    v.decision = OCTAVO_DECLINE;
    v.remedy = remedy;
    return how_to_apply(source_of(n.config), n, candidate, v);
  }
  static bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
  }
  test::RecordingHost host;
  Negotiation n;
  Candidate c;
};

TEST_F(NegotiateRemedy, only_refusals_have_one) {
  Verdict v;
  v.decision = OCTAVO_ACCEPT;
  v.remedy = run_command("true");
  EXPECT_EQ(how_to_apply(source_of(n.config), n, &c, v), "");
}

TEST_F(NegotiateRemedy, commands) {
  EXPECT_EQ(applied(run_command("true", " and see"), nullptr), "run `true`");
  EXPECT_EQ(applied("run `true`", nullptr), "");  // words are not read
}

TEST_F(NegotiateRemedy, keys_of_the_core_and_of_the_candidate) {
  EXPECT_TRUE(has(applied(set_key("device.kind", "\"cpu\""), nullptr), "kind = \"cpu\""));
  EXPECT_TRUE(has(applied(set_key("fp8.fake.mode", "\"y\""), &c), "mode = \"y\""));
  // Keys that neither has: the candidate is left out instead, or nothing is known.
  EXPECT_TRUE(has(applied(set_key("fp8.fake.other", "\"y\""), &c), "bf16"));
  EXPECT_EQ(applied(set_key("fp8.fake.mode", "\"y\""), nullptr), "");
}

TEST_F(NegotiateRemedy, without_the_candidate) {
  n.discovery.manifests = {{"te", "/te.octavo-plugin.toml", kOwnPlace, ""}};
  const auto takes_te = [&] { return has(applied("", &c), "\"te\""); };
  EXPECT_FALSE(takes_te());  // no device
  open_kernels(n, {OCTAVO_DEVICE_CPU, 0}, *octavo_cpu_kernels(), nullptr, host.get());
  EXPECT_TRUE(takes_te());
  n.config[key::kBackend] = "auto";
  n.config[key::kPreference] = {"fake"};
  EXPECT_TRUE(takes_te());
  c.is_fallback = true;
  EXPECT_FALSE(takes_te());
  n.config[key::kFallback] = {"fake", "bf16"};
  EXPECT_TRUE(has(applied("", &c), "[\"bf16\"]"));
  c.is_fallback = false;
  for (const char *id : {"another", "zebra", "te"}) {
    n.candidates.push_back({});
    n.candidates.back().id = id;
    EXPECT_EQ(takes_te(), n.candidates.size() < 3) << id;
  }
  n.candidates.clear();
  n.discovery.manifests[0].origin = "given by the host";
  EXPECT_FALSE(takes_te());
  n.discovery.manifests.clear();
  EXPECT_FALSE(takes_te());
}

// A layer that is not converted because another precision was fallen back to.
TEST_F(NegotiateRemedy, what_the_refused_candidate_needs) {
  EXPECT_EQ(applied("", nullptr), "");  // nothing was chosen
  c.verdicts.push_back({});
  c.verdicts.back().decision = OCTAVO_DECLINE;
  c.verdicts.back().remedy = run_command("true");
  n.candidates = {};
  n.candidates.push_back(std::move(c));
  Candidate other;
  other.id = "bf16";
  n.candidates.push_back(std::move(other));
  n.chosen = 1;
  EXPECT_EQ(applied("", nullptr), "");  // it was no fallback
  n.candidates[1].is_fallback = true;
  EXPECT_EQ(applied("", nullptr), "");  // and no precision
  n.candidates[1].is_precision = true;
  EXPECT_EQ(applied("", nullptr), "run `true`");
  n.candidates[0].verdicts.clear();
  EXPECT_EQ(applied("", nullptr), "");
}

}  // namespace
}  // namespace octavo

// The way of one plugin through the probe: what is asked, what is remembered, and what the
// host learns.
#include "sdk/src/probe/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/probe/probe_wire.h"
#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/recording_host.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class Probe : public testing::Test {
 protected:
  Probe() {
    environment.set("XDG_CACHE_HOME", dir.make_directory("cache", 0700));
    config[key::kProbe] = "auto";
    config[key::kProbeTimeout] = 20000;
    manifest.name = "fake";
    manifest.abi_major = OCTAVO_ABI_MAJOR;
    hardware.cuda_devices = {{0, "NVIDIA L4", 8, 9, 0}};
  }
  void put(const std::string &fault) {
    manifest.library = dir.copy(test::fake_library(fault), fault + ".so");
  }
  ProbeReport probe() const { return probe_plugin(config, hardware, manifest, "a hash"); }
  // The stage at which explain shows the refusal.
  std::string refused_at(const octavo_host *host = nullptr) const {
    std::vector<Verdict> verdicts;
    const std::optional<Stage> refused =
        check_probe(config, hardware, manifest, "a hash", host, verdicts).refused;
    EXPECT_EQ(refused.has_value(), !verdicts.empty());
    return refused ? stage_name(*refused) : "(accepted)";
  }

  test::Environment environment;
  test::TempDir dir;
  Config config;
  Hardware hardware;
  Manifest manifest;
};

TEST_F(Probe, stages_of_refusals) {
  put("good");
  EXPECT_EQ(refused_at(), "(accepted)");
  put("other_id");
  EXPECT_EQ(refused_at(), "plugin");
  put("undefined_symbol");
  EXPECT_EQ(refused_at(), "load");
  put("load_crashes");
  EXPECT_EQ(refused_at(), "probe");
  manifest.library = dir.write("text.so", "no library");
  EXPECT_EQ(refused_at(), "elf");
  manifest.abi_major = OCTAVO_ABI_MAJOR + 1;
  EXPECT_EQ(refused_at(), "manifest");
}

TEST_F(Probe, library_that_is_gone) {
  manifest.library = dir / "none.so";
  const ProbeReport r = probe();
  EXPECT_FALSE(r.accepted);
  EXPECT_EQ(r.how, "refused by its headers");
}

TEST_F(Probe, never_still_reads_the_headers) {
  config[key::kProbe] = "never";
  manifest.library = dir.write("text.so", "no library");
  EXPECT_EQ(probe().how, "refused by its headers");
  put("good");
  EXPECT_EQ(probe().how, "plugins.probe = \"never\"");
}

// Another process, here a child, has left its result in a file.
TEST_F(Probe, results_of_another_process) {
  put("good");
  const pid_t child = fork();
  if (child == 0) _exit(probe().how.starts_with("probed in ") ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(probe().how, "remembered");
  config[key::kProbe] = "always";
  EXPECT_THAT(probe().how, testing::StartsWith("probed in "));
}

TEST_F(Probe, more_time_than_a_late_one_had_in_another_process) {
  put("load_hangs");
  config[key::kProbeTimeout] = 200;
  const pid_t child = fork();
  if (child == 0) _exit(probe().accepted ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(probe().how, "remembered refusal");
  config[key::kProbeTimeout] = 300;
  EXPECT_THAT(probe().how, testing::StartsWith("probed in "));
}

TEST_F(Probe, cache_that_cannot_be_written) {
  put("good");
  const test::FailingCall rename("rename", ENOSPC);
  const ProbeReport r = probe();
  EXPECT_TRUE(r.accepted);
  EXPECT_THAT(r.notes, testing::Contains("the probe's result could not be written to the cache"));
}

TEST_F(Probe, helper_that_cannot_be_started_is_not_remembered) {
  put("good");
  {
    const test::FailingCall pipe("pipe2", EMFILE);
    EXPECT_THROW(probe(), ResourceUnavailable);
  }
  EXPECT_TRUE(probe().accepted);
}

// A helper that ends before it opens the plugin says nothing about the plugin.
TEST_F(Probe, helper_that_could_not_try_is_not_remembered) {
  put("good");
  const std::string helper = dir / "helper";
  const auto words = [&](const std::string &script) {
    dir.write("helper", "#!/bin/sh\n" + script);
    chmod(helper.c_str(), 0700);
    environment.set("OCTAVO_PROBE_HELPER", helper);
    try {
      probe();
    } catch (const ResourceUnavailable &s) {
      return s.verdict().text;
    }
    return std::string("(tried)");
  };
  EXPECT_THAT(words("exit 75"), HasSubstr("had no memory, or could not write its answer"));
  EXPECT_THAT(words("echo no room >&2; exit 4"), HasSubstr("its last lines: no room"));
  Verdict full;
  full.level = OCTAVO_LEVEL_PLUGIN;
  full.decision = OCTAVO_DECLINE;
  full.reason = OCTAVO_REASON_RESOURCE;
  full.text = "no descriptor is left";
  dir.write("answer", hello_record() + verdict_record(full) + end_record());
  EXPECT_THAT(words("cat '" + (dir / "answer") + "' >&3"),
              HasSubstr("no descriptor is left, in the process that tries the plugin first"));
  environment.unset("OCTAVO_PROBE_HELPER");
  EXPECT_TRUE(probe().accepted);
}

TEST_F(Probe, warnings_and_notes_reach_the_host) {
  put("load_bends");
  const test::RecordingHost host;
  EXPECT_EQ(refused_at(host.get()), "(accepted)");
  EXPECT_THAT(host.texts(OCTAVO_SEVERITY_WARNING),
              testing::Contains(HasSubstr("the plugin changes the current directory to /")));
  environment.unset("XDG_CACHE_HOME");
  put("good");
  EXPECT_EQ(refused_at(host.get()), "(accepted)");
  EXPECT_THAT(host.texts(OCTAVO_SEVERITY_DEBUG),
              testing::Contains(HasSubstr("nothing is remembered between processes")));
}

// Everything of a search path, each with where it ended.
TEST_F(Probe, all_plugins_of_a_search_path) {
  Discovery discovery;
  const auto add = [&](const std::string &name, const std::string &text) {
    const std::string path = dir.write(name + "/fake.octavo-plugin.toml", text);
    discovery.manifests.push_back({name, path, "here", ""});
  };
  const std::string good = test::fake_manifest();
  dir.copy(test::fake_library("good"), "good/fake.so");
  add("good", good);
  add("none", "rubbish");
  dir.copy(test::fake_library("good"), "flux/fake.so");
  add("flux", good + "[requires]\nos = \"plan9\"\n");
  dir.copy(test::fake_library("good"), "open/fake.so", 0777);
  add("open", good);
  discovery.manifests.push_back({"good", dir / "other", "there", discovery.manifests[0].path});
  TrustPolicy trust;
  trust.mode = "owner";
  const std::vector<ProbedPlugin> all = probe_all(config, trust, discovery, hardware);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_TRUE(all[0].report.accepted || all[0].report.how == "refused by plugins.trust");
  EXPECT_EQ(all[1].report.how, "refused by its manifest");
  EXPECT_EQ(all[2].report.how, "refused by its manifest");
  EXPECT_EQ(all[3].report.how, "refused by plugins.trust");
  EXPECT_EQ(all[3].report.stage, ProbeStage::kPolicy);
}

}  // namespace
}  // namespace octavo

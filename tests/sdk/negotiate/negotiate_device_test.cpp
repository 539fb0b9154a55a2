// The device of a negotiation, with kernels and hardware that this machine need not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/cpu/table.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/negotiate/negotiate.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr octavo_device kCpu = {OCTAVO_DEVICE_CPU, 0};

class NegotiateDevice : public testing::Test {
 protected:
  NegotiateDevice() { environment.unset("OCTAVO_FORCE_KERNELS"); }
  void choose(uint32_t type = OCTAVO_DEVICE_AUTO) {
    octavo_open_desc desc = test::Request().desc();
    desc.device.type = type;
    choose_device(n, desc, host.get());
  }
  test::Environment environment;
  test::RecordingHost host;
  Negotiation n;
};

// A plugin's manifest that states kernels, whose library is no library.
std::string manifest_of(const test::TempDir &dir, const std::string &id,
                        const std::string &kernels) {
  std::string text = "manifest_version = 1\n[plugin]\nname = \"" + id +
                     "\"\nversion = \"1\"\n[abi]\nmajor = 1\nminor = 0\n[library]\n";
  text += std::string(test::kTuple) + " = \"none.so\"\n" + kernels;
  dir.write("none.so", "no library");
  return dir.write(id + ".octavo-plugin.toml", text);
}

TEST_F(NegotiateDevice, options_of_a_rule_without_a_backend_are_none) {
  n.config.layer_rules.resize(1);
  EXPECT_TRUE(n.options_of(n.config.layer_rules[0]).empty());
  n.candidates.resize(1);
  n.chosen = 0;
  EXPECT_TRUE(n.options_of(n.config.layer_rules[0]).empty());
}

// device.kernels alone says which device: that of the plugin which it names.
TEST_F(NegotiateDevice, kernels_that_are_named_and_not_installed) {
  n.config[key::kKernels] = "acme";
  choose();
  EXPECT_EQ(n.device_text, "the device of acme");
  EXPECT_THAT(n.device_verdicts.at(0).text, HasSubstr("acme"));
}

// A host's type has the configuration's kind where installed kernels serve both.
TEST_F(NegotiateDevice, kind_of_a_type_that_several_may_share) {
  const test::TempDir dir;
  n.discovery.manifests = {
      {"a", manifest_of(dir, "a", "[kernels]\nkind = \"apu\"\ndevice_type = 16\n"), "", ""}};
  n.config[key::kProbe] = "never";
  n.trust.mode = "dev";
  for (const auto &[kind, type] : {std::pair("apu", 16u), {"apu", 17u}, {"npu", 16u}}) {
    n.config[key::kDevice] = kind;
    n.device_verdicts.clear();
    choose(type);
    const bool fits = type == 16;
    EXPECT_THAT(n.device_verdicts.at(0).text, StartsWith(fits ? "kernels a: " : "no kernels for "));
  }
}

TEST_F(NegotiateDevice, auto_is_the_cpu) {
  n.config[key::kDevice] = "auto";
  choose();
  EXPECT_EQ(n.device_text, "cpu (auto: neither the host nor device.kind requests another)");
  choose(OCTAVO_DEVICE_CPU);
  EXPECT_EQ(n.device_text, "cpu");
  EXPECT_NE(n.device, nullptr);
  EXPECT_FALSE(n.kernels);
}

// Of every device whose kernels are not installed, whether the configuration or the host asks.
TEST_F(NegotiateDevice, without_kernels) {
  const auto only_verdict = [&](uint32_t type) {
    n.device_verdicts.clear();
    choose(type);
    EXPECT_EQ(n.device_verdicts.size(), 1u);
    return n.device_verdicts.at(0);
  };
  n.config[key::kDevice] = "npu";
  Verdict v = only_verdict(OCTAVO_DEVICE_AUTO);
  EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_KERNEL});
  EXPECT_EQ(v.text, "no kernels for npu are installed");
  EXPECT_THAT(v.evidence, HasSubstr("installed kernels: nothing; looked in "));
  EXPECT_THAT(v.remedy.text, StartsWith("set device.kind = \"cpu\" or \"auto\", or install a "));
  v = only_verdict(14);
  EXPECT_EQ(v.text, "no kernels for device type 14 are installed");
  EXPECT_THAT(v.remedy.text, StartsWith("open the run with device type OCTAVO_DEVICE_AUTO or "
                                        "OCTAVO_DEVICE_CPU, or install a plugin"));
  n.config[key::kDevice] = "cuda";
  v = only_verdict(OCTAVO_DEVICE_AUTO);
  EXPECT_EQ(v.text, "no kernels for cuda are installed");
  EXPECT_THAT(v.remedy.text, HasSubstr("octavo_cuda-*.whl"));
  n.config[key::kDevice] = "gpu";
  EXPECT_EQ(only_verdict(OCTAVO_DEVICE_AUTO).remedy.text, "did you mean \"cuda\"?");
}

// What the machine lacks for kernels comes before their installation.
TEST_F(NegotiateDevice, kernels_are_installed_after_what_they_need) {
  Hardware hw;
  hw.cuda_driver = hw.cuda_library = true;
  hw.cuda_version = 13000;
  hw.cuda_text = "driver for CUDA 13.0";
  hw.cuda_devices = {{0, "H100", 9, 0, 0}};
  EXPECT_THAT(install_kernels(hw, "cuda"), StartsWith("install the kernels from the file"));
  hw.cuda_version = 12040;
  EXPECT_THAT(
      install_kernels(hw, "cuda"),
      StartsWith("install a newer NVIDIA driver (kernels-cuda requires a driver for CUDA 13.0 "
                 "or later, found a driver for CUDA 12.4); then install the kernels"));
  hw.cuda_version = 13000;
  hw.cuda_devices = {{0, "A100", 8, 0, 0}};
  EXPECT_EQ(install_kernels(hw, "cuda"),
            "run on a machine with such a GPU (kernels-cuda requires an NVIDIA GPU of sm_89 "
            "(capability 8.9) or later, found A100 of capability 8.0)");
}

// Type 12 is every vendor's, so the kind and the type of kernels must fit.
TEST_F(NegotiateDevice, extension_devices_have_kinds) {
  const test::TempDir dir;
  n.discovery.manifests = {
      {"a", manifest_of(dir, "a", "[kernels]\nkind = \"npu\"\ndevice_type = 12\n"), "", ""},
      {"b", manifest_of(dir, "b", "[kernels]\nkind = \"apu\"\ndevice_type = 16\n"), "", ""}};
  n.config[key::kProbe] = "never";
  n.trust.mode = "dev";
  for (const char *fits : {"auto", "npu"}) {
    n.config[key::kDevice] = fits;
    n.device_verdicts.clear();
    choose(12);
    EXPECT_THAT(n.device_verdicts.at(0).text, StartsWith("kernels a: "));
  }
  for (const std::string other : {"xyz", "apu"}) {
    n.config[key::kDevice] = other;
    n.device_verdicts.clear();
    choose(12);
    EXPECT_EQ(n.device_verdicts.at(0).text,
              "no kernels for " + other + " (device type 12) are installed");
    EXPECT_THAT(n.device_verdicts[0].evidence,
                HasSubstr("a for npu (device type 12) and b for apu (device type 16)"));
  }
}

// The manifest says which device kernels serve: a kind, its type, and nothing that was misspelt.
TEST_F(NegotiateDevice, kernels_that_do_not_fit) {
  const test::TempDir dir;
  n.discovery.manifests = {
      {"a", manifest_of(dir, "a", "[kernels]\nkind = \"npu\"\ndevice_type = 12\n"), "", ""}};
  n.config[key::kDevice] = "nqu";
  choose();
  EXPECT_EQ(n.device_verdicts.at(0).evidence.substr(0, 44),
            "installed kernels: a for npu (device type 12");
  EXPECT_EQ(n.device_verdicts[0].remedy.text, "did you mean \"npu\"?");
  n.device_verdicts.clear();
  n.config[key::kDevice] = "npu";
  n.config[key::kKernels] = "other";
  choose();
  EXPECT_EQ(n.device_verdicts.at(0).text,
            "device.kernels: no plugin \"other\" has kernels for npu");
  EXPECT_EQ(n.device_verdicts[0].remedy.text,
            "set device.kernels = \"auto\", or install that plugin");
  n.device_verdicts.clear();
  n.config[key::kKernels] = "a";
  choose(OCTAVO_DEVICE_CPU);
  EXPECT_EQ(n.device_verdicts.at(0).text, "device.kernels: no plugin \"a\" has kernels for cpu");
}

// Each is asked, in order of the search; all answers are kept, and what refuses the plugin, not the
// device, keeps its remedy.
TEST_F(NegotiateDevice, kernels_that_cannot_be_loaded) {
  const test::TempDir dir;
  const std::string serves = "[kernels]\nkind = \"npu\"\ndevice_type = 12\n";
  const std::string broken = dir.write("c.octavo-plugin.toml", "rubbish");
  n.config[key::kProbe] = "never";
  n.trust.mode = "dev";
  n.discovery.manifests = {{"b", manifest_of(dir, "b", serves), "", ""},
                           {"a", manifest_of(dir, "a", serves), "", ""},
                           {"c", broken, "", ""}};
  n.config[key::kDevice] = "npu";
  choose();
  ASSERT_EQ(n.device_verdicts.size(), 3u);
  EXPECT_THAT(n.device_verdicts[0].text, StartsWith("kernels b: "));
  EXPECT_THAT(n.device_verdicts[1].text, StartsWith("kernels a: "));
  EXPECT_THAT(n.device_verdicts[2].text, HasSubstr(broken));
  for (const Verdict &v : n.device_verdicts)
    EXPECT_THAT(v.remedy.text, Not(HasSubstr("device.kind")));
  EXPECT_EQ(n.device, nullptr);
}

// Kernels that fail in one of two ways, and how often their device was closed.
int closed = 0;
octavo_status open_status = OCTAVO_OK;
octavo_status fails_to_open(octavo_device, const octavo_host *, void **) {
  return open_status;
}
octavo_status fails_to_describe(void *, octavo_kernels_caps *) {
  return OCTAVO_FAILED_DEVICE;
}
void counts_closing(void *ctx) {
  ++closed;
  octavo_cpu_kernels()->close_device(ctx);
}

TEST_F(NegotiateDevice, kernels_that_do_not_open) {
  closed = 0;
  octavo_kernels kernels = *octavo_cpu_kernels();
  kernels.close_device = counts_closing;
  kernels.describe = fails_to_describe;
  open_kernels(n, kCpu, kernels, nullptr, host.get());
  EXPECT_EQ(closed, 1);
  kernels.open_device = fails_to_open;
  open_status = OCTAVO_NO_RESOURCE;  // which says nothing about the device
  EXPECT_THROW(open_kernels(n, kCpu, kernels, nullptr, host.get()), ResourceUnavailable);
  open_status = OCTAVO_INTERNAL;
  open_kernels(n, kCpu, kernels, nullptr, host.get());
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(n.device, nullptr);
  for (const char *forced : {"", "cpu.baseline"}) {
    environment.set("OCTAVO_FORCE_KERNELS", forced);
    open_kernels(n, kCpu, kernels, nullptr, host.get());
    const Verdict &v = n.device_verdicts.back();
    EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_KERNEL});
    EXPECT_THAT(v.text, HasSubstr("could not be opened: status 7"));
    EXPECT_EQ(v.evidence.empty(), *forced == '\0');
    EXPECT_EQ(v.remedy.empty(), *forced == '\0');
  }
}

TEST_F(NegotiateDevice, kernels_that_do_not_answer) {
  octavo_kernels kernels = *octavo_cpu_kernels();
  kernels.probe_device = [](octavo_device, const octavo_verdict_sink *) {
    return octavo_status{OCTAVO_INTERNAL};
  };
  open_kernels(n, kCpu, kernels, nullptr, host.get());
  kernels.probe_device = [](octavo_device, const octavo_verdict_sink *) {
    return octavo_status{OCTAVO_OK};
  };
  open_kernels(n, kCpu, kernels, nullptr, host.get());
  ASSERT_EQ(n.device_verdicts.size(), 2u);
  EXPECT_EQ(n.device_verdicts[0].reason, uint32_t{OCTAVO_REASON_KERNEL});
  EXPECT_EQ(n.device_verdicts[0].text, "probe_device failed with status 7");
  EXPECT_EQ(n.device_verdicts[1].reason, uint32_t{OCTAVO_REASON_ABI});
  EXPECT_EQ(n.device_verdicts[1].text, "probe_device gave no verdict; expected one or more");
  for (const Verdict &v : n.device_verdicts)
    EXPECT_EQ(v.remedy.text, "set device.kind = \"cpu\" or \"auto\"");
  EXPECT_EQ(n.device, nullptr);
}

TEST_F(NegotiateDevice, questions_to_an_open_device) {
  static octavo_ability answer;
  static octavo_status status;
  static bool is_emulated;
  octavo_kernels kernels = *octavo_cpu_kernels();
  kernels.ability = [](void *, octavo_ability *question) {
    *question = answer;
    return status;
  };
  kernels.describe = [](void *ctx, octavo_kernels_caps *caps) {
    const octavo_status described = octavo_cpu_kernels()->describe(ctx, caps);
    caps->flags &= ~uint32_t{OCTAVO_CAPS_EMULATED};
    if (is_emulated) caps->flags |= OCTAVO_CAPS_EMULATED;
    return described;
  };
  for (const bool emulated : {false, true})
    for (const uint32_t decision : {OCTAVO_ACCEPT, OCTAVO_ACCEPT_EMULATED, OCTAVO_DECLINE})
      for (const octavo_status said : {OCTAVO_OK, OCTAVO_INTERNAL}) {
        is_emulated = emulated;
        answer.decision = decision;
        status = said;
        open_kernels(n, kCpu, kernels, nullptr, host.get());
        ASSERT_NE(n.device, nullptr);
        EXPECT_EQ(n.device->serves({}),
                  said == OCTAVO_OK && (decision == OCTAVO_ACCEPT ||
                                        (decision == OCTAVO_ACCEPT_EMULATED && emulated)));
      }
}

// A backend that would emulate FP8 on a device that has the units.
class AskBackend : public NegotiateDevice {
 protected:
  AskBackend() {
    open_kernels(n, kCpu, *octavo_cpu_kernels(), nullptr, host.get());
    c.id = "fake";
    octavo_backend table{};
    table.size = sizeof(table);
    table.kind = OCTAVO_KIND_BACKEND;
    table.check_session = [](const octavo_session_desc *, const octavo_verdict_sink *sink) {
      octavo_verdict v{};
      v.size = sizeof(v);
      v.level = OCTAVO_LEVEL_SESSION;
      v.decision = emulates ? OCTAVO_ACCEPT_EMULATED : OCTAVO_ACCEPT;
      v.text = OCTAVO_STR("as you like");
      sink->verdict(sink->ctx, &v);
      return octavo_status{OCTAVO_OK};
    };
    plugin.backend = complete(table);
    c.plugin = &plugin;
  }
  static inline bool emulates = false;
  LoadedPlugin plugin;
  Candidate c;
};

TEST_F(AskBackend, units_are_required_and_would_be_emulated) {
  for (const bool required : {false, true})
    for (const bool emulated : {false, true}) {
      n.config[key::kNative] = required;
      emulates = emulated;
      c.verdicts.clear();
      ask_backend(n, c, host.get());
      EXPECT_EQ(declined(c.verdicts), required && emulated);
    }
  EXPECT_EQ(c.verdicts.back().text,
            "fp8.require.native: FP8 units are required, backend fake would emulate them");
  EXPECT_EQ(c.verdicts.back().evidence, "as you like");
  EXPECT_EQ(c.verdicts.back().remedy.text,
            "set fp8.require.native = false, or run where the requirement is met");
}

TEST_F(AskBackend, that_does_not_answer) {
  plugin.backend.check_session = [](const octavo_session_desc *, const octavo_verdict_sink *) {
    return octavo_status{OCTAVO_INTERNAL};
  };
  ask_backend(n, c, host.get());
  plugin.backend.check_session = [](const octavo_session_desc *, const octavo_verdict_sink *) {
    return octavo_status{OCTAVO_OK};
  };
  ask_backend(n, c, host.get());
  ASSERT_EQ(c.verdicts.size(), 2u);
  EXPECT_EQ(c.verdicts[0].reason, uint32_t{OCTAVO_REASON_KERNEL});
  EXPECT_EQ(c.verdicts[0].text, "check_session failed with status 7");
  EXPECT_EQ(c.verdicts[0].remedy.text, "see the diagnostics of the plugin");
  EXPECT_EQ(c.verdicts[1].reason, uint32_t{OCTAVO_REASON_ABI});
  EXPECT_EQ(c.verdicts[1].text, "check_session gave no verdict; expected one or more");
  EXPECT_EQ(c.verdicts[1].remedy.text, "install a corrected build of the plugin");
  plugin.backend.check_session = [](const octavo_session_desc *,
                                    const octavo_verdict_sink *) -> octavo_status {
    throw std::runtime_error("out of luck");
  };
  ask_backend(n, c, host.get());
  EXPECT_THAT(c.verdicts.back().text,
              testing::MatchesRegex("check_session failed with status 7.*out of luck.*"));
}

}  // namespace
}  // namespace octavo

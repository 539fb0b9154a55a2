// The gates of [requires], on this machine and on imagined ones.
#include "sdk/src/plugin/manifest_requires.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "sdk/src/base/resource_unavailable.h"
#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class ManifestRequires : public testing::Test {
 protected:
  ManifestRequires() {
    manifest.name = "acme";
    manifest.library = dir.write("acme.so", "");
    gpu.cuda_driver = true;
    gpu.cuda_version = 12040;
    gpu.cuda_text = "driver for CUDA 12.4";
    gpu.cuda_devices = {{0, "NVIDIA L4", 8, 9, 0}};
  }
  bool check(const Hardware &hardware = {}) {
    verdicts.clear();
    return check_requirements(manifest, hardware, verdicts);
  }
  void expect_refused(const Hardware &hardware, uint32_t reason, const std::string &text,
                      const std::string &evidence) {
    EXPECT_FALSE(check(hardware));
    ASSERT_EQ(verdicts.size(), 1u) << text;
    EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_MANIFEST});
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].reason, reason);
    EXPECT_EQ(verdicts[0].text, "acme requires " + text);
    EXPECT_EQ(verdicts[0].evidence, evidence);
    EXPECT_NE(verdicts[0].remedy.text, "");
  }

  test::TempDir dir;
  Manifest manifest;
  Hardware gpu;
  std::vector<Verdict> verdicts;
};

TEST_F(ManifestRequires, nothing) {
  EXPECT_TRUE(check());
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(ManifestRequires, operating_system_and_processor) {
  const std::string tuple = platform_tuple();
  const std::string arch = tuple.substr(6);
  manifest.requires_.os = "linux";
  manifest.requires_.arch = arch;
  EXPECT_TRUE(check());
  manifest.requires_.os = "plan9";
  expect_refused({}, OCTAVO_REASON_REQUIRE, "the operating system plan9", "linux");
  manifest.requires_.os = "";
  manifest.requires_.arch = "s390x";
  expect_refused({}, OCTAVO_REASON_REQUIRE, "an s390x processor", arch);
}

TEST_F(ManifestRequires, processor_features) {
#if defined(__x86_64__)
  const char *const all[] = {"sse4.2",   "avx",        "avx2",       "fma",       "bmi",
                             "bmi2",     "avx512f",    "avx512bw",   "avx512cd",  "avx512dq",
                             "avx512vl", "avx512vbmi", "avx512vnni", "avx512bf16"};
#else
  const char *const all[] = {"asimd", "sve", "sve2", "bf16", "i8mm"};
#endif
  for (const char *feature : all) {
    const int has = cpu_has(feature);
    ASSERT_GE(has, 0) << feature;
    manifest.requires_.cpu = {feature};
    if (has == 1)
      EXPECT_TRUE(check()) << feature;
    else
      expect_refused({}, OCTAVO_REASON_REQUIRE, std::string("the processor features ") + feature,
                     std::string("missing: ") + feature);
  }
  EXPECT_LT(cpu_has("warp-drive"), 0);
  manifest.requires_.cpu = {"warp-drive"};
  EXPECT_FALSE(check());
}

TEST_F(ManifestRequires, c_library) {
  manifest.requires_.libc = "glibc-2.17";
  EXPECT_TRUE(check());
  manifest.requires_.libc = "glibc-99.1";
  EXPECT_FALSE(check());
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_REQUIRE});
  EXPECT_EQ(verdicts[0].text, "acme requires glibc-99.1 or later");
  EXPECT_THAT(verdicts[0].evidence, testing::MatchesRegex("glibc-[0-9]+\\.[0-9]+"));
}

TEST_F(ManifestRequires, libraries) {
  manifest.requires_.libraries = {"libc.so.6"};
  EXPECT_TRUE(check()) << verdicts[0].text;
  EXPECT_THAT(find_library("libc.so.6", ""), HasSubstr("/libc.so.6"));
  manifest.requires_.libraries = {"libc.so.6", "libnowhere.so.7"};
  expect_refused({}, OCTAVO_REASON_REQUIRE, "the library libnowhere.so.7",
                 "not in the loader's directories, LD_LIBRARY_PATH or " + dir.path());
  dir.write("libnowhere.so.7", "");
  EXPECT_TRUE(check());
}

TEST_F(ManifestRequires, driver) {
  manifest.requires_.gpu_vendor = "nvidia";
  EXPECT_TRUE(check(gpu));
  Hardware none;
  none.cuda_text = "no driver: libcuda.so.1 was not found";
  expect_refused(none, OCTAVO_REASON_DRIVER, "an NVIDIA driver", none.cuda_text);
  manifest.requires_.min_driver = "12.4";
  EXPECT_TRUE(check(gpu));
  manifest.requires_.min_driver = "12.10";
  expect_refused(gpu, OCTAVO_REASON_DRIVER, "a driver for CUDA 12.10 or later",
                 "a driver for CUDA 12.4");
}

TEST_F(ManifestRequires, gpu_generation) {
  manifest.requires_.gpu_vendor = "nvidia";
  manifest.requires_.min_arch = "sm_89";
  EXPECT_TRUE(check(gpu));
  manifest.requires_.min_arch = "sm_100";
  expect_refused(gpu, OCTAVO_REASON_DEVICE, "an NVIDIA GPU of sm_100 (capability 10.0) or later",
                 "NVIDIA L4 of capability 8.9");
  gpu.cuda_devices.push_back({1, "B200", 10, 0, 0});
  EXPECT_TRUE(check(gpu));
  gpu.cuda_devices.clear();
  manifest.requires_.min_arch = "";
  expect_refused(gpu, OCTAVO_REASON_DEVICE, "an NVIDIA GPU",
                 "no CUDA device, and a driver for CUDA 12.4");
}

TEST_F(ManifestRequires, gpu_with_free_memory_that_is_offered) {
  manifest.requires_.gpu_vendor = "nvidia";
  manifest.requires_.min_arch = "sm_89";
  manifest.requires_.min_free_mib = 512;
  gpu.cuda_devices[0].memory_bytes = uint64_t{8} << 30;
  gpu.cuda_devices[0].free_bytes = uint64_t{511} << 20;
  expect_refused(gpu, OCTAVO_REASON_DEVICE,
                 "an NVIDIA GPU of sm_89 (capability 8.9) or later with 512 MiB of free memory",
                 "NVIDIA L4 of capability 8.9, 511 of 8192 MiB free");
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("nvidia-smi"));
  gpu.cuda_devices.push_back({3, "B200", 10, 0, uint64_t{8} << 30, uint64_t{512} << 20});
  verdicts.clear();
  int32_t first = -1;
  EXPECT_TRUE(check_requirements(manifest, gpu, verdicts, &first));
  EXPECT_EQ(first, 3) << "the first that meets all of them";
  gpu.cuda_devices.clear();
  gpu.mig_devices = 2;
  expect_refused(gpu, OCTAVO_REASON_DEVICE, "an NVIDIA GPU that is offered to this process",
                 "2 GPU(s) in MIG mode, and no instance of one");
}

TEST_F(ManifestRequires, gpu_too_old_or_full) {
  manifest.requires_.gpu_vendor = "nvidia";
  manifest.requires_.min_free_mib = 1;
  expect_refused(gpu, OCTAVO_REASON_DEVICE, "an NVIDIA GPU with 1 MiB of free memory",
                 "NVIDIA L4 of capability 8.9, 0 of 0 MiB free");
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("end what fills it"));
  gpu.cuda_devices.push_back(gpu.cuda_devices[0]);
  EXPECT_FALSE(check(gpu));
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("end what fills it"));
  manifest.requires_.min_free_mib = 0;
  manifest.requires_.min_arch = "sm_100";
  EXPECT_FALSE(check(gpu));
  EXPECT_EQ(verdicts[0].remedy.text, "run on a machine with such a GPU");
}

TEST_F(ManifestRequires, remedies_without_a_gpu) {
  manifest.requires_.gpu_vendor = "nvidia";
  gpu.cuda_devices.clear();
  test::Environment environment;
  environment.unset("CUDA_VISIBLE_DEVICES");
  EXPECT_FALSE(check(gpu));
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("run on a machine with one, or in a container"));
  environment.set("CUDA_VISIBLE_DEVICES", "7");
  expect_refused(gpu, OCTAVO_REASON_DEVICE, "an NVIDIA GPU",
                 "no CUDA device, and a driver for CUDA 12.4; CUDA_VISIBLE_DEVICES = \"7\"");
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("unset CUDA_VISIBLE_DEVICES"));
  gpu.cuda_driver = false;
  EXPECT_FALSE(check(gpu));
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("install the NVIDIA driver"));
  gpu.cuda_library = true;  // of another version than the module
  EXPECT_FALSE(check(gpu));
  EXPECT_THAT(verdicts[0].remedy.text, HasSubstr("restart the machine"));
}

TEST_F(ManifestRequires, every_unmet_requirement_is_named) {
  manifest.requires_.os = "plan9";
  manifest.requires_.libc = "glibc-99.0";
  manifest.requires_.libraries = {"libnowhere.so.7"};
  manifest.requires_.gpu_vendor = "nvidia";
  EXPECT_FALSE(check());
  EXPECT_EQ(verdicts.size(), 4u);
}

TEST_F(ManifestRequires, forms_of_numbers) {
  const auto refuses = [](auto change) {
    octavo::ManifestRequires r;
    change(r);
    return !malformed_requirement(r).empty();
  };
  EXPECT_FALSE(refuses([](auto &) {}));
  EXPECT_FALSE(refuses([](auto &r) { r.libc = "glibc-2.36"; }));
  for (const char *text : {"glibc-", "glibc-2", "glibc-2.", "glibc-2.x", "glibc-.4", "glibc-2.4x",
                           "glibc--1.2", "glibc-1.-2", "glibc-x.1", "glibc-2x1", "musl-1.2",
                           "glibc-99999999999.1", "glibc-1.99999999999"})
    EXPECT_TRUE(refuses([&](auto &r) { r.libc = text; })) << text;
  for (const char *text : {"sm_", "sm_x", "sm_9", "sm_89x", "89", "sm_99999999999"})
    EXPECT_TRUE(refuses([&](auto &r) {
      r.gpu_vendor = "nvidia";
      r.min_arch = text;
    })) << text;
  for (const char *text : {"12", "12.x"})
    EXPECT_TRUE(refuses([&](auto &r) {
      r.gpu_vendor = "nvidia";
      r.min_driver = text;
    })) << text;
  EXPECT_TRUE(refuses([](auto &r) { r.min_arch = "sm_89"; }));
  EXPECT_TRUE(refuses([](auto &r) { r.min_driver = "12.4"; }));
  EXPECT_TRUE(refuses([](auto &r) { r.min_free_mib = 1; }));
  for (const int64_t mib : {int64_t{-1}, (int64_t{1} << 40) + 1})
    EXPECT_TRUE(refuses([&](auto &r) {
      r.gpu_vendor = "nvidia";
      r.min_free_mib = mib;
    })) << mib;
  EXPECT_TRUE(refuses([](auto &r) { r.gpu_vendor = "other"; }));
  EXPECT_TRUE(refuses([](auto &r) { r.cpu = {"flux"}; }));
#if defined(__x86_64__)
  EXPECT_FALSE(refuses([](auto &r) { r.cpu = {"avx2"}; }));
#else
  EXPECT_FALSE(refuses([](auto &r) { r.cpu = {"asimd"}; }));
#endif
  EXPECT_FALSE(refuses([](auto &r) { r.gpu_vendor = "nvidia"; }));
  EXPECT_TRUE(refuses([](auto &r) { r.libraries = {""}; }));
  EXPECT_TRUE(refuses([](auto &r) { r.libraries = {"a/b"}; }));
  EXPECT_FALSE(refuses([](auto &r) {
    r.gpu_vendor = "nvidia";
    r.min_arch = "sm_100";
    r.min_driver = "12.4";
  }));
}

TEST_F(ManifestRequires, system_that_does_not_say_its_c_library) {
  manifest.requires_.libc = "glibc-2.1";
  EXPECT_TRUE(check());
  const test::FailingCall confstr("confstr", 0, 1, 1, 0);
  expect_refused({}, OCTAVO_REASON_REQUIRE, "glibc-2.1 or later", "");
}

// Only read_manifest refuses the form; here it asks for nothing.
TEST_F(ManifestRequires, c_library_of_another_form) {
  manifest.requires_.libc = "musl-1.2";
  EXPECT_TRUE(check());
}

TEST_F(ManifestRequires, loader_that_does_not_say_where_it_looks) {
  const std::string file = dir.write("libacme.so.1", "");
  for (const int first : {1, 3}) {
    const test::FailingCall dlinfo("dlinfo", EINVAL, first);
    EXPECT_EQ(find_library("libacme.so.1", dir.path()), file);
    EXPECT_EQ(find_library("libacme.so.2", dir.path()), "");
  }
}

TEST_F(ManifestRequires, directories_of_the_configuration) {
  dir.write("more/a.conf", "/a # first\n");
  dir.write("more/b.conf", "/b\n");
  const std::string file = dir.write(
      "ld.so.conf", "# comment\n\n  /opt/x\nhwcap 1 nosegneg\nrelative\ninclude " + (dir / "more") +
                        "/*.conf " + (dir / "none") + "/*.conf\ninclude octavo-none/*.conf\n/last");
  EXPECT_EQ(configured_directories(file),
            (std::vector<std::string>{"/opt/x", "/a", "/b", "/last"}));
  EXPECT_TRUE(configured_directories(dir / "none").empty());
  // A file that includes itself ends.
  dir.write("loop.conf", "/loop\ninclude " + (dir / "loop.conf") + "\n");
  EXPECT_EQ(configured_directories(dir / "loop.conf"), std::vector<std::string>(4, "/loop"));
}

// No descriptor is left for the folder, which says nothing about what it holds.
TEST_F(ManifestRequires, configuration_whose_folder_cannot_be_listed) {
  dir.write("more/a.conf", "/a\n");
  const std::string file = dir.write("ld.so.conf", "include " + (dir / "more") + "/*.conf\n");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = dup(0);
  ASSERT_GE(free, 0);
  close(free);
  const rlimit one = {static_cast<rlim_t>(free) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  EXPECT_THROW(configured_directories(file), ResourceUnavailable);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(configured_directories(file), std::vector<std::string>{"/a"});
}

TEST_F(ManifestRequires, directory_is_no_library) {
  dir.make_directory("libdir.so.1");
  EXPECT_EQ(find_library("libdir.so.1", dir.path()), "");
}

}  // namespace
}  // namespace octavo

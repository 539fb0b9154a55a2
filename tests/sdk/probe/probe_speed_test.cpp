// What a probe costs: of twenty plugins, in a fresh process and when all is remembered.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "sdk/src/plugin/loader.h"
#include "sdk/src/probe/probe.h"
#include "sdk/src/probe/probe_cache.h"
#include "tests/support/environment.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class ProbeSpeed : public testing::Test {
 protected:
  ProbeSpeed() {
    environment.set("XDG_CACHE_HOME", dir.make_directory("cache"));
    config[key::kProbe] = "auto";
    config[key::kProbeTimeout] = 20000;
    for (int i = 0; i < 20; ++i) {
      Manifest m;
      m.name = "fake";
      m.abi_major = OCTAVO_ABI_MAJOR;
      m.library =
          dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "plugins/fake" + std::to_string(i) + ".so");
      manifests.push_back(m);
    }
  }
  // Milliseconds for all of them; each has to end this way.
  double probe_all(const std::string &how) {
    const auto begin = Clock::now();
    for (const Manifest &m : manifests) {
      const ProbeReport r = probe_plugin(config, hardware, m, "a hash");
      EXPECT_TRUE(r.accepted);
      EXPECT_EQ(r.how.substr(0, how.size()), how);
    }
    return milliseconds(begin);
  }

  test::Environment environment;
  test::TempDir dir;
  Config config;
  Hardware hardware;
  std::vector<Manifest> manifests;
};

double processor_milliseconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval &t : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  }
  return sum;
}

// Processor time has to keep to the limits always, and the clock on a machine that does nothing
// else, which OCTAVO_QUIET=1 states.
TEST_F(ProbeSpeed, of_twenty_plugins) {
  const double before = processor_milliseconds();
  const double cold = probe_all("probed in ");
  const double cold_processor = processor_milliseconds() - before;
  const double known = probe_all("remembered");
  // Another process finds them in files.
  const auto begin = Clock::now();
  for (const Manifest &m : manifests) {
    const ProbeCache cache;
    ASSERT_EQ(cache.problem(), "");
    EXPECT_FALSE(cache.find(m.library, "another key"));
  }
  const double files = milliseconds(begin);
  std::printf(
      "20 plugins: cold %.1f ms (processor %.1f ms), remembered in this process %.3f ms, "
      "look-up of files %.3f ms\n",
      cold, cold_processor, known, files);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the speed of a helper with a sanitizer means nothing";
#endif
  EXPECT_LE(cold_processor, 150);
  const char *quiet = std::getenv("OCTAVO_QUIET");
  if (quiet == nullptr) return;
  EXPECT_LE(cold, 150);
  EXPECT_LE(known + files, 20);
}

}  // namespace
}  // namespace octavo

// A process with the rights of another user writes no trace where a configuration says.
#include <gtest/gtest.h>

#include <filesystem>

#include "sdk/src/run/run_trace.h"
#include "tests/support/environment.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

TEST(RunTraceRights, a_privileged_process_writes_no_trace) {
  Environment environment;
  const TempDir dir;
  Request request;
  request.set("trace.directory", dir / "trace");
  const Config config = load_config(request.desc());
  const octavo_kernels kernels{};
  octavo_session_desc desc{};
  desc.kernels = &kernels;
  const LoadedPlugin plugin;
  EXPECT_EQ(RunTrace::of(config, plugin, desc, request.host.get(), true), nullptr);
  EXPECT_FALSE(std::filesystem::exists(dir / "trace"));
  EXPECT_EQ(request.host.texts(OCTAVO_SEVERITY_WARNING),
            std::vector<std::string>{
                "trace.directory is not used: a privileged process writes no trace"});
  EXPECT_NE(RunTrace::of(config, plugin, desc, request.host.get(), false), nullptr);
  EXPECT_TRUE(std::filesystem::is_directory(dir / "trace"));
}

}  // namespace
}  // namespace octavo::test

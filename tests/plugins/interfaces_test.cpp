// What `octavo plugin list` shows of a plugin is what the plugin has.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/kernels.h"
#include "octavo/memory.h"
#include "octavo/octavo.hpp"
#include "octavo/plugin.h"
#include "tests/support/recording_host.h"

namespace octavo::test {
namespace {

using nlohmann::json;

constexpr const char *kInterfaces[] = {OCTAVO_BACKEND_ID,   OCTAVO_FUSED_ID,   OCTAVO_GRADIENTS_ID,
                                       OCTAVO_GROUPED_ID,   OCTAVO_KERNELS_ID, OCTAVO_MEMORY_ID,
                                       OCTAVO_OPTIMIZER_ID, OCTAVO_SHARD_ID};

class Interfaces : public testing::TestWithParam<const char *> {};

TEST_P(Interfaces, of_the_manifest_are_those_of_the_library) {
  const json listed = json::parse(octavo::list(octavo::Settings(), "json").text);
  const json *found = nullptr;
  for (const json &plugin : listed["plugins"])
    if (plugin["name"] == GetParam()) found = &plugin;
  ASSERT_NE(found, nullptr) << listed.dump();
  void *library = dlopen((*found)["library"].get<std::string>().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto query =
      reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(library, OCTAVO_PLUGIN_SYMBOL));
  ASSERT_NE(query, nullptr);
  static const RecordingHost host;  // the plugin keeps it
  const octavo_plugin *plugin = nullptr;
  ASSERT_EQ(query(host.get(), &plugin), OCTAVO_OK);
  std::vector<std::string> has;
  for (const char *id : kInterfaces)
    if (plugin->get_interface({id, strlen(id)}) != nullptr) has.push_back(id);
  EXPECT_THAT((*found)["provides"]["interfaces"].get<std::vector<std::string>>(),
              testing::UnorderedElementsAreArray(has));
}

INSTANTIATE_TEST_SUITE_P(All, Interfaces, testing::Values("te", "msamp", "reference"),
                         [](const auto &each) { return std::string(each.param); });

}  // namespace
}  // namespace octavo::test

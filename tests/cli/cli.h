// Runs `octavo` in a clean environment, with the zoo's fake plugin in a directory of the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

class Cli : public testing::Test {
 protected:
  Cli() { put_fake(dir, "plugins"); }

  Finished octavo(std::vector<std::string> arguments, bool terminal = false) {
    arguments.insert(arguments.begin(), OCTAVO_CLI);
    return run_program(arguments, terminal);
  }
  // With the fake on the search path and every file trusted.
  Finished with_fake(std::vector<std::string> arguments, bool terminal = false) {
    for (const char *more : {"--set", "plugins.trust=dev", "--plugin-dir"})
      arguments.push_back(more);
    arguments.push_back(dir / "plugins");
    return octavo(std::move(arguments), terminal);
  }

  Environment environment;
  TempDir dir;
};

}  // namespace octavo::test

// What a command prints with --json, read after its schema in docs/ has accepted it.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace octavo::test {

inline nlohmann::json by_schema(const std::string &name, const Finished &f) {
  const TempDir folder;
  const std::string root = OCTAVO_SOURCE_DIR;
  const Finished checked = run_program(
      {OCTAVO_PYTHON, "-B", root + "/tests/misconfigurations/schema.py",
       root + "/docs/" + name + ".schema.json", "/bin/cat", folder.write("printed.json", f.out)});
  EXPECT_EQ(checked.exit_code, 0) << checked.err << f.out << f.err;
  return nlohmann::json::parse(f.out, nullptr, false);
}

}  // namespace octavo::test

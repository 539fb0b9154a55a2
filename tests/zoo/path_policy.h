// A plugin with a canary in a tree of its own, and a host process that looks at it.
//
// The canary is a constructor that leaves a file: when the file is missing, no code of the plugin
// ran. Each look is a process, because a library stays in the process that opened it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

// Neither has to exist.
inline constexpr uid_t kUser = 4321;       // whom the host runs as, where a case says so
inline constexpr uid_t kStranger = 12345;  // somebody else

class PolicyTree {
 public:
  PolicyTree() {
    chmod(dir.path().c_str(), 0755);
    dir.make_directory("out", 01777);
    host_ = dir.copy(OCTAVO_POLICY_HOST, "bin/host");
    put("site/plugins");
    directories = {dir / "site/plugins"};
    environment.set("CANARY_OF_A_TEST", canary());
  }

  void put(const std::string &at) {
    dir.copy(OCTAVO_CANARY_PLUGIN, at + "/fake.so");
    dir.write(at + "/fake.octavo-plugin.toml", fake_manifest());
  }
  // The manifest with another value for this platform under [library].
  void names(const std::string &library) {
    std::string text = fake_manifest();
    text.replace(text.find("\"fake.so\""), 9, library);
    dir.write("site/plugins/fake.octavo-plugin.toml", text);
  }
  std::string library() const { return dir / "site/plugins/fake.so"; }
  std::string manifest() const { return dir / "site/plugins/fake.octavo-plugin.toml"; }
  std::string canary() const { return dir / "out/canary"; }
  bool sang() const { return std::filesystem::exists(canary()); }
  void give(const std::string &path, uid_t user) const {
    if (lchown(path.c_str(), user, user) != 0) throw std::runtime_error("cannot give " + path);
  }
  void give_all(const std::string &path, uid_t user) const {
    give(path, user);
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
      give(entry.path().string(), user);
  }
  void make_set_gid() const {
    give(host_, 0);
    if (chown(host_.c_str(), 0, kStranger) != 0 || chmod(host_.c_str(), 02755) != 0)
      throw std::runtime_error("cannot make " + host_ + " set-gid");
  }

  Finished look() const {
    std::vector<std::string> arguments = {host_, user, config.empty() ? "-" : config, trust};
    arguments.insert(arguments.end(), directories.begin(), directories.end());
    return run_program(arguments);
  }

  TempDir dir;
  Environment environment;
  std::string user = "-";
  std::string config;
  std::string trust = "-";
  std::vector<std::string> directories;

 private:
  std::string host_;
};

}  // namespace octavo::test

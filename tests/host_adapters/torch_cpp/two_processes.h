// Runs a test of this program in two processes, as torchrun would start them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/held_port.h"
#include "tests/support/temp_dir.h"

namespace testing_torch {

// test: "Suite.case", with these variables ("A=1 B=2") in its environment. Empty when both passed;
// otherwise how each of the two ended, and all that it printed.
inline std::string in_two_processes(const std::string &test, const std::string &variables) {
  const octavo::test::HeldPort port;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const octavo::test::TempDir folder;
  const auto log = [&](int rank) { return folder / std::to_string(rank); };
  const auto child = [&](int rank) {
    const std::string number = std::to_string(rank);
    return "RANK=" + number + " LOCAL_RANK=" + number + " " + program + " --gtest_filter=" + test +
           " > " + log(rank) + " 2>&1; echo $? > " + log(rank) + ".status";
  };
  const std::string command =
      "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port.text() + " " + variables +
      "; (" + child(1) + ") & " + child(0) + "; wait";
  std::ostringstream failed;
  if (std::system(command.c_str()) != 0) failed << "the shell failed\n";
  for (const int rank : {0, 1}) {
    std::string status;
    std::ifstream(log(rank) + ".status") >> status;
    if (status == "0") continue;
    failed << "rank " << rank << " ended with status " << status << " (above 128: a signal)\n";
  }
  if (!failed.str().empty())
    for (const int rank : {0, 1})
      failed << "rank " << rank << ":\n" << octavo::test::read_text(log(rank)) << '\n';
  return failed.str();
}

}  // namespace testing_torch

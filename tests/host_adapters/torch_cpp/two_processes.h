// Runs a test of this program in two processes, as torchrun would start them.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace testing_torch {

// test: "Suite.case", with these variables ("A=1 B=2") in its environment. The exit status, 0 when
// both passed. Each call has a port of its own.
inline int in_two_processes(const std::string &test, const std::string &variables) {
  static int port = 20000 + getpid() % 20000;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string child = program + " --gtest_filter=" + test + " 1>&2";
  const std::string command =
      "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(++port) + " " +
      variables + "; RANK=1 LOCAL_RANK=1 " + child + " & other=$!; RANK=0 LOCAL_RANK=0 " + child +
      "; main=$?; wait $other && exit $main";
  return std::system(command.c_str());
}

}  // namespace testing_torch

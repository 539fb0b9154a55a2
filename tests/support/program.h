// Runs a program to its end and keeps its exit code and what it printed.
//
// With a terminal, stderr is one side of a pseudo-terminal; there every line ends "\r\n".
#pragma once

#include <string>
#include <vector>

namespace octavo::test {

struct Finished {
  int exit_code = -1;  // minus the signal's number when one ended the program
  std::string out;
  std::string err;
};

// arguments[0] is the program's path. The child inherits the environment.
Finished run_program(const std::vector<std::string> &arguments, bool terminal = false);

}  // namespace octavo::test

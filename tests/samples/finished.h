// A small host that ran: its exit status, what it printed, the losses in it.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace octavo::test {

struct Finished {
  int status = 0;
  std::string output;
  std::vector<double> losses;
};

inline Finished run_program(const std::string &command) {
  Finished finished;
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    finished.output += line;
    int step = 0;
    double loss = 0;
    if (std::sscanf(line, "step %d loss %lf", &step, &loss) == 2) finished.losses.push_back(loss);
  }
  finished.status = pclose(pipe);
  return finished;
}

}  // namespace octavo::test

// Starts a program as ranks of MPI on this machine, whatever its cores and its user.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace octavo::test {

// mpirun: its path. Ends after `seconds` at the latest, with all ranks.
inline std::vector<std::string> as_ranks(const std::string &mpirun, int ranks,
                                         const std::vector<std::string> &program,
                                         int seconds = 60) {
  for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 1);
  std::vector<std::string> all = {"/usr/bin/timeout",
                                  "--kill-after=5",
                                  std::to_string(seconds),
                                  mpirun,
                                  "--bind-to",
                                  "none",
                                  "-n",
                                  std::to_string(ranks)};
  all.insert(all.end(), program.begin(), program.end());
  return all;
}

}  // namespace octavo::test

// Starts a program as ranks of MPI on this machine, whatever its cores and its user.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace octavo::test {

// mpirun: its path. Ends after a minute at the latest, with all ranks. When one of them ends badly,
// the others have `grace` seconds to say why they end, too; more of them for a busy machine.
inline std::vector<std::string> as_ranks(const std::string &mpirun, int ranks,
                                         const std::vector<std::string> &program, int grace = 1) {
  for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 1);
  setenv("OMPI_MCA_odls_base_sigkill_timeout", std::to_string(grace).c_str(), 1);
  std::vector<std::string> all = {
      "/usr/bin/timeout", "--kill-after=5", "60", mpirun,
      "--bind-to",        "none",           "-n", std::to_string(ranks)};
  all.insert(all.end(), program.begin(), program.end());
  return all;
}

}  // namespace octavo::test

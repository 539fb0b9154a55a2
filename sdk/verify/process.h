// What a plugin must leave alone in the process that loads it.
#pragma once

#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace octavo::probe {
class ProcessState;
}

namespace octavo::conformance {

class ProcessWatch {
 public:
  // As it is now; make one before the plugin is loaded.
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch &) = delete;
  ProcessWatch &operator=(const ProcessWatch &) = delete;

  // One sentence for each difference since the last call.
  std::vector<std::string> changes();

 private:
  std::string take_printed();

  std::unique_ptr<probe::ProcessState> state_;
  std::vector<std::string> environment_;
  sigset_t mask_{};
  std::set<std::string> global_;  // libraries whose symbols are visible to everyone
  int stdout_ = -1;               // the real one; what is printed meanwhile goes to a file
  uint64_t printed_ = 0;
};

// The file that holds this code, also where it was opened by a descriptor; empty: none.
std::string file_of_code(const void *address);

// Names of the C library's that `library` defines for itself.
std::vector<std::string> symbols_of_libc(const std::string &library);

}  // namespace octavo::conformance

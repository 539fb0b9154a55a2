// What a plugin must leave alone in the process that loads it.
#ifndef OCTAVO_CONFORMANCE_PROCESS_H
#define OCTAVO_CONFORMANCE_PROCESS_H

#include <csignal>
#include <memory>
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
  std::unique_ptr<probe::ProcessState> state_;
  std::vector<std::string> environment_;
  sigset_t mask_{};
  bool global_ = false;  // a plugin's symbol is visible to everyone
};

// The file that holds this code, also where it was opened by a descriptor; empty: none.
std::string file_of_code(const void *address);

// Names of the C library's that `library` defines for itself.
std::vector<std::string> symbols_of_libc(const std::string &library);

}  // namespace octavo::conformance

#endif

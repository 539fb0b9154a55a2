// octavo::torch::Error: what every function of this library throws when it refuses or fails.
#pragma once

#include <octavo/abi.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#define OCTAVO_TORCH_API __attribute__((visibility("default")))

namespace octavo::torch {

// One message of liboctavo or a plugin.
struct Diagnostic {
  octavo_status code = OCTAVO_OK;  // that the failing call returned, or OCTAVO_OK
  uint32_t severity = 0;           // OCTAVO_SEVERITY_...
  std::string domain;              // who spoke: "octavo.config", "te"
  std::string text;
};

// what() has the expected value, the found one and the place, followed by every diagnostic.
class OCTAVO_TORCH_API Error : public std::runtime_error {
 public:
  Error(octavo_status status, const std::string &text, std::vector<Diagnostic> diagnostics = {});
  ~Error() override;

  // OCTAVO_INVALID: malformed input; OCTAVO_UNSUPPORTED: well formed, but not possible here;
  // OCTAVO_WRONG_STATE: legal at another time; OCTAVO_NO_RESOURCE: a file or memory;
  // OCTAVO_FAILED_DEVICE: a device, its driver, or another rank.
  octavo_status status() const { return status_; }
  const std::vector<Diagnostic> &diagnostics() const { return diagnostics_; }

 private:
  octavo_status status_;
  std::vector<Diagnostic> diagnostics_;
};

// How a program ends after an exception, so that what started it knows what helps: codes of
// sysexits.h, as octavo.exits() of the Python package.
//   75  a rank ended, hangs or came late: start every rank again from a checkpoint
//   74  a disk is full, or a file cannot be written or read: free it, then start again
//   78  the configuration, the program or a version has to change
//   70  a fault of Octavo or of a plugin
//    1  anything else
// Leave with _Exit where ranks were lost: torch's threads may be in a collective that nobody
// answers.
OCTAVO_TORCH_API int exit_code(const std::exception &error);

}  // namespace octavo::torch

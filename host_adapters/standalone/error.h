// The errors that the user can do something about.
//
// UserError ends the program with exit code 2, LostRank with 3, a shortage of memory or of another
// resource with 4; every other exception is a defect and ends it with 1. See ending.h.
#pragma once

#include <stdexcept>
#include <string>

namespace octavo::standalone {

class UserError : public std::runtime_error {
 public:
  UserError(const std::string &where, const std::string &expected, const std::string &found,
            const std::string &remedy)
      : std::runtime_error(where + "\n  expected: " + expected + "\n  found:    " + found +
                           "\n  remedy:   " + remedy) {}
};
// Ranks as processes: another one went, and this one cannot go on.
class LostRank : public UserError {
 public:
  using UserError::UserError;
};
// Another rank ends with an error, and prints it.
struct SaidByAnotherRank {};

// Throws UserError unless the condition holds.
inline void expect(bool holds, const std::string &where, const std::string &expected,
                   const std::string &found, const std::string &remedy) {
  if (!holds) throw UserError(where, expected, found, remedy);
}

// After a signal: 128 and its number, see ending.h.
enum ExitCode { kExitDone = 0, kExitInternal = 1, kExitUser = 2, kExitLost = 3, kExitShort = 4 };

}  // namespace octavo::standalone

// The name by which the system's loader opens a checked library.
#pragma once

#include <string>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {

// Where a file was checked, a name that leads to it whatever happens to its path: nobody can put
// another file there between the check and the loader, whose constructors would run. Otherwise, and
// where the library searches next to itself for what it needs, its path.
class CheckedName {
 public:
  // `file`: null where nothing was checked. Throws ResourceUnavailable.
  CheckedName(const std::string &library, const CheckedFile *file);

  const std::string &name() const { return name_; }
  // Whether the system's loader could take it for another one: it replaces $ORIGIN, $LIB and
  // $PLATFORM, whatever is called so.
  bool is_expanded() const;
  // For as long as the library is loaded: the system's loader takes a second library with this name
  // for the first one.
  Descriptor keep() { return std::move(kept_); }
  // The words of the system's loader, with the library's path.
  std::string in_own_words(std::string words) const;

 private:
  const std::string library_;
  std::string name_;
  Descriptor kept_;
};

}  // namespace octavo

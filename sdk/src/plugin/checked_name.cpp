// A descriptor's name in /proc: that of the process, not /proc/self, so that a debugger finds it.
#include "sdk/src/plugin/checked_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include "sdk/src/base/text.h"
#include "sdk/src/plugin/elf.h"

namespace octavo {

CheckedName::CheckedName(const std::string &library, const CheckedFile *file)
    : library_(library), name_(library) {
  if (file == nullptr) return;
  kept_ = file->another();
  const std::string name = concat("/proc/", getpid(), "/fd/", kept_.get());
  struct stat there {};
  if (stat(name.c_str(), &there) == 0 && file->is(there) && needs_the_same(library, name))
    name_ = name;
}

bool CheckedName::is_expanded() const {
  return name_.find('$') != std::string::npos;
}

std::string CheckedName::in_own_words(std::string words) const {
  for (size_t at = 0; (at = words.find(name_, at)) != std::string::npos; at += library_.size())
    words.replace(at, name_.size(), library_);
  return words;
}

}  // namespace octavo

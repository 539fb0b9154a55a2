// The kernel's own answer, fixed when the process started.
#include "secure.h"

#include <sys/auxv.h>

namespace octavo {

bool privileged() {
  return getauxval(AT_SECURE) != 0;
}

}  // namespace octavo

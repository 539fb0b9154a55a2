// The id of the run that saves: equal in the files of all its ranks, and of no other run.
#pragma once

#include <string>

#include "sdk/src/store/store.h"

namespace octavo {

// checkpoint.run_id of the configuration, which a host with ranks in several processes sets; else
// random digits, drawn once in this process. Throws Failure(OCTAVO_INVALID) for a text that cannot
// be one, and where ranks in other processes would draw other digits.
std::string run_id_of(const octavo_store &store);

}  // namespace octavo

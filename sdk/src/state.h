// Checkpoints of a store: which slots go to which file, and from which file they come back.
#pragma once

#include <string>

#include "store.h"

namespace octavo {

// As octavo_store_save and octavo_store_load of octavo.h, with Failure for a status.
void save_state(const octavo_store &store, const std::string &directory, uint64_t step);
uint64_t load_state(octavo_store &store, const std::string &directory);

}  // namespace octavo

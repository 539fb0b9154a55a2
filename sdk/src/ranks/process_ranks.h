// Which ranks this process has, for what all ranks of a world must agree about: those that are
// threads of one process agree by being there.
#pragma once

#include <cstdint>

namespace octavo {

void add_process_rank(uint32_t world, uint32_t rank);
// octavo_ranks: each of them is a thread of this process.
void add_process_world(uint32_t world);
// Whether every rank of such a world was added. Ranks stay when what they opened is closed.
bool process_has_world(uint32_t world);

}  // namespace octavo

// The files of one checkpoint: one a rank, all in one directory.
#pragma once

#include <cstdint>
#include <string>

namespace octavo {

// "rank-0001-of-0004.safetensors": four digits, more where a number needs them.
std::string rank_file_name(uint32_t rank, uint32_t world);

// The world whose rank files the directory holds, or 0 for none. Files with other names do not
// count. Throws Failure: OCTAVO_INVALID for files of several worlds, OCTAVO_RESOURCE for a
// directory that cannot be read.
uint32_t find_world(const std::string &directory);

// Throws Failure(OCTAVO_RESOURCE) naming the first rank whose file is missing.
void expect_all_ranks(const std::string &directory, uint32_t world);

}  // namespace octavo

// What each rank of a mesh keeps, by what the backend describes.
#pragma once

#include <map>

#include "sdk/cli/estimate/ledger.h"
#include "sdk/cli/plan/mesh.h"

namespace octavo::cli::plan {

struct Ranks {
  uint32_t fullest = 0, least = 0;  // ranks
  estimate::Column of_fullest, of_least, of_all;
};

// rows: of x, of one rank. For a backend that this mesh can have.
Ranks ranks_of(const estimate::Model &model, const Mesh &mesh, uint64_t rows);

// The rank that keeps the WHOLE slots of each parameter that has some.
std::map<uint32_t, uint32_t> owners_of(const octavo::Run &run, uint32_t world);

// Rows of the first dimension that a shard of a tensor has, the last ones padded: a vector is
// divided along its elements. And the elements of that shard.
uint64_t shard_elements(const estimate::Tensor &t, uint32_t shards);

// Why the backend cannot be on this mesh, and what to do; empty: it can. codes: with FP8 gather.
std::string refusal_of(const estimate::Model &model, const Mesh &mesh, bool codes);

}  // namespace octavo::cli::plan

// A process group for the fake device: gloo on copies of its tensors in the CPU's memory.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

namespace testing_torch {

// The ranks meet by a file. name: what the backend calls itself.
c10::intrusive_ptr<c10d::Backend> staged_group(const std::string &file, int rank, int world,
                                               const std::string &name);

}  // namespace testing_torch

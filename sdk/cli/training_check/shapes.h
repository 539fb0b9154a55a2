// One linear of a host's own size, forward and backward, against sampled products in double.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "octavo/hpp/host/settings.hpp"

namespace octavo::training_check {

struct Shape {
  int64_t m = 0, n = 0, k = 0;
  std::string name() const;  // "M 64, N 128, K 32"
};

// "64,128,32;1,16,16", or what is wrong with the text in `problem`.
std::vector<Shape> shapes_of(const std::string &text, std::string *problem);

// In the process of the child. Throws octavo::Error.
nlohmann::json try_shape(const octavo::Settings &settings, const Shape &shape, uint64_t seed);

}  // namespace octavo::training_check

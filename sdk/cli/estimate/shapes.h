// The tensors of a model by their shapes, read from a file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "octavo/tensor.h"

namespace octavo::cli::estimate {

using Json = nlohmann::ordered_json;

struct Tensor {
  std::string name;
  int64_t rows = 1, cols = 1;
  // Of the weight [N, K] of a linear: the name of the linear, and of its input. Linears with the
  // same input read one tensor. Empty: a bias, a norm or an embedding.
  std::string linear = {}, input = {};
  uint32_t dtype = OCTAVO_F32;  // in which the host keeps it

  uint64_t count() const { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols); }
};

struct Shapes {
  std::string kind;  // "gpt2", ..., or "shapes"
  std::vector<Tensor> tensors;
};

// A config.json of Hugging Face, or a shapes file. Throws Failure(OCTAVO_INVALID).
Shapes read_shapes(const std::string &path);

// The two forms, once the JSON is read. `path` is for messages.
bool is_huggingface(const Json &j);
Shapes huggingface_shapes(const std::string &path, const Json &j);

// A whole number from 1 on, or `otherwise` where it is missing or null; -1: it is required.
int64_t whole(const std::string &path, const Json &j, const char *key, int64_t otherwise = -1);
bool truth(const std::string &path, const Json &j, const char *key, bool otherwise);

inline constexpr const char *kEstimateDomain = "octavo.estimate";

}  // namespace octavo::cli::estimate

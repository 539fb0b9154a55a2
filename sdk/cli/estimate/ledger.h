// What each way to train a model keeps in memory from one step to the next.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "octavo/octavo.hpp"
#include "sdk/cli/estimate/shapes.h"

namespace octavo::cli::estimate {

enum Part : size_t {
  kWeight,
  kGradient,
  kExpAvg,
  kExpAvgSq,
  kMasterWeight,
  kStep,
  kWeightCache,
  kFp8State,  // scales, histories, and what else belongs to no part above
  kSaved,     // by linears, from forward to backward
  kParts
};
extern const std::array<const char *, kParts> kPartNames;

struct Column {
  std::string name;
  std::string refused;  // why it does not run here; empty: it does
  size_t in_fp8 = 0;    // linears
  std::array<uint64_t, kParts> bytes = {};
  uint64_t total() const;
};

// A backend as the command line names it: NAME, or NAME:KEY=VALUE,KEY=VALUE.
struct Named {
  std::string text, backend;
  std::vector<std::pair<std::string, std::string>> options;
};
// Throws Failure(OCTAVO_INVALID).
Named parse_named(const std::string &text);

inline constexpr uint64_t kF32 = 4;

// A tensor of the model in a run of a backend; OCTAVO_NONE: declined, or not added.
struct Placed {
  const Tensor *tensor;
  uint32_t parameter = OCTAVO_NONE, linear = OCTAVO_NONE;
  std::string refused = {};  // why a linear is not with the backend
};
// The model as the backend sees it, sealed. Nothing is allocated.
struct Model {
  std::optional<octavo::Run> run;
  std::string refused;  // why the backend does not run here; then there is nothing placed
  std::vector<Placed> placed;
};
// host: null, or what outlives the model.
Model seal_model(const octavo::Settings &settings, const Named &named, const Shapes &shapes,
                 octavo::Host *host = nullptr);

// Which fp32 tensors of a parameter stay with the host.
struct HostTensors {
  bool weight, gradient, moments;
};
HostTensors host_tensors(const octavo::Run &run, const Placed &p);

// What a column is the sum of: the host's tensors, of so many elements each; what linears save;
// slots.
void add_host_tensors(const HostTensors &host, uint64_t elements, Column &c);
void add_linears(const Model &model, uint64_t rows, Column &c);
Part part_of(const octavo_slot &slot);
uint64_t bytes_of(const octavo_slot &slot);

// Without a backend: AdamW in fp32, or in bf16 as autocast has it. rows: of x; 0: none is saved.
Column host_column(const std::string &name, const Shapes &shapes, uint64_t rows, bool bf16);
// By what the backend describes at its seal. Nothing is allocated.
Column backend_column(const octavo::Settings &settings, const Named &named, const Shapes &shapes,
                      uint64_t rows);

}  // namespace octavo::cli::estimate

// A sealed run as XLA's calls see it: what each entry of a slot list is in the operands and results
// of a call. It holds no slot: JAX passes all of them in every call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/octavo.hpp"

namespace octavo::jax {

// One entry of a list for one verb.
struct Place {
  uint8_t access = OCTAVO_ACCESS_NONE;
  uint64_t bytes = 0;  // of the columns that the entry has, or of the whole slot
  std::string slot;    // its name, for messages
};

using List = std::vector<Place>;
constexpr uint32_t kVerbs = OCTAVO_VERB_REDUCE + 1;

struct Entry {
  const octavo_run *run = nullptr;
  const octavo_backend *backend = nullptr;
  const octavo_optimizer *optimizer = nullptr;
  const octavo_gradients *gradients = nullptr;
  octavo_session *session = nullptr;
  octavo_device device = {OCTAVO_DEVICE_CPU, 0};
  std::vector<List> lists[kVerbs];  // by verb, then by object
  std::vector<octavo_linear_plan> plans;
  std::vector<uint64_t> weight_workspace;  // by parameter: the largest of its linears
  std::vector<int64_t> n, k;               // of each linear
  std::vector<int64_t> rows, cols;         // of each parameter
  std::vector<uint32_t> reduced;           // parameters whose gradients the backend keeps

  // Throws Error for an object that the run does not have.
  const List &list(uint32_t verb, int64_t object) const;
  // The workspace of the optimizer's verbs for `count` parameters from `first` on. Throws Error.
  uint64_t optimizer_bytes(int64_t first, int64_t count) const;
};

// What a host gives: a sealed run, and the shapes that it described.
struct Registration {
  const octavo_run *run;
  const int64_t *shapes;    // rows and cols of each parameter
  const uint32_t *weights;  // the parameter of each linear
  uint32_t parameter_count, linear_count;
  const char *options;  // of the backend and of layers, as text
};

// The host of every run of this library; it collects diagnostics, and CPU kernels run on the thread
// pool of the XLA call that runs them.
Host &host();
// Throws Error.
int64_t enter(const Registration &given);
// Waits for calls in flight. A number that is unknown is no error.
void leave(int64_t number);
// Calls `use` with a run that stays until it returns. Throws Error for an unknown number.
void with_entry(int64_t number, const std::function<void(const Entry &)> &use);

}  // namespace octavo::jax

// A model of train_gpt as a shapes file of octavo estimate.
#ifndef TESTS_SAMPLES_MODEL_SHAPES_H
#define TESTS_SAMPLES_MODEL_SHAPES_H

#include <nlohmann/json.hpp>
#include <set>

#include "samples/train_gpt/model/model.h"

namespace gpt {

// Biases belong to their linears, the rest are parameters.
inline nlohmann::json shapes_of(Model &model) {
  using nlohmann::json;
  json linears = json::array(), parameters = json::array();
  std::set<const Parameter *> named;
  for (Linear *l : model.linears()) {
    named.insert({&l->weight(), l->bias()});
    linears.push_back({{"name", l->name()},
                       {"n", l->weight().rows},
                       {"k", l->weight().cols},
                       {"bias", l->bias() != nullptr}});
  }
  for (const Parameter *p : model.parameters())
    if (named.count(p) == 0)
      parameters.push_back({{"name", p->name}, {"rows", p->rows}, {"cols", p->cols}});
  return {{"linears", linears}, {"parameters", parameters}};
}

}  // namespace gpt

#endif

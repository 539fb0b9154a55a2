// Where a prepared octavo::torch::Linear runs.
#pragma once

#include "linear_call.h"

namespace octavo::torch {

// A site, and the module that it was made for: a clone of the module is not in its place.
struct Place {
  SitePointer site;
  const void *module;
};

}  // namespace octavo::torch

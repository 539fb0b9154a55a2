// Runs by number: what an op looks up first. A number is made from the layout of the run's slots,
// so a compiled graph that was stored refers to an equal model or to nothing: a stale one is an
// error.
#pragma once

#include <torch/csrc/stable/library.h>

#include "host_adapters/torch/core/entry.h"

// Registers ops by implement(torch::stable::detail::StableLibrary &). The same functions for every
// device: the run knows its own.
#define OCTAVO_ON_EVERY_DEVICE(implement)                           \
  STABLE_TORCH_LIBRARY_IMPL(octavo, CompositeExplicitAutograd, m) { \
    implement(m);                                                   \
  }

namespace octavo::ops {

// The run of this number; throws through torch when there is none. THREAD_ANY.
std::shared_ptr<const core::Entry> find(int64_t number);

}  // namespace octavo::ops

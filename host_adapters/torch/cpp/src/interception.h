// Which weights are prepared; how calls with them reach the backend is in interception.cpp.
#pragma once

#include <vector>

#include "linear_call.h"

namespace octavo::torch {

// From here on a linear with these sites' weights, on a device of this type, runs through them; all
// or none. The process's dispatcher gets its kernels at the first call for a type. THREAD_ANY.
void intercept(const std::vector<SitePointer> &sites, at::DeviceType type);
void release(const std::vector<SitePointer> &sites);

}  // namespace octavo::torch

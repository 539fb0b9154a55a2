/* What the plugin's entry sees of the CUDA kernels: complete tables. */
#pragma once

#include "octavo/kernels.h"
#include "octavo/memory.h"

namespace octavo::cuda {

const octavo_kernels *table();
const octavo_memory *memory_table();

}  // namespace octavo::cuda

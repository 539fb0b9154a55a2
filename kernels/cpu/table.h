/* The one function that liboctavo sees of the CPU kernels: their complete table. */
#pragma once

#include "octavo/kernels.h"

OCTAVO_EXTERN_C const octavo_kernels *octavo_cpu_kernels(void);

/* The one function that liboctavo sees of the CPU kernels: their complete table. */
#ifndef OCTAVO_KERNELS_CPU_TABLE_H
#define OCTAVO_KERNELS_CPU_TABLE_H

#include "octavo/kernels.h"

OCTAVO_EXTERN_C const octavo_kernels *octavo_cpu_kernels(void);

#endif

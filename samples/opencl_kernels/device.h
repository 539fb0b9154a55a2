/* device.h: a device of OpenCL and its memory, for the calls of kernels.c.
 *
 * OpenCL 1.2 has buffers, no addresses of device memory. So an address is one of a range that
 * `allocate` reserves, without memory behind it, and `find` leads from it to a buffer and the place
 * in it. An access of the host to such an address ends the program; it never reads wrong numbers.
 */
#ifndef OPENCL_KERNELS_DEVICE_H
#define OPENCL_KERNELS_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>

#include "octavo/kernels.h"
#include "octavo/memory.h"

#define TEXT(literal) ((octavo_str)OCTAVO_STR(literal))

/* Of kernels.cl, in whatever order. */
#define EACH_KERNEL(DO) \
  DO(measure), DO(settle), DO(update), DO(cast), DO(dequantize), DO(gemm), DO(sum_rows)
#define NUMBER_OF(name) k_##name
enum kernel { EACH_KERNEL(NUMBER_OF), kKernels };
enum { kItemsNeeded = 256 }; /* of a group */

struct block { /* memory from `allocate` */
  uintptr_t start;
  uint64_t bytes;
  cl_mem buffer;
};

/* What all who open a device share: memory of one is memory of the others. */
struct device {
  cl_device_id id;
  cl_context context;
  cl_command_queue queue; /* in order, and the only stream */
  cl_program program;
  cl_kernel kernels[kKernels];
  cl_mem seen;          /* of one call after the other */
  struct block *blocks; /* by start */
  size_t count;
  int users;
};

struct context { /* what open_device gives */
  const octavo_host *host;
  struct device *device;
};

extern pthread_mutex_t lock; /* of every struct device */
extern const octavo_memory kMemory;

octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink);
octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx);
void close_device(void *ctx);
/* The block that holds all of [at, at + bytes), or null. The caller has the lock. */
struct block *find(const struct device *d, uintptr_t at, uint64_t bytes);
/* Reports a failure and gives its code: one of these kernels', and one of OpenCL's. */
__attribute__((format(printf, 3, 4))) octavo_status fail(const octavo_host *host,
                                                         octavo_status code, const char *format,
                                                         ...);
octavo_status refuse(const octavo_host *host, const char *verb, const char *what, cl_int e);

#endif

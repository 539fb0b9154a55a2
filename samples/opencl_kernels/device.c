/* device.c: which devices OpenCL has and what they must be, and the interface octavo.memory/1.
 *
 * A device is opened once for all who open it, since memory belongs to OpenCL's context.
 */
#define _DEFAULT_SOURCE
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char kSource[] = {
#include "kernels.inc"
};

#define NAME_OF(name) #name
static const char *const kNames[] = {EACH_KERNEL(NAME_OF)};
enum { kDeviceType = 4, kMostDevices = 32, kMostPlatforms = 16 }; /* 4: OpenCL's in DLPack */

static struct device devices[kMostDevices];
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

octavo_status fail(const octavo_host *host, octavo_status code, const char *format, ...) {
  char text[2048];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  octavo_diagnostic m = {.size = sizeof m, .kind = OCTAVO_KIND_DIAGNOSTIC, .code = code};
  m.severity = OCTAVO_SEVERITY_ERROR;
  m.domain = TEXT(OCTAVO_PLUGIN_ID);
  m.text = (octavo_str){text, strlen(text)};
  host->diagnose(host->ctx, &m);
  return code;
}

octavo_status refuse(const octavo_host *host, const char *verb, const char *what, cl_int e) {
  const int is_room = e == CL_MEM_OBJECT_ALLOCATION_FAILURE || e == CL_OUT_OF_RESOURCES ||
                      e == CL_OUT_OF_HOST_MEMORY || e == CL_INVALID_BUFFER_SIZE;
  return fail(host, is_room ? OCTAVO_NO_RESOURCE : OCTAVO_FAILED_DEVICE,
              "%s: %s answered %d (%s); %s", verb, what, e,
              is_room ? "no room on the device" : "an error of the driver",
              is_room ? "use a smaller batch or model, or end other programs on the device"
                      : "see CL/cl.h for the number, and the driver's log");
}

/* All devices of all platforms: GPUs and accelerators first. Returns their number. */
static cl_uint list_devices(cl_device_id *list, cl_uint *platform_count) {
  static const cl_device_type kOrder[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
                                          CL_DEVICE_TYPE_CPU};
  cl_platform_id platforms[kMostPlatforms];
  cl_uint count = 0;
  if (clGetPlatformIDs(kMostPlatforms, platforms, platform_count) != CL_SUCCESS)
    *platform_count = 0;
  if (*platform_count > kMostPlatforms) *platform_count = kMostPlatforms;
  for (size_t type = 0; type < sizeof kOrder / sizeof *kOrder; ++type)
    for (cl_uint p = 0; p < *platform_count && count < kMostDevices; ++p) {
      cl_uint found = 0;
      if (clGetDeviceIDs(platforms[p], kOrder[type], kMostDevices - count, list + count, &found) !=
          CL_SUCCESS)
        continue;
      count = found < kMostDevices - count ? count + found : kMostDevices;
    }
  return count;
}

#define INFO(id, what, value) clGetDeviceInfo(id, what, sizeof(value), &(value), NULL)

/* What a device lacks for results that are exact to the bit; null: nothing. */
static const char *lacking(cl_device_id id) {
  cl_device_fp_config single = 0, twice = 0;
  cl_bool is_little = CL_FALSE, compiles = CL_FALSE;
  size_t items = 0;
  INFO(id, CL_DEVICE_SINGLE_FP_CONFIG, single);
  INFO(id, CL_DEVICE_DOUBLE_FP_CONFIG, twice);
  INFO(id, CL_DEVICE_ENDIAN_LITTLE, is_little);
  INFO(id, CL_DEVICE_COMPILER_AVAILABLE, compiles);
  INFO(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, items);
  if (!(single & CL_FP_DENORM)) return "subnormal numbers in float (CL_FP_DENORM)";
  if (!(single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT))
    return "correctly rounded division (CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)";
  if (!twice) return "double, which sums are added in (cl_khr_fp64)";
  if (!is_little || !compiles) return "a compiler, or little-endian numbers";
  return items < kItemsNeeded ? "work-groups of 256 items (CL_DEVICE_MAX_WORK_GROUP_SIZE)" : NULL;
}

octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT, .level = OCTAVO_LEVEL_DEVICE};
  char text[256], name[128] = "";
  cl_device_id list[kMostDevices];
  cl_uint platforms = 0;
  const cl_uint count = list_devices(list, &platforms);
  const int is_there = d.type == kDeviceType && d.index >= 0 && (cl_uint)d.index < count;
  if (is_there) clGetDeviceInfo(list[d.index], CL_DEVICE_NAME, sizeof name - 1, name, NULL);
  const char *lacks = is_there ? lacking(list[d.index]) : NULL;
  v.decision = is_there && !lacks ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  v.reason = is_there && !lacks ? OCTAVO_REASON_NONE : OCTAVO_REASON_DEVICE;
  if (platforms == 0)
    snprintf(text, sizeof text,
             "OpenCL has no driver: install the driver of your device, or on Debian "
             "pocl-opencl-icd, which computes on the CPU; clinfo lists what there is");
  else if (count == 0)
    snprintf(text, sizeof text,
             "no driver of OpenCL finds a device: clinfo lists what there is; pocl needs a folder "
             "to write to, HOME or POCL_CACHE_DIR");
  else if (!is_there)
    snprintf(text, sizeof text, "there is no such device: expected an index below %u", count);
  else if (lacks)
    snprintf(text, sizeof text, "the device lacks %s: take another device", lacks);
  else
    snprintf(text, sizeof text, "the device computes FP8 in fp32 arithmetic");
  v.text = (octavo_str){text, strlen(text)};
  v.evidence = (octavo_str){name, strlen(name)};
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static void release_all(struct device *d) {
  for (int i = 0; i < kKernels; ++i)
    if (d->kernels[i]) clReleaseKernel(d->kernels[i]);
  if (d->seen) clReleaseMemObject(d->seen);
  if (d->program) clReleaseProgram(d->program);
  if (d->queue) clReleaseCommandQueue(d->queue);
  if (d->context) clReleaseContext(d->context);
  free(d->blocks);
  *d = (struct device){0};
}

static octavo_status build(struct device *d, const octavo_host *host) {
  cl_int e = CL_SUCCESS;
  const char *source = kSource;
  d->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &e);
  if (e == CL_SUCCESS) d->queue = clCreateCommandQueue(d->context, d->id, 0, &e);
  if (e == CL_SUCCESS) d->program = clCreateProgramWithSource(d->context, 1, &source, NULL, &e);
  if (e != CL_SUCCESS) return refuse(host, "open_device", "the creation of a context", e);
  e = clBuildProgram(d->program, 1, &d->id, "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt",
                     NULL, NULL);
  if (e != CL_SUCCESS) {
    char log[1024] = "";
    clGetProgramBuildInfo(d->program, d->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    return fail(host, OCTAVO_FAILED_DEVICE,
                "open_device: the driver cannot compile kernels.cl (%d); update "
                "the driver, or take another device: %s",
                e, log);
  }
  for (int i = 0; i < kKernels && e == CL_SUCCESS; ++i)
    d->kernels[i] = clCreateKernel(d->program, kNames[i], &e);
  if (e == CL_SUCCESS) d->seen = clCreateBuffer(d->context, 0, 3 * sizeof(cl_uint), NULL, &e);
  const cl_uint zero = 0;
  if (e == CL_SUCCESS)
    e = clEnqueueFillBuffer(d->queue, d->seen, &zero, sizeof zero, 0, 3 * sizeof zero, 0, NULL,
                            NULL);
  return e == CL_SUCCESS ? OCTAVO_OK : refuse(host, "open_device", "the creation of kernels", e);
}

octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx) {
  cl_device_id list[kMostDevices];
  cl_uint platforms = 0;
  const cl_uint count = list_devices(list, &platforms);
  if (d.type != kDeviceType || d.index < 0 || (cl_uint)d.index >= count || lacking(list[d.index]))
    return fail(host, OCTAVO_UNSUPPORTED, "open_device: probe_device declines index %d", d.index);
  struct context *opened = malloc(sizeof *opened);
  if (!opened) return fail(host, OCTAVO_NO_RESOURCE, "open_device: the CPU has no memory");
  *opened = (struct context){host, &devices[d.index]};
  pthread_mutex_lock(&lock);
  octavo_status status = OCTAVO_OK;
  if (opened->device->users == 0) {
    opened->device->id = list[d.index];
    status = build(opened->device, host);
    if (status != OCTAVO_OK) release_all(opened->device);
  }
  if (status == OCTAVO_OK) ++opened->device->users;
  pthread_mutex_unlock(&lock);
  if (status != OCTAVO_OK) free(opened);
  if (status == OCTAVO_OK) *ctx = opened;
  return status;
}

void close_device(void *ctx) {
  struct context *x = ctx;
  pthread_mutex_lock(&lock);
  if (--x->device->users == 0) release_all(x->device);
  pthread_mutex_unlock(&lock);
  free(x);
}

struct block *find(const struct device *d, uintptr_t at, uint64_t bytes) {
  size_t low = 0, high = d->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int is_after = d->blocks[middle].start > at;
    low = is_after ? low : middle + 1;
    high = is_after ? middle : high;
  }
  struct block *b = low > 0 ? &d->blocks[low - 1] : NULL;
  return b && at - b->start <= b->bytes && bytes <= b->bytes - (at - b->start) ? b : NULL;
}

static octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  const struct context *x = ctx;
  struct device *d = x->device;
  *out = NULL;
  if (bytes == 0) return OCTAVO_OK;
  void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return fail(x->host, OCTAVO_NO_RESOURCE,
                "allocate: the process has no %llu addresses left; raise "
                "its limit (ulimit -v)",
                (unsigned long long)bytes);
  cl_int e = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &e);
  /* Drivers take memory at the first use: this is one, so that what is missing is met here. */
  if (e == CL_SUCCESS)
    e = clEnqueueMigrateMemObjects(d->queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                   NULL, NULL);
  if (e == CL_SUCCESS) e = clFinish(d->queue);
  pthread_mutex_lock(&lock);
  struct block *more = e == CL_SUCCESS ? realloc(d->blocks, (d->count + 1) * sizeof *more) : NULL;
  if (more) {
    size_t at = d->count++;
    for (d->blocks = more; at > 0 && more[at - 1].start > (uintptr_t)start; --at)
      more[at] = more[at - 1];
    more[at] = (struct block){(uintptr_t)start, bytes, buffer};
  }
  pthread_mutex_unlock(&lock);
  if (more) {
    *out = start;
    return OCTAVO_OK;
  }
  munmap(start, bytes);
  if (buffer) clReleaseMemObject(buffer);
  char what[64];
  snprintf(what, sizeof what, "a buffer of %llu bytes", (unsigned long long)bytes);
  return refuse(x->host, "allocate", what, e == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : e);
}

static void release(void *ctx, void *data) {
  struct device *d = ((struct context *)ctx)->device;
  pthread_mutex_lock(&lock);
  struct block *b = data ? find(d, (uintptr_t)data, 0) : NULL;
  const struct block freed = b ? *b : (struct block){0};
  if (b) memmove(b, b + 1, (size_t)(d->blocks + d->count-- - (b + 1)) * sizeof *b);
  pthread_mutex_unlock(&lock);
  if (!b) return;
  clReleaseMemObject(freed.buffer);
  munmap(data, freed.bytes);
}

/* Every stream is the one queue, in order, so the copy is after all that was queued. */
static octavo_status copy_now(void *ctx, void *to, const void *from, uint64_t bytes) {
  const struct context *x = ctx;
  struct device *d = x->device;
  if (bytes == 0) return OCTAVO_OK;
  pthread_mutex_lock(&lock);
  const struct block *found_to = find(d, (uintptr_t)to, bytes);
  const struct block *found_from = find(d, (uintptr_t)from, bytes);
  const struct block out = found_to ? *found_to : (struct block){0};
  const struct block in = found_from ? *found_from : (struct block){0};
  pthread_mutex_unlock(&lock);
  const size_t out_at = (uintptr_t)to - out.start, in_at = (uintptr_t)from - in.start;
  cl_int e = CL_SUCCESS;
  if (out.buffer && in.buffer)
    e = clEnqueueCopyBuffer(d->queue, in.buffer, out.buffer, in_at, out_at, bytes, 0, NULL, NULL);
  else if (out.buffer)
    e = clEnqueueWriteBuffer(d->queue, out.buffer, CL_TRUE, out_at, bytes, from, 0, NULL, NULL);
  else if (in.buffer)
    e = clEnqueueReadBuffer(d->queue, in.buffer, CL_TRUE, in_at, bytes, to, 0, NULL, NULL);
  if (e == CL_SUCCESS) e = clFinish(d->queue);
  if (e != CL_SUCCESS) return refuse(x->host, "copy", "the queue", e);
  if (!out.buffer && !in.buffer) memcpy(to, from, bytes);
  return OCTAVO_OK;
}

static octavo_status synchronize(void *ctx) {
  const struct context *x = ctx;
  const cl_int e = clFinish(x->device->queue);
  return e == CL_SUCCESS ? OCTAVO_OK
                         : fail(x->host, OCTAVO_FAILED_DEVICE,
                                "synchronize: queued work ended "
                                "with %d; see the driver's log",
                                e);
}

const octavo_memory kMemory = {
    sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy_now, synchronize};

/* libcuda.so.1 and libnvidia-ml.so.1 of a machine that a test makes up.
 *
 * OCTAVO_FAKE_GPU holds "key=value" pairs: init (what cuInit answers), cuda (12040 is CUDA 12.4),
 * driver (a text), count, capability (90), capturing (0 or 1), total and free (MiB), mig (0 or 1),
 * uuid (the last byte; without it the driver says none), gpus (what NVML counts; without it:
 * count), nvml (what nvmlInit answers), second (the capability of every GPU but the first), lock
 * and wait (what cuMemHostRegister and cuCtxSynchronize answer). Unset keys are those of a healthy
 * H100.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The text behind "key=" up to the next blank; `otherwise` when the key is not there. */
static const char *text_of(const char *key, const char *otherwise) {
  static __thread char value[64];
  const char *all = getenv("OCTAVO_FAKE_GPU");
  const size_t length = strlen(key);
  for (const char *at = all; at != NULL && *at != 0;) {
    if (strncmp(at, key, length) == 0 && at[length] == '=') {
      snprintf(value, sizeof value, "%s", at + length + 1);
      value[strcspn(value, " ")] = 0;
      return value;
    }
    at = strchr(at, ' ');
    if (at != NULL) ++at;
  }
  return otherwise;
}

static int number_of(const char *key, int otherwise) {
  const char *text = text_of(key, NULL);
  return text == NULL ? otherwise : atoi(text);
}

enum { INVALID = 1 };

EXPORT int cuInit(unsigned flags) {
  return flags == 0 ? number_of("init", 0) : INVALID;
}

EXPORT int cuDriverGetVersion(int *version) {
  *version = number_of("cuda", 12040);
  return 0;
}

EXPORT int cuStreamIsCapturing(void *stream, int *status) {
  (void)stream;
  *status = number_of("capturing", 0);
  return 0;
}

EXPORT int cuDeviceGetCount(int *count) {
  *count = number_of("count", 1);
  return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < number_of("count", 1) ? 0 : INVALID;
}

EXPORT int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, (size_t)length, "fake GPU sm_%d of device %d", number_of("capability", 90),
           device);
  return 0;
}

EXPORT int cuDeviceGetUuid_v2(char *uuid, int device) {
  const int last = number_of("uuid", 0);
  memset(uuid, 0, 16);
  uuid[15] = (char)(last + device);
  return last != 0 ? 0 : INVALID;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const int first = number_of("capability", 90);
  const int capability = device == 0 ? first : number_of("second", first);
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return device >= 0 && (attribute == 75 || attribute == 76) ? 0 : INVALID;
}

static unsigned long long mebibytes(const char *key) {
  return (unsigned long long)number_of(key, 81920) << 20;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = mebibytes("total");
  return device >= 0 ? 0 : INVALID;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  static char contexts[16];
  *context = &contexts[(unsigned)device % sizeof contexts];
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  return device >= 0 ? 0 : INVALID;
}

static __thread void *current;

EXPORT int cuCtxPushCurrent_v2(void *context) {
  current = context;
  return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **context) {
  *context = current;
  current = NULL;
  return 0;
}

EXPORT int cuCtxSynchronize(void) {
  return current != NULL ? number_of("wait", 0) : INVALID;
}

EXPORT int cuMemHostRegister_v2(void *begin, size_t bytes, unsigned flags) {
  const int is_legal =
      current != NULL && (size_t)begin % 4096 == 0 && bytes % 4096 == 0 && flags == 1;
  return is_legal ? number_of("lock", 0) : INVALID;
}

EXPORT int cuMemHostUnregister(void *begin) {
  return current != NULL && (size_t)begin % 4096 == 0 ? 0 : INVALID;
}

EXPORT int nvmlInit_v2(void) {
  return number_of("nvml", 0);
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  snprintf(version, length, "%s", text_of("driver", "550.54.14"));
  return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)number_of("gpus", number_of("count", 1));
  return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  static char handles[16];
  *device = &handles[index % sizeof handles];
  return 0;
}

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
  *now = *later = (unsigned)number_of("mig", 0);
  return device != NULL ? 0 : INVALID;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
  total_free_used[0] = mebibytes("total");
  total_free_used[1] = mebibytes("free");
  total_free_used[2] = total_free_used[0] - total_free_used[1];
  return device != NULL ? 0 : INVALID;
}

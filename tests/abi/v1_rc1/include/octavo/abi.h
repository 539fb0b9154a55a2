/* octavo/abi.h: versions, statuses and the three plain values that every other header uses.
 *
 * The rules of the whole contract, once:
 *   - Every struct that can grow starts with {uint32_t size; uint32_t kind;}. `size` means "through
 *     the last field I know"; a reader uses min(its own size, the given size) and treats the rest
 *     as zero, and zero always means "as before". `kind` is one of OCTAVO_KIND_... below.
 *   - So a struct of the other side is never copied by assignment, which would read past its end:
 *     OCTAVO_TAKE copies, OCTAVO_HAS asks for a field newer than minor 0. An out struct is zeroed
 *     by its caller, who sets size and kind; the callee writes nothing beyond that size.
 *   - Who gives a field newer than minor 0 must expect that nobody reads it. One that must not be
 *     ignored comes with a way to ask: a new interface id, a flag, or a field that the other side
 *     fills.
 *   - A function of a plugin's table may be null, or lie beyond its size: the plugin has none. The
 *     tables that liboctavo hands out are complete; a stub there answers OCTAVO_UNSUPPORTED.
 *   - Structs marked "frozen" never change within a major, have no header, and are the only ones
 *     that may stand in arrays.
 *   - Reserved fields and unused flags are 0; setup verbs refuse anything else.
 *   - Whoever allocates frees. Strings and structs passed in are valid during the call only; who
 *     wants to keep them copies. Strings in a plugin's tables and verdicts are static.
 *   - No exception, longjmp or signal crosses the border.
 *   - Unknown enumerator values are legal input: answer OCTAVO_UNSUPPORTED, never abort.
 */
#ifndef OCTAVO_ABI_H
#define OCTAVO_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The release of the SDK. The build system reads these three lines; there is no other copy. */
#define OCTAVO_VERSION_MAJOR 0
#define OCTAVO_VERSION_MINOR 1
#define OCTAVO_VERSION_PATCH 0

#define OCTAVO_ABI_MAJOR 1
#define OCTAVO_ABI_MINOR 0 /* the newest minor that this header describes */
/* The minor that a plugin demands of its host, by default the oldest supported one. Using something
 * newer is a look at OCTAVO_HAS, not a higher target. */
#ifndef OCTAVO_TARGET_MINOR
#define OCTAVO_TARGET_MINOR 0
#endif

#if defined(__cplusplus)
#define OCTAVO_EXTERN_C extern "C"
#define OCTAVO_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define OCTAVO_EXTERN_C
#define OCTAVO_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#define OCTAVO_EXPORT OCTAVO_EXTERN_C __attribute__((visibility("default")))

/* Bytes of `type` up to and including `field`: the size a struct of that age has. */
#define OCTAVO_SIZE_THROUGH(type, field) \
  ((uint32_t)(offsetof(type, field) + sizeof(((type *)0)->field)))
/* Whether the other side's struct is new enough to hold `field`. */
#define OCTAVO_HAS(pointer, type, field) ((pointer)->size >= OCTAVO_SIZE_THROUGH(type, field))

/* A copy of what both sides know of a struct that can grow, the rest 0: OCTAVO_TAKE(own, given) for
 * `own` a variable and `given` a pointer. own.size becomes the smaller of the two sizes, so that
 * OCTAVO_HAS tells of the copy what it told of the original. */
#define OCTAVO_TAKE(own, given) octavo_take(&(own), (uint32_t)sizeof(own), (given))
static inline void octavo_take(void *own, uint32_t own_size, const void *given) {
  const uint32_t given_size = *(const uint32_t *)given;
  const uint32_t size = given_size < own_size ? given_size : own_size;
  __builtin_memset(own, 0, own_size);
  __builtin_memcpy(own, given, size);
  *(uint32_t *)own = size;
}

/* "No such id." A macro, since an enumerator above INT_MAX is not C11. */
#define OCTAVO_NONE 0xFFFFFFFFu

OCTAVO_STATIC_ASSERT(sizeof(void *) == 8, "Octavo supports 64-bit targets only");

/* Every function of the contract carries one thread tag and one phase tag.
 *   THREAD_CONTROL  one thread at a time per session, any thread
 *   THREAD_STREAM   any number at once on one session, if no two calls in flight write the same
 *                   slot, `saved` or workspace. Two calls may accumulate into one slot at once when
 *                   the kernels state OCTAVO_CAPS_ATOMIC_ACCUMULATE
 *   THREAD_ANY      always
 *   PHASE_SETUP     free to allocate, lock and search
 *   PHASE_STEP      as hot, but may take long
 *   PHASE_HOT       no allocation, lock, synchronisation, look-up by name, or host read of device
 *                   memory */
#define OCTAVO_THREAD_CONTROL
#define OCTAVO_THREAD_STREAM
#define OCTAVO_THREAD_ANY
#define OCTAVO_PHASE_SETUP
#define OCTAVO_PHASE_STEP
#define OCTAVO_PHASE_HOT

/* Result of every function. Any value that is not OCTAVO_OK is a failure, known or not; the detail
 * went to octavo_host.diagnose before the function returned. */
typedef int32_t octavo_status;
enum {
  OCTAVO_OK = 0,
  OCTAVO_UNSUPPORTED = 1, /* well formed, but this implementation cannot do it */
  OCTAVO_INVALID = 2,     /* malformed: wrong value, shape, type, null where data is needed */
  OCTAVO_WRONG_STATE = 3, /* legal call at an illegal time */
  OCTAVO_VERSION = 4,     /* the two sides' versions do not fit */
  OCTAVO_DEVICE = 5,      /* the device or its driver failed */
  OCTAVO_RESOURCE = 6,    /* memory, file or another resource is missing or full */
  OCTAVO_INTERNAL = 7     /* a defect of the implementation */
};

/* UTF-8 text; no final zero is promised. data may be null when size is 0. Frozen. */
typedef struct octavo_str {
  const char *data;
  uint64_t size; /* bytes */
} octavo_str;

/* A string literal as octavo_str: OCTAVO_STR("te") is an initializer for static tables. */
#define OCTAVO_STR(literal) \
  { (literal), sizeof(literal) - 1 }

enum {
  OCTAVO_VALUE_INT = 1,
  OCTAVO_VALUE_REAL = 2,
  OCTAVO_VALUE_BOOL = 3, /* in `integer`: 0 or 1 */
  OCTAVO_VALUE_TEXT = 4
};

/* One typed value; the members that `type` does not name are 0. Frozen. */
typedef struct octavo_value {
  uint32_t type; /* OCTAVO_VALUE_... */
  uint32_t reserved;
  int64_t integer;
  double real;
  octavo_str text;
} octavo_value;

/* The `kind` of each struct that can grow. Never reused. Only checking hosts and tests read it. */
enum {
  OCTAVO_KIND_DIAGNOSTIC = 1,
  OCTAVO_KIND_VERDICT = 2,
  OCTAVO_KIND_VERDICT_SINK = 3,
  OCTAVO_KIND_HOST = 4,
  OCTAVO_KIND_PARALLEL = 5,
  OCTAVO_KIND_PLUGIN = 6,
  OCTAVO_KIND_SLOT = 7,
  OCTAVO_KIND_SLOT_SINK = 8,
  OCTAVO_KIND_OPTION = 9,
  OCTAVO_KIND_OPTION_SINK = 10,
  OCTAVO_KIND_SESSION_DESC = 11,
  OCTAVO_KIND_PARAMETER_DESC = 12,
  OCTAVO_KIND_LINEAR_DESC = 13,
  OCTAVO_KIND_LINEAR_PLAN = 14,
  OCTAVO_KIND_WEIGHT_CALL = 15,
  OCTAVO_KIND_FORWARD_CALL = 16,
  OCTAVO_KIND_BACKWARD_CALL = 17,
  OCTAVO_KIND_STEP_CALL = 18,
  OCTAVO_KIND_BACKEND = 19,
  OCTAVO_KIND_OPTIMIZER_CALL = 20,
  OCTAVO_KIND_NORM_CALL = 21,
  OCTAVO_KIND_PARAMETER_CALL = 22,
  OCTAVO_KIND_OPTIMIZER = 23,
  OCTAVO_KIND_KERNELS_CAPS = 24,
  OCTAVO_KIND_QUANTIZE = 25,
  OCTAVO_KIND_DEQUANTIZE = 26,
  OCTAVO_KIND_SCALE_FROM_AMAX = 27,
  OCTAVO_KIND_COMPUTE_AMAX = 28,
  OCTAVO_KIND_DELAYED_SCALE_UPDATE = 29,
  OCTAVO_KIND_GEMM = 30,
  OCTAVO_KIND_ADAM_STEP = 31,
  OCTAVO_KIND_SUM_QUANTIZED = 32,
  OCTAVO_KIND_SUM = 33,
  OCTAVO_KIND_COPY = 34,
  OCTAVO_KIND_SCALE_VALUES = 35,
  OCTAVO_KIND_KERNELS = 36,
  OCTAVO_KIND_GRADIENT_STAGE = 37,
  OCTAVO_KIND_GRADIENT_PLAN = 38,
  OCTAVO_KIND_GRADIENT_CALL = 39,
  OCTAVO_KIND_GRADIENTS = 40,
  OCTAVO_KIND_COLLECTIVE = 41,
  OCTAVO_KIND_OPEN_DESC = 42,
  OCTAVO_KIND_PRESCALE_UPDATE = 43,
  OCTAVO_KIND_QUANTIZE_STATS = 44,
  OCTAVO_KIND_PROLOGUE = 45,
  OCTAVO_KIND_PROLOGUE_CALL = 46,
  OCTAVO_KIND_FUSED = 47,
  OCTAVO_KIND_FUSED_FORWARD_CALL = 48,
  OCTAVO_KIND_GRADIENT_SCALE = 49,
  OCTAVO_KIND_PREPARE_CALL = 50,
  OCTAVO_KIND_PACK = 51
};

#endif

/* octavo/abi.h: versions, status codes and the basic value types of the plugin ABI.
 *
 * These rules hold for every header of the ABI:
 *   - A struct that can grow starts with {uint32_t size; uint32_t kind;}. `size` is the number of
 *     bytes through the last field that its writer knows. A reader uses min(its own size, `size`)
 *     bytes and treats the rest as zero. Zero always means "as before". Every writer knows the
 *     fields of minor 0: a smaller size may be refused with OCTAVO_INVALID. `kind` is one of
 *     OCTAVO_KIND_... below.
 *   - Never copy such a struct from the other side by assignment: that may read past its end. Copy
 *     it with OCTAVO_TAKE, and test for a field newer than minor 0 with OCTAVO_HAS.
 *   - The caller zeroes an output struct and sets `size` and `kind`. The callee writes at most
 *     `size` bytes.
 *   - Fields newer than minor 0 may be ignored by an older peer. A field that must not be ignored
 *     comes with a way to test for support: a new interface id, a flag, or a field that the peer
 *     fills in.
 *   - A function pointer in a plugin's table may be null or, if newer than minor 0, past `size`:
 *     the plugin does not implement it. The comment of each table names the functions that must
 *     be there: a host refuses a table without one, as liboctavo does. Tables of liboctavo are
 *     complete; a missing function is a stub that returns OCTAVO_UNSUPPORTED.
 *   - A struct marked "frozen" never changes within a major version. It has no size and kind, and
 *     only frozen structs may be elements of arrays.
 *   - Reserved fields and unused flags must be 0. Setup functions answer OCTAVO_INVALID to any
 *     other value. A pointer is not null unless its comment says that it may be.
 *   - Memory is freed by the side that allocated it. Strings and structs passed to a function are
 *     borrowed for the duration of the call; the callee, or the sink, copies what it keeps. Strings
 *     in a plugin's tables are static. octavo_verdict states the lifetime of its own.
 *   - No exception, longjmp or signal crosses the ABI.
 *   - Unknown enumerator values are valid input: return OCTAVO_UNSUPPORTED, never abort; where a
 *     function gives a verdict, DECLINE. OCTAVO_INVALID is for values that stay invalid. A host
 *     closes the session at what it could not call correctly, and keeps what only describes:
 *
 *       field                                          a host that does not know the value
 *       octavo_slot.role                               takes it for OCTAVO_ROLE_OTHER
 *       octavo_slot.granularity                        keeps it; the scales are not read
 *       octavo_slot.access of any verb, combine,       refuses the seal
 *         shard, owner_kind, dtype, a bit of flags
 *       octavo_slot.scale_slot                         refuses one that is not of role SCALE_INV
 *       octavo_slot_use.owner_kind, reserved           refuses the seal
 *       octavo_linear_plan.gradient, a bit of flags    refuses the seal
 *       octavo_verdict.decision, an option's type      refuses the answer, the options
 *
 *   - Numbers (kinds, roles, verbs, granularities, rules, dtypes, bits apart) from 0x8000 on are
 *     those of octavo/draft, numbers from 0x10000 on belong to vendors: the project never gives one
 *     out. Readers treat them as every other value that they do not know.
 *   - octavo/draft has the provisional part: what one method or one library needs. ABI 1.0 does not
 *     freeze it. Its interface ids and its numbers change when it changes; what a peer does not
 *     know by this id, it does not have.
 *   - Verbs of a backend answer OCTAVO_INVALID to an id that is not sealed and to a tensor of
 *     another shape, OCTAVO_UNSUPPORTED to one of codes, of an unknown dtype or with `reserved`,
 *     and then write nothing outside of the call's tensors. Pointers in lists, `saved` and
 *     workspaces are the host's to get right: no verb need look at them. A verb answers the status
 *     of its kernel that failed, and adds no diagnostic.
 *   - Where no status is stated for a call that breaks a rule, none is promised: it may be answered
 *     in any way, or be undefined.
 *   - Verbs of a backend do not look at flags that they do not know. So a host sets a flag of a
 *     later minor only in a call whose plan offered it. Kernels answer OCTAVO_UNSUPPORTED to an
 *     unknown flag, rule, granularity, order or rounding, and write nothing.
 */
#ifndef OCTAVO_ABI_H
#define OCTAVO_ABI_H

/* Generators of bindings define OCTAVO_DECLARATIONS_ONLY. What is left are typedefs, structs,
 * enums, constants and declarations of functions: no system header, attribute, assertion or inline
 * function. */
#if !defined(OCTAVO_DECLARATIONS_ONLY)
#include <stddef.h>
#include <stdint.h>
#endif

/* The SDK release. The build system reads it from these three lines. */
#define OCTAVO_VERSION_MAJOR 0
#define OCTAVO_VERSION_MINOR 1
#define OCTAVO_VERSION_PATCH 0

/* Identifies these headers until ABI 1.0 is released, for display: the candidate, whose number is
 * also in OCTAVO_PLUGIN_SYMBOL, and a hash of all declarations. */
#define OCTAVO_ABI_HEADERS "rc4-9f2240da"

#define OCTAVO_ABI_MAJOR 1
#define OCTAVO_ABI_MINOR 0 /* the newest minor version described by this header */
/* The oldest host minor version that a plugin accepts. Keep the default and test for newer fields
 * with OCTAVO_HAS; a higher target excludes older hosts. */
#ifndef OCTAVO_TARGET_MINOR
#define OCTAVO_TARGET_MINOR 0
#endif

#if defined(OCTAVO_DECLARATIONS_ONLY)
#define OCTAVO_EXTERN_C
#elif defined(__cplusplus)
#define OCTAVO_EXTERN_C extern "C"
#define OCTAVO_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define OCTAVO_EXTERN_C
#define OCTAVO_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#if defined(OCTAVO_DECLARATIONS_ONLY)
#define OCTAVO_EXPORT
#else
#define OCTAVO_EXPORT OCTAVO_EXTERN_C __attribute__((visibility("default")))
#endif

/* Number of bytes of `type` up to and including `field`. */
#define OCTAVO_SIZE_THROUGH(type, field) \
  ((uint32_t)(offsetof(type, field) + sizeof(((type *)0)->field)))
/* Nonzero if *pointer is new enough to contain `field`. */
#define OCTAVO_HAS(pointer, type, field) ((pointer)->size >= OCTAVO_SIZE_THROUGH(type, field))

/* Copies a growable struct: OCTAVO_TAKE(own, given), where `own` is a variable and `given` a
 * pointer. Bytes that both sides know are copied; the rest of `own` is zeroed. own.size becomes the
 * smaller of the two sizes, so OCTAVO_HAS gives the same result for the copy and the original. */
#define OCTAVO_TAKE(own, given) octavo_take(&(own), (uint32_t)sizeof(own), (given))
#if !defined(OCTAVO_DECLARATIONS_ONLY)
static inline void octavo_take(void *own, uint32_t own_size, const void *given) {
  const uint32_t given_size = *(const uint32_t *)given;
  const uint32_t size = given_size < own_size ? given_size : own_size;
  __builtin_memset(own, 0, own_size);
  __builtin_memcpy(own, given, size);
  *(uint32_t *)own = size;
}
OCTAVO_STATIC_ASSERT(sizeof(void *) == 8, "Octavo supports 64-bit targets only");
#if !defined(__GNUC__)
#error "Octavo's headers are for GCC and Clang: they use __attribute__ and __builtin_memcpy"
#endif
#endif

/* "No such id". */
#define OCTAVO_NONE 0xFFFFFFFFu

/* Every function of the ABI has one thread tag and one phase tag.
 *   THREAD_CONTROL  any thread; the session (of kernels: the ctx) is the call's alone. No other
 *                   call on it runs, and none that was queued is still at work
 *   THREAD_STREAM   any thread. Of two such calls one is ordered before the other if it writes,
 *                   updates or clears what the other reads or writes: a slot, `saved`, a workspace,
 *                   a tensor. Otherwise they may run at once. Both may accumulate into one slot:
 *                   kernels combine atomically. So quantize_weight, end_step and optimizer_step
 *                   exclude each forward and backward with their slots
 *   THREAD_ANY      any thread, at any time
 *   PHASE_SETUP     may allocate, lock and search
 *   PHASE_STEP      as PHASE_HOT, but may take long
 *   PHASE_HOT       must not allocate, lock, synchronize, look anything up by name or read device
 *                   memory from the host
 *
 * One call is ordered before another if it returned before the other began and, on a device, both
 * are on one stream or an event orders their streams. To order streams is the host's task. One ctx
 * of kernels serves any number of sessions and threads.
 *
 * On a device with streams a call is queued on `stream`: OCTAVO_OK means no more than that. Its
 * memory, workspaces included, is in use until the stream has passed it; its structs and lists are
 * not. Ordered calls may share a workspace. A failure on the device is reported by a later call on
 * it, or octavo_memory.synchronize, and by all that follow while it lasts: outputs since the last
 * synchronize are undefined, and a host continues from a checkpoint, in a new process if it lasts.
 * `stream` is what the device's own interface has (cudaStream_t, hipStream_t, sycl::queue *); null
 * is the default stream of that interface, of CUDA the legacy one. Kernels of a CPU do not read it;
 * pass null. A backend passes any value on to the kernels and reads none, on every device: a table
 * that a host puts in front of the kernels may give it another meaning. The thread's current device
 * need not be the session's, and is the same afterwards. */
#define OCTAVO_THREAD_CONTROL
#define OCTAVO_THREAD_STREAM
#define OCTAVO_THREAD_ANY
#define OCTAVO_PHASE_SETUP
#define OCTAVO_PHASE_STEP
#define OCTAVO_PHASE_HOT

/* Result of a function. Every value other than OCTAVO_OK is a failure, including values that the
 * caller does not know. The details are reported through octavo_host.diagnose before the function
 * returns, once, by who found them. */
typedef uint32_t octavo_status;
#define OCTAVO_OK 0u
#define OCTAVO_UNSUPPORTED 1u   /* valid, but not supported by this implementation */
#define OCTAVO_INVALID 2u       /* malformed argument: value, shape, an unknown id, or a null */
#define OCTAVO_WRONG_STATE 3u   /* valid call at the wrong time, or on a closed handle */
#define OCTAVO_INCOMPATIBLE 4u  /* incompatible versions */
#define OCTAVO_FAILED_DEVICE 5u /* the device or its driver failed */
#define OCTAVO_NO_RESOURCE 6u   /* memory, a file or another resource is missing or exhausted */
#define OCTAVO_INTERNAL 7u      /* a bug in the implementation */

/* UTF-8 text, not necessarily null-terminated. `data` may be null when size is 0. liboctavo reads
 * at most 4096 bytes of a plugin's text: of a longer one it shows the size only. It shows control
 * characters and bytes that are not UTF-8 as \n or \x1b, and refuses them in names of options and
 * slots and in values of options. Frozen. */
typedef struct octavo_str {
  const char *data;
  uint64_t size; /* bytes */
} octavo_str;

/* Initializer of an octavo_str from a string literal, for static tables: OCTAVO_STR("te"). */
#define OCTAVO_STR(literal) \
  { (literal), sizeof(literal) - 1 }

enum {
  OCTAVO_VALUE_INT = 1,
  OCTAVO_VALUE_REAL = 2,
  OCTAVO_VALUE_BOOL = 3, /* stored in `integer` as 0 or 1 */
  OCTAVO_VALUE_TEXT = 4,
  OCTAVO_VALUE_LIST = 5 /* of octavo_setting only: its `texts` */
};

/* A typed value. Members not selected by `type` are 0. Frozen. */
typedef struct octavo_value {
  uint32_t type; /* OCTAVO_VALUE_... */
  uint32_t reserved;
  int64_t integer;
  double real;
  octavo_str text;
} octavo_value;

/* The `kind` of each growable struct. Values are never reused. octavo_kernels.workspace_bytes uses
 * it to distinguish call structs; elsewhere a reader may check it, and need not. */
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
  OCTAVO_KIND_KERNELS_CAPS = 24,
  OCTAVO_KIND_QUANTIZE = 25,
  OCTAVO_KIND_DEQUANTIZE = 26,
  OCTAVO_KIND_SCALE_FROM_AMAX = 27,
  OCTAVO_KIND_COMPUTE_AMAX = 28,
  OCTAVO_KIND_DELAYED_SCALE_UPDATE = 29,
  OCTAVO_KIND_GEMM = 30,
  OCTAVO_KIND_SUM = 33,
  OCTAVO_KIND_COPY = 34,
  OCTAVO_KIND_KERNELS = 36,
  OCTAVO_KIND_COLLECTIVE = 41,
  OCTAVO_KIND_OPEN_DESC = 42,
  OCTAVO_KIND_QUANTIZE_STATS = 43,
  OCTAVO_KIND_PROLOGUE = 44,
  OCTAVO_KIND_PROLOGUE_CALL = 45,
  OCTAVO_KIND_FUSED = 46,
  OCTAVO_KIND_FUSED_FORWARD_CALL = 47,
  OCTAVO_KIND_PACK = 50,
  OCTAVO_KIND_MEMORY = 51,
  OCTAVO_KIND_ABILITY = 52,
  OCTAVO_KIND_SHARD_PLAN = 57,
  OCTAVO_KIND_SHARD_CALL = 58,
  OCTAVO_KIND_GATHERED_CALL = 59,
  OCTAVO_KIND_SHARD = 60,
  OCTAVO_KIND_SETTING = 61,
  OCTAVO_KIND_PLUGIN_INFO = 62
};

#endif

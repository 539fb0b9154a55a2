/* octavo/host.h: what a plugin may ask of its host: a place for diagnostics, and extensions.
 *
 * Implemented by liboctavo and by hosts; called by plugins and kernels. The host struct given to
 * octavo_plugin_query_v1 stays valid until the process ends.
 */
#ifndef OCTAVO_HOST_H
#define OCTAVO_HOST_H

#include "octavo/abi.h"

enum {
  OCTAVO_SEVERITY_DEBUG = 0,
  OCTAVO_SEVERITY_INFO = 1,
  OCTAVO_SEVERITY_WARNING = 2,
  OCTAVO_SEVERITY_ERROR = 3
};

/* One message. Sent at the moment of the failure; nothing is stored on the sender's side. A good
 * text says what was expected, what was found, where, and what to do. */
typedef struct octavo_diagnostic {
  uint32_t size;
  uint32_t kind;     /* OCTAVO_KIND_DIAGNOSTIC */
  int32_t code;      /* the octavo_status that the failing call will return, or 0 */
  uint32_t severity; /* OCTAVO_SEVERITY_... */
  octavo_str domain; /* who speaks: "octavo.config", "te", ... */
  octavo_str text;
  const octavo_str *keys;     /* [count], may be null */
  const octavo_value *values; /* [count], may be null */
  uint64_t count;
} octavo_diagnostic;

/* Where a verdict was reached. */
enum {
  OCTAVO_LEVEL_MANIFEST = 1,
  OCTAVO_LEVEL_PLUGIN = 2,
  OCTAVO_LEVEL_DEVICE = 3,
  OCTAVO_LEVEL_SESSION = 4,
  OCTAVO_LEVEL_LAYER = 5
};
/* Zero is the careful answer: a verdict that nobody filled is a refusal. */
enum {
  OCTAVO_DECLINE = 0,
  OCTAVO_ACCEPT = 1,
  OCTAVO_ACCEPT_EMULATED = 2 /* right numbers, no FP8 hardware behind them */
};
enum {
  OCTAVO_REASON_NONE = 0,
  OCTAVO_REASON_ABI = 1,       /* versions or tables do not fit */
  OCTAVO_REASON_DEVICE = 2,    /* the device is absent or cannot do it */
  OCTAVO_REASON_DRIVER = 3,    /* the driver is absent or too old */
  OCTAVO_REASON_KERNEL = 4,    /* the kernels table lacks an operation */
  OCTAVO_REASON_DTYPE = 5,     /* a dtype is not handled */
  OCTAVO_REASON_SHAPE = 6,     /* a shape is not handled */
  OCTAVO_REASON_OPTION = 7,    /* an option's value is not handled */
  OCTAVO_REASON_POLICY = 8,    /* the configuration says no */
  OCTAVO_REASON_TOO_SMALL = 9, /* FP8 would not be faster */
  OCTAVO_REASON_MANIFEST = 10, /* the manifest is missing, malformed or contradicts the library */
  OCTAVO_REASON_TRUST = 11,    /* owner, mode or hash of a file is not acceptable */
  OCTAVO_REASON_LIBRARY = 12,  /* the shared library is missing, unloadable or lacks its symbol */
  OCTAVO_REASON_PROBE = 13, /* the plugin crashed, hung or lied in the helper that tries it first */
  OCTAVO_REASON_LOCK = 14,  /* the lock file names another plugin, version, hash or verdict */
  OCTAVO_REASON_REQUIRE = 15, /* a requirement is not met: native FP8, AVX2, ... */
  OCTAVO_REASON_CONFIG = 16 /* the configuration cannot be read, or contradicts what is installed */
};

/* One answer to "can this run here?". The caller zeroes it and sets size and kind, the callee fills
 * the rest. Texts are static or live as long as the session that gave them. */
typedef struct octavo_verdict {
  uint32_t size;
  uint32_t kind;     /* OCTAVO_KIND_VERDICT */
  uint32_t level;    /* OCTAVO_LEVEL_... */
  uint32_t decision; /* OCTAVO_DECLINE, OCTAVO_ACCEPT, OCTAVO_ACCEPT_EMULATED */
  uint32_t reason;   /* OCTAVO_REASON_... */
  uint32_t reserved;
  octavo_str text;     /* one sentence for a person */
  octavo_str evidence; /* what was found: "capability 8.0", "trust = owner, mode 0777" */
  octavo_str remedy; /* what to do about it. One that begins "set KEY = VALUE", or "run `COMMAND`",
                        is shown as the exact edit of the configuration, too */
} octavo_verdict;

/* Receives verdicts one at a time; a struct that can grow never crosses in an array. */
typedef struct octavo_verdict_sink {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_VERDICT_SINK */
  void *ctx;
  void (*verdict)(void *ctx, const octavo_verdict *v);
} octavo_verdict_sink;

typedef struct octavo_host {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_HOST */
  uint32_t abi_major;
  uint32_t abi_minor;
  void *ctx;
  /* Never null. Returns at once; d and everything in it is valid during the call. */
  void (*diagnose)(void *ctx, const octavo_diagnostic *d) OCTAVO_THREAD_ANY;
  /* The extension with exactly this id, or null. Never null itself. Setup only. */
  const void *(*get_extension)(void *ctx, octavo_str id)OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_host;

/* Extension: the host's own thread pool, for CPU kernels. Without it kernels run on the calling
 * thread. Results never depend on it: kernels give equal bits for every number of threads. */
#define OCTAVO_PARALLEL_ID "octavo.parallel/1"
typedef struct octavo_parallel {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PARALLEL */
  void *ctx;
  /* Calls body(arg, b, e) for disjoint ranges that cover [begin, end), each of at least `grain`
   * indices where possible; returns when all are done. A body may not call parallel_for. */
  octavo_status (*parallel_for)(void *ctx, int64_t begin, int64_t end, int64_t grain,
                                void (*body)(void *arg, int64_t begin, int64_t end),
                                void *arg) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_parallel;

#endif

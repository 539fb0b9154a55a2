/* octavo/host.h: the services that a host offers to plugins: diagnostics and extensions.
 *
 * Implemented by liboctavo and by hosts; called by plugins and kernels. The octavo_host passed to
 * octavo_plugin_query_1 stays valid until the process exits, and the host of open_device until
 * close_device, the host of a session as long as the session.
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

/* A message, sent when a failure occurs; the sender keeps no copy. A good text states what was
 * expected, what was found, where, and how to correct it. */
typedef struct octavo_diagnostic {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_DIAGNOSTIC */
  octavo_status code; /* that the failing call returns, or OCTAVO_OK */
  uint32_t severity;  /* OCTAVO_SEVERITY_...; ERROR with a failure */
  octavo_str domain;  /* the sender: "octavo.config", "te", ... */
  octavo_str text;
} octavo_diagnostic;

/* The stage of a verdict: before the library is loaded, its tables, probe_device,
 * check_session, add_parameter and add_linear. */
enum {
  OCTAVO_LEVEL_MANIFEST = 1,
  OCTAVO_LEVEL_PLUGIN = 2,
  OCTAVO_LEVEL_DEVICE = 3,
  OCTAVO_LEVEL_SESSION = 4,
  OCTAVO_LEVEL_LAYER = 5
};
/* Zero is the safe default: a verdict that was never filled in is a refusal. */
enum {
  OCTAVO_DECLINE = 0,
  OCTAVO_ACCEPT = 1,
  OCTAVO_ACCEPT_EMULATED = 2 /* correct results, but without FP8 hardware */
};
enum {
  OCTAVO_REASON_NONE = 0,
  OCTAVO_REASON_ABI = 1,       /* incompatible versions or tables */
  OCTAVO_REASON_DEVICE = 2,    /* the device is absent or not capable */
  OCTAVO_REASON_DRIVER = 3,    /* the driver is absent or too old */
  OCTAVO_REASON_KERNEL = 4,    /* the kernels table lacks an operation */
  OCTAVO_REASON_DTYPE = 5,     /* unsupported dtype */
  OCTAVO_REASON_SHAPE = 6,     /* unsupported shape */
  OCTAVO_REASON_OPTION = 7,    /* unsupported value of an option */
  OCTAVO_REASON_POLICY = 8,    /* disabled by the configuration, or by an option of the backend */
  OCTAVO_REASON_TOO_SMALL = 9, /* FP8 would not be faster */
  OCTAVO_REASON_MANIFEST = 10, /* the manifest is missing, malformed or contradicts the library */
  OCTAVO_REASON_TRUST = 11,    /* unacceptable owner, mode or hash of a file */
  OCTAVO_REASON_LIBRARY = 12,  /* the library is missing, unloadable or lacks its symbol */
  OCTAVO_REASON_PROBE = 13,    /* the plugin crashed, hung or gave wrong answers in its trial */
  OCTAVO_REASON_LOCK = 14,     /* the lock file has another plugin, version, hash or verdict */
  OCTAVO_REASON_REQUIRE = 15,  /* a requirement is not met: native FP8, AVX2, ... */
  OCTAVO_REASON_CONFIG = 16, /* the configuration is unreadable, or contradicts what is installed */
  OCTAVO_REASON_RESOURCE = 17 /* a check could not be made: no memory, descriptors, processes */
};

/* The answer to "can this run here?". The caller zeroes it and sets size and kind; the callee fills
 * in the rest. Its strings are static or live as long as the session that returned them; what a
 * sink receives is valid during the call. */
typedef struct octavo_verdict {
  uint32_t size;
  uint32_t kind;     /* OCTAVO_KIND_VERDICT */
  uint32_t level;    /* OCTAVO_LEVEL_... */
  uint32_t decision; /* OCTAVO_DECLINE, OCTAVO_ACCEPT, OCTAVO_ACCEPT_EMULATED */
  uint32_t reason;   /* OCTAVO_REASON_... */
  uint32_t reserved;
  octavo_str text;     /* one sentence, for display */
  octavo_str evidence; /* what was found: "capability 8.0", "trust = owner, mode 0777" */
  octavo_str remedy;   /* what to do; one sentence, for display */
  /* The remedy as liboctavo applies it, shown as an exact edit of the configuration: a key with its
   * new value, or a command. Each may be empty. */
  octavo_str remedy_key;     /* "fp8.te.recipe" */
  octavo_str remedy_value;   /* in TOML: "\"current\"" */
  octavo_str remedy_command; /* for a shell, instead of key and value: "nvidia-smi" */
} octavo_verdict;

/* Receives verdicts one at a time, because growable structs are never passed in arrays. */
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
  /* Never null. Must return promptly, but may take a short lock. `d` and everything it refers to is
   * valid during the call. */
  void (*diagnose)(void *ctx, const octavo_diagnostic *d) OCTAVO_THREAD_ANY;
  /* Returns the extension with exactly this id, or null. The pointer itself is never null. */
  const void *(*get_extension)(void *ctx, octavo_str id)OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_host;

/* What ranks do together. Hosts refuse a value that they do not know. */
enum {
  OCTAVO_COLLECTIVE_NONE = 0,
  OCTAVO_COLLECTIVE_ALL_REDUCE_MAX = 1,
  OCTAVO_COLLECTIVE_ALL_REDUCE_SUM = 2,
  OCTAVO_COLLECTIVE_ALL_TO_ALL = 3,
  OCTAVO_COLLECTIVE_ALL_GATHER = 4,
  OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM = 5
};

/* Extension: the host's thread pool, for CPU kernels. Without it, kernels run on the calling
 * thread. Results do not depend on it: kernels produce the same bits for any number of threads. */
#define OCTAVO_PARALLEL_ID "octavo.parallel/1"
typedef struct octavo_parallel {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PARALLEL */
  void *ctx;
  /* Calls body(arg, b, e) for disjoint ranges that cover [begin, end), or a part if it fails, each
   * of `grain` >= 1 indices or more where possible. Returns when all have; not from a body. A
   * status other than OCTAVO_OK is the answer of the kernels' call, which adds no diagnostic. */
  octavo_status (*parallel_for)(void *ctx, int64_t begin, int64_t end, int64_t grain,
                                void (*body)(void *arg, int64_t begin, int64_t end),
                                void *arg) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_parallel;

#endif

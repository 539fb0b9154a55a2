/* octavo/octavo.h: the host API of liboctavo. Plugins do not see it.
 *
 *   octavo_open          config + hardware + plugins -> a run: one chosen backend and its session
 *   octavo_add_*, seal   describe the model; each linear is placed, or stays with the host
 *   octavo_store_*       optional: allocates the slots and builds the pointer lists (CPU memory)
 *   octavo_backend_of    the table for the hot path: no function of liboctavo lies on it
 *   octavo_report        what was asked, what was tried, what runs, where each layer went
 *
 * Functions here are THREAD_CONTROL and PHASE_SETUP unless they say otherwise: one thread at a time
 * per object, they may allocate and search, and they never print. Failures go to host->diagnose,
 * then come back as a status. Pointers returned live until octavo_close. A function that returns a
 * status refuses a null object or result with OCTAVO_INVALID; the others want a valid one, and
 * closing null does nothing.
 */
#ifndef OCTAVO_OCTAVO_H
#define OCTAVO_OCTAVO_H

#include "octavo/fused.h"
#include "octavo/gradients.h"
#include "octavo/kernels.h"
#include "octavo/optimizer.h"
#include "octavo/plugin.h"

/* The version of liboctavo at run time, "0.1.0". THREAD_ANY. */
OCTAVO_EXPORT octavo_str octavo_version(void);

/* What to open. Sources in rising order of precedence: defaults, the file, the environment
 * (OCTAVO_MIXED_PRECISION, OCTAVO_BACKEND), `overrides`. */
typedef struct octavo_open_desc {
  uint32_t size;
  uint32_t kind;          /* OCTAVO_KIND_OPEN_DESC */
  octavo_str config_path; /* read when config_text.data is null; named in messages; its directory's
                             `plugins` folder is searched. Empty and no text: defaults only */
  octavo_str config_text; /* TOML */
  const octavo_option_value *overrides; /* dotted keys: {"fp8.te.recipe", text "delayed"} */
  uint64_t override_count;
  const octavo_str *plugin_dirs; /* directories of a language binding or package */
  uint64_t plugin_dir_count;
  octavo_device device;    /* OCTAVO_DEVICE_AUTO: as the config says */
  const octavo_host *host; /* lives as long as the run; null: no diagnostics, kernels on the
                              calling thread */
} octavo_open_desc;

/* Receives text, one line a call, without the line end. */
typedef void (*octavo_line)(void *ctx, octavo_str text);

typedef struct octavo_run octavo_run;

/* Negotiates and opens. OCTAVO_INVALID: the configuration is wrong; OCTAVO_UNSUPPORTED: nothing
 * that it allows can run here, and the diagnostic lists every candidate with its reasons. */
OCTAVO_EXPORT octavo_status octavo_open(const octavo_open_desc *desc, octavo_run **out);
OCTAVO_EXPORT void octavo_close(octavo_run *r);

/* Formats of the five functions below: "text", "tree" or "json". */

/* Negotiates without opening and says what would run and why. Same status as octavo_open. */
OCTAVO_EXPORT octavo_status octavo_explain(const octavo_open_desc *desc, octavo_str format,
                                           octavo_line line, void *ctx);
/* Every plugin that the search path holds, shadowed ones included. */
OCTAVO_EXPORT octavo_status octavo_list(const octavo_open_desc *desc, octavo_str format,
                                        octavo_line line, void *ctx);
/* Processor, memory, driver and devices of this machine, and how every plugin of the search path
 * fares in the helper process that tries it first. */
OCTAVO_EXPORT octavo_status octavo_probe(const octavo_open_desc *desc, octavo_str format,
                                         octavo_line line, void *ctx);
/* The effective configuration, every key with its origin. */
OCTAVO_EXPORT octavo_status octavo_check_config(const octavo_open_desc *desc, octavo_str format,
                                                octavo_line line, void *ctx);
/* Writes octavo.lock beside the configuration file: version, ABI and hashes of every backend that
 * it names, and a digest of what each answers here. With plugins.locked = true nothing else is
 * loaded. `line` receives what was written. */
OCTAVO_EXPORT octavo_status octavo_lock(const octavo_open_desc *desc, octavo_line line, void *ctx);
/* As octavo_explain, for a run, with the placement of every layer and bytes by slot role. */
OCTAVO_EXPORT octavo_status octavo_report(const octavo_run *r, octavo_str format, octavo_line line,
                                          void *ctx);

/* Describe the model. The verdict of add_linear says whether the layer runs through the backend:
 * OCTAVO_DECLINE with OCTAVO_OK means that the host keeps its own linear. `layers.skip`,
 * `layers.min_gain` and a mixed_precision other than "fp8" are answered here, for every backend
 * alike. `v` may be null. */
OCTAVO_EXPORT octavo_status octavo_add_parameter(octavo_run *r, const octavo_parameter_desc *d,
                                                 octavo_verdict *v, uint32_t *id);
OCTAVO_EXPORT octavo_status octavo_add_linear(octavo_run *r, const octavo_linear_desc *d,
                                              octavo_verdict *v, uint32_t *id);
OCTAVO_EXPORT octavo_status octavo_seal(octavo_run *r);

/* What the seals emitted. Ids are dense; null when out of range. */
OCTAVO_EXPORT uint32_t octavo_slot_count(const octavo_run *r);
OCTAVO_EXPORT const octavo_slot *octavo_get_slot(const octavo_run *r, uint32_t id);
OCTAVO_EXPORT uint32_t octavo_use_count(const octavo_run *r, uint32_t owner_kind, uint32_t owner);
OCTAVO_EXPORT const octavo_slot_use *octavo_get_use(const octavo_run *r, uint32_t owner_kind,
                                                    uint32_t owner, uint32_t index);
OCTAVO_EXPORT const octavo_linear_plan *octavo_get_plan(const octavo_run *r, uint32_t linear);

/* The chosen backend's tables, complete: stubs answer OCTAVO_UNSUPPORTED where it has nothing. With
 * mixed_precision other than "fp8" there is no backend and all of these are null. */
OCTAVO_EXPORT const octavo_backend *octavo_backend_of(const octavo_run *r);
OCTAVO_EXPORT const octavo_optimizer *octavo_optimizer_of(const octavo_run *r); /* null: none */
OCTAVO_EXPORT const octavo_gradients *octavo_gradients_of(const octavo_run *r); /* null: none */
OCTAVO_EXPORT const octavo_fused *octavo_fused_of(const octavo_run *r);         /* null: none */
OCTAVO_EXPORT octavo_session *octavo_session_of(const octavo_run *r);
/* What the session was opened with: kernels, caps, options. For tools and tests that open their own
 * session on a wrapped kernels table. */
OCTAVO_EXPORT const octavo_session_desc *octavo_session_desc_of(const octavo_run *r);

/* What runs: "no", "fp16", "bf16" or "fp8"; and the backend's id, empty without one. */
OCTAVO_EXPORT octavo_str octavo_precision_of(const octavo_run *r);
OCTAVO_EXPORT octavo_str octavo_backend_id_of(const octavo_run *r);

/* Store: slots in host memory, for hosts without a tensor library. Allocates every slot that is not
 * native, filled with its initial value, and keeps one pointer list per object and verb. Call
 * extend after each seal; old addresses stay. */
typedef struct octavo_store octavo_store;
OCTAVO_EXPORT octavo_status octavo_store_open(const octavo_run *r, octavo_store **out);
/* As octavo_store_open for one rank of `world`. Slots with OCTAVO_SHARD_WHOLE are allocated on one
 * rank only, the owner of their parameter: of each seal's parameters the largest first, each to the
 * rank that holds least so far (ZeRO's greedy assignment; equal on every rank). Elsewhere their
 * positions in the lists are null, and the host does not step those parameters. */
OCTAVO_EXPORT octavo_status octavo_store_open_sharded(const octavo_run *r, uint32_t rank,
                                                      uint32_t world, octavo_store **out);
/* The rank that keeps this parameter's WHOLE slots and steps it; this store's own rank for a
 * parameter without such slots, which every rank steps. OCTAVO_NONE: no such parameter. THREAD_ANY,
 * PHASE_HOT. */
OCTAVO_EXPORT uint32_t octavo_store_owner(const octavo_store *s, uint32_t parameter);
OCTAVO_EXPORT octavo_status octavo_store_extend(octavo_store *s);
/* Hands in the host's own tensor for the native slot of this parameter and role. */
OCTAVO_EXPORT octavo_status octavo_store_native(octavo_store *s, uint32_t parameter, uint32_t role,
                                                void *data);
/* The list to pass as call.slots; never null, valid until the next extend or native.
 * THREAD_ANY, PHASE_HOT. */
OCTAVO_EXPORT void *const *octavo_store_list(const octavo_store *s, uint32_t verb,
                                             uint32_t owner_kind, uint32_t owner);
OCTAVO_EXPORT void *octavo_store_address(const octavo_store *s, uint32_t slot);
/* Bytes allocated for slots of this role; role 0: of all. */
OCTAVO_EXPORT uint64_t octavo_store_bytes(const octavo_store *s, uint32_t role);
/* Fills the slots of this role that are not native with zero bytes, which is 0 in every dtype: for
 * gradients, after the optimizer step. */
OCTAVO_EXPORT octavo_status octavo_store_clear(octavo_store *s, uint32_t role);
OCTAVO_EXPORT void octavo_store_close(octavo_store *s);

/* Checkpoints: the slots with OCTAVO_SLOT_CHECKPOINT in files of the safetensors format, one file a
 * rank: <directory>/rank-0000-of-0002.safetensors. Native tensors are the host's own to save. A
 * checkpoint has a directory of its own, which all ranks can read. Both are due between steps:
 * after end_step, before the next quantize_weight.
 *
 * save: every rank of the store's world, with the same `step`, the host's own count. Creates the
 * directory. A file appears complete or not at all, and an old one of its name stays until then.
 * OCTAVO_WRONG_STATE: the directory holds ranks of another world, or a seal was not followed by
 * octavo_store_extend; OCTAVO_RESOURCE: the system cannot write there. */
OCTAVO_EXPORT octavo_status octavo_store_save(const octavo_store *s, octavo_str directory,
                                              uint64_t step);
/* load: into a store of the same model, backend and options, on any number of ranks: every WHOLE
 * slot comes from the file that holds it. Slots that are not in a checkpoint get their initial
 * values, so the store is as it was at that step; quantize_weight is due for every weight. `step`
 * may be null. All or nothing: on failure no byte of the store has changed. OCTAVO_INVALID: a
 * damaged file, ranks of different worlds or steps, another backend, option, model or label;
 * OCTAVO_VERSION: written by a later schema; OCTAVO_RESOURCE: a file is missing or unreadable;
 * OCTAVO_WRONG_STATE: as above. */
OCTAVO_EXPORT octavo_status octavo_store_load(octavo_store *s, octavo_str directory,
                                              uint64_t *step);

/* bytes(M) of an extent. THREAD_ANY, PHASE_HOT. */
static inline uint64_t octavo_extent_bytes(const octavo_extent *e, uint64_t rows) {
  return (rows + e->row_multiple - 1) / e->row_multiple * e->row_multiple * e->bytes_per_row +
         e->fixed_bytes;
}

/* Threads: octavo.parallel/1 for hosts without a pool of their own. `threads` counts the caller;
 * 0: one per core that this process may use. */
typedef struct octavo_threads octavo_threads;
OCTAVO_EXPORT octavo_status octavo_threads_open(uint32_t threads, octavo_threads **out);
OCTAVO_EXPORT const octavo_parallel *octavo_threads_parallel(const octavo_threads *t);
OCTAVO_EXPORT void octavo_threads_close(octavo_threads *t);

/* Collectives that the host provides to the functions below: host API, not plugin ABI. Every rank
 * makes the same calls in the same order. */
typedef struct octavo_collective {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COLLECTIVE */
  void *ctx;
  uint32_t world;
  uint32_t reserved;
  /* Counts are elements. ALL_REDUCE_*: equal counts, f32. ALL_TO_ALL: `world` parts each way.
   * ALL_GATHER: recv_count = world * send_count. REDUCE_SCATTER_SUM: send_count = world *
   * recv_count, f32. Sums are taken in the order of the ranks. An all-reduce may be in place, send
   * == recv; otherwise they do not overlap. */
  octavo_status (*run)(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                       uint64_t send_count, void *recv, uint64_t recv_count, void *stream);
  /* Copies `bytes` of rank `root` to every rank; null: this host cannot, and sharding is refused.
   */
  octavo_status (*broadcast)(void *ctx, uint32_t root, void *data, uint64_t bytes, void *stream);
} octavo_collective;

/* Ranks as threads of one process, for tests, benches and programs without a launcher: each rank
 * uses its own collective from its own thread. Sums run in rank order, so results are equal on
 * every rank and in every run. */
typedef struct octavo_ranks octavo_ranks;
OCTAVO_EXPORT octavo_status octavo_ranks_open(uint32_t world, octavo_ranks **out);
/* The table of one rank, or null when rank >= world. */
OCTAVO_EXPORT const octavo_collective *octavo_ranks_collective(octavo_ranks *r, uint32_t rank);
/* Every call that waits or comes later answers OCTAVO_DEVICE: what a rank that fails calls, so that
 * the others do not wait for it. THREAD_ANY. */
OCTAVO_EXPORT void octavo_ranks_abort(octavo_ranks *r);
OCTAVO_EXPORT void octavo_ranks_close(octavo_ranks *r);

/* Combines every slot with OCTAVO_SLOT_REDUCE over the ranks; due before optimizer_step and
 * end_step. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_store_reduce(octavo_store *s, const octavo_collective *c,
                                                void *stream);
/* After a sharded optimizer_step: sends what it wrote outside of WHOLE slots (the weight, its
 * scale_inv) from each parameter's owner to the other ranks; native tensors, too. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_store_publish(octavo_store *s, const octavo_collective *c,
                                                 void *stream);
/* Sizes for octavo_reduce_gradients of this bucket: of send and recv each, and of state. */
OCTAVO_EXPORT octavo_status octavo_reduction_bytes(const octavo_run *r, const uint32_t *parameters,
                                                   uint64_t count, uint32_t world,
                                                   uint64_t *buffer_bytes, uint64_t *state_bytes);

/* Drives plan_reduction and run_stage of one bucket for a host with blocking collectives. send and
 * recv are each as long as the longest stage; state has plan.state_bytes. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_reduce_gradients(octavo_run *r,
                                                    const octavo_parameter_item *items,
                                                    uint64_t count, const octavo_collective *c,
                                                    void *send, void *recv, void *state,
                                                    void *stream);

#endif

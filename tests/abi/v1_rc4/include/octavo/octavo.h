/* octavo/octavo.h: the host API of liboctavo. Plugins do not use it.
 *
 *   octavo_open          configuration + hardware + plugins -> a run: one backend and its session
 *   octavo_add_*, seal   describe the model; each linear is accepted or stays with the host
 *   octavo_store_*       optional: allocate the slots and build the slot lists
 *   octavo_run_backend    the table for the hot path, on which no function of liboctavo is called
 *   octavo_report        what was requested, what was tried, what runs, where each layer went
 *
 * The words of a report are for people and change between releases. Programs read the same as
 * values: octavo_settings, octavo_run_setting, octavo_run_option, octavo_run_plugin.
 *
 * Unless stated otherwise, functions are THREAD_CONTROL and PHASE_SETUP: one call at a time per
 * object, and they may allocate and search. They never print. A failure is reported through
 * host->diagnose and then returned as a status. Returned pointers are owned by the run and valid
 * until octavo_close.
 *
 * A function that returns a status returns OCTAVO_INVALID for a null object or result and reports
 * which argument it was, if a host is known. The other functions require valid arguments; closing
 * null does nothing.
 *
 * octavo_run, octavo_store, octavo_threads and octavo_ranks are opaque handles; a closed one is
 * detected. With a closed handle, functions return OCTAVO_WRONG_STATE, 0 or null, and closing it
 * again does nothing. A store keeps its memory and lists after its run is closed, until it is
 * closed itself. Open handles may be leaked at exit. A child process after fork may use and close
 * the handles that it inherits; in the child, parallel_for runs on the calling thread only and
 * collectives return OCTAVO_WRONG_STATE.
 */
#ifndef OCTAVO_OCTAVO_H
#define OCTAVO_OCTAVO_H

#include "octavo/fused.h"
#include "octavo/memory.h"
#include "octavo/plugin.h"
#include "octavo/shard.h"

/* The version of liboctavo at run time, "0.1.0". THREAD_ANY. */
OCTAVO_EXPORT octavo_str octavo_version(void);

/* What to open. Settings come from these sources, later ones taking precedence: defaults, the file,
 * the environment (OCTAVO_MIXED_PRECISION, OCTAVO_BACKEND), `overrides`. */
typedef struct octavo_open_desc {
  uint32_t size;
  uint32_t kind;          /* OCTAVO_KIND_OPEN_DESC */
  octavo_str config_path; /* the file, read if config_text.data is null; appears in messages, and
                             relative paths start at its folder. Empty and no text: defaults */
  octavo_str config_text; /* TOML, used instead of the content of the file */
  const octavo_option_value *overrides; /* dotted keys: {"fp8.te.recipe", text "delayed"} */
  uint64_t override_count;
  const octavo_str *plugin_dirs; /* additional directories, such as those of a language binding;
                                    absolute, others are ignored with a warning */
  uint64_t plugin_dir_count;
  octavo_device device;    /* OCTAVO_DEVICE_AUTO: as configured */
  const octavo_host *host; /* must outlive the run; null: no diagnostics, and kernels run on the
                              calling thread */
} octavo_open_desc;

/* Receives text line by line, without the line ending. `text` is valid during the call. */
typedef void (*octavo_line)(void *ctx, octavo_str text);

/* A run: one backend's session for one model, the placement of every layer, and the report. */
typedef struct octavo_run octavo_run;

/* Negotiates and opens a run; close it with octavo_close. A null `desc` is an empty one. Returns
 * OCTAVO_INVALID if the configuration is wrong, and OCTAVO_UNSUPPORTED if nothing that it allows
 * can run on this machine; the diagnostic then lists every candidate with its reasons. */
OCTAVO_EXPORT octavo_status octavo_open(const octavo_open_desc *desc, octavo_run **out);
/* Closes a run. No call on it may be in flight. */
OCTAVO_EXPORT void octavo_close(octavo_run *r);

/* In the functions below, `format` is "text", "tree" or "json". */

/* Negotiates without opening a run and reports what would run and why. Returns the status that
 * octavo_open would return. */
OCTAVO_EXPORT octavo_status octavo_explain(const octavo_open_desc *desc, octavo_str format,
                                           octavo_line line, void *ctx);
/* Lists every plugin in the search path, including shadowed ones. */
OCTAVO_EXPORT octavo_status octavo_list(const octavo_open_desc *desc, octavo_str format,
                                        octavo_line line, void *ctx);
/* Reports the processor, memory, driver and devices of this machine, and the result of the trial of
 * every plugin in the search path in the helper process. */
OCTAVO_EXPORT octavo_status octavo_probe(const octavo_open_desc *desc, octavo_str format,
                                         octavo_line line, void *ctx);
/* Reports the effective configuration: every key with its value and origin. The format "schema"
 * gives the JSON Schema of octavo.toml, with the options of every backend in the search path. */
OCTAVO_EXPORT octavo_status octavo_check_config(const octavo_open_desc *desc, octavo_str format,
                                                octavo_line line, void *ctx);

/* One value in effect: of a key of the configuration, or of an option of the backend. */
typedef struct octavo_setting {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_SETTING */
  octavo_str name;    /* a dotted key, "fp8.te.recipe", or an option, "recipe" */
  octavo_value value; /* of type OCTAVO_VALUE_LIST: the elements are in `texts` */
  const octavo_str *texts;
  uint64_t text_count;
  octavo_str origin; /* "octavo.toml:3:1", the name of a variable, "override" or "default"; "host"
                        if octavo_linear_desc.options gives it */
} octavo_setting;

/* Receives one setting. It is valid during the call. */
typedef void (*octavo_take_setting)(void *ctx, const octavo_setting *setting);

/* Passes every key of the effective configuration to `take`, each once: those that
 * octavo_check_config reports, in its order. No code of a plugin runs. Returns what
 * octavo_check_config returns; OCTAVO_UNSUPPORTED follows the settings, any other failure comes
 * without them. */
OCTAVO_EXPORT octavo_status octavo_settings(const octavo_open_desc *desc, octavo_take_setting take,
                                            void *ctx);

/* Writes octavo.lock next to the configuration file: version, ABI and hashes of every backend that
 * the configuration names, and a digest of the answers of each on this machine. With plugins.locked
 * = true, liboctavo loads nothing else. `line` receives what was written. */
OCTAVO_EXPORT octavo_status octavo_lock(const octavo_open_desc *desc, octavo_line line, void *ctx);
/* As octavo_explain, for an open run: also the placement of every layer and the bytes per role. */
OCTAVO_EXPORT octavo_status octavo_report(const octavo_run *r, octavo_str format, octavo_line line,
                                          void *ctx);

/* Describe the model. The verdict of octavo_add_linear determines whether the layer runs through
 * the backend: OCTAVO_OK with OCTAVO_DECLINE means that the host keeps its own linear; *id is then
 * OCTAVO_NONE. liboctavo itself applies `layers.skip`, `layers.min_gain` and a mixed_precision
 * other than "fp8", for every backend in the same way. `v` may be null. octavo_seal ends a batch of
 * additions; slots and plans of the batch exist afterwards. A name that is taken is refused. */
OCTAVO_EXPORT octavo_status octavo_add_parameter(octavo_run *r, const octavo_parameter_desc *d,
                                                 octavo_verdict *v, uint32_t *id);
OCTAVO_EXPORT octavo_status octavo_add_linear(octavo_run *r, const octavo_linear_desc *d,
                                              octavo_verdict *v, uint32_t *id);
OCTAVO_EXPORT octavo_status octavo_seal(octavo_run *r);

/* What the seals emitted. Ids count from 0; returns null for an id out of range. */
OCTAVO_EXPORT uint32_t octavo_run_slot_count(const octavo_run *r);
OCTAVO_EXPORT const octavo_slot *octavo_run_slot(const octavo_run *r, uint32_t id);
/* The key of a slot in checkpoints, the same in every host, run and process with an equal model and
 * backend: "parameter/<its name>/<slot name>", "linear/<its name>/<slot name>" or
 * "session/<slot name>". Where a slot before has that key, such as a pool of an earlier seal, the
 * first of "@2", "@3", ... is appended that makes a new one: keys are distinct. Empty for an id out
 * of range. */
OCTAVO_EXPORT octavo_str octavo_run_slot_key(const octavo_run *r, uint32_t id);
/* Copies the codes of a slot to `out`: rows * cols elements in row-major order, also of a slot with
 * OCTAVO_SLOT_PACKED. `memory` is the slot's; both are in CPU memory and do not overlap. Returns
 * OCTAVO_UNSUPPORTED for packed codes if the kernels offer octavo.memory/1. */
OCTAVO_EXPORT octavo_status octavo_run_codes(const octavo_run *r, uint32_t slot, const void *memory,
                                             void *out);
OCTAVO_EXPORT uint32_t octavo_run_use_count(const octavo_run *r, uint32_t owner_kind,
                                            uint32_t owner);
OCTAVO_EXPORT const octavo_slot_use *octavo_run_use(const octavo_run *r, uint32_t owner_kind,
                                                    uint32_t owner, uint32_t index);
OCTAVO_EXPORT const octavo_linear_plan *octavo_run_plan(const octavo_run *r, uint32_t linear);

/* The tables of the chosen backend. They are complete: a function that the backend does not
 * implement is a stub that returns OCTAVO_UNSUPPORTED. If mixed_precision is not "fp8", there is no
 * backend and all of these return null. */
OCTAVO_EXPORT const octavo_backend *octavo_run_backend(const octavo_run *r);
/* The table of an optional interface with exactly this id, or null: complete as above for an id
 * that this liboctavo knows, the plugin's own table for another one. OCTAVO_MEMORY_ID gives the
 * memory interface of the run's device, whose ctx is kernels_ctx of octavo_run_session_desc; it is
 * null if the kernels do not offer it. */
OCTAVO_EXPORT const void *octavo_run_interface(const octavo_run *r, octavo_str id);
OCTAVO_EXPORT octavo_session *octavo_run_session(const octavo_run *r);
/* The description with which the session was opened: kernels, capabilities, options. For tools and
 * tests that open their own session on a wrapped kernels table. */
OCTAVO_EXPORT const octavo_session_desc *octavo_run_session_desc(const octavo_run *r);

/* The precision in use, "no", "fp16", "bf16" or "fp8", and the backend's id, empty if none. */
OCTAVO_EXPORT octavo_str octavo_run_precision(const octavo_run *r);
OCTAVO_EXPORT octavo_str octavo_run_backend_id(const octavo_run *r);

/* The plugin of the chosen backend. */
typedef struct octavo_plugin_info {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_PLUGIN_INFO */
  octavo_str id;      /* "te" */
  octavo_str version; /* "0.1.0" */
  octavo_str library; /* the path of its file */
  octavo_str sha256;  /* of the file: 64 hexadecimal digits */
} octavo_plugin_info;
/* Null if there is no backend. */
OCTAVO_EXPORT const octavo_plugin_info *octavo_run_plugin(const octavo_run *r);

/* The value of one key of the configuration with which the run was opened, such as
 * "distributed.timeout_s" or "fp8.te.recipe". Null for a key that octavo_settings does not have. */
OCTAVO_EXPORT const octavo_setting *octavo_run_setting(const octavo_run *r, octavo_str key);
/* The options of the chosen backend, in its order. `linear` is OCTAVO_NONE: all options of the
 * session. Otherwise those of this linear whose values differ from the session's, by a rule of the
 * configuration or by octavo_linear_desc.options, from octavo_add_linear on. The count is 0 and the
 * setting null if there is no such option, linear or backend. */
OCTAVO_EXPORT uint32_t octavo_run_option_count(const octavo_run *r, uint32_t linear);
OCTAVO_EXPORT const octavo_setting *octavo_run_option(const octavo_run *r, uint32_t linear,
                                                      uint32_t index);

/* Store: slot memory for hosts without a tensor library, in device memory if the run has an
 * octavo_memory, otherwise in host memory. It allocates every slot that is not native, filled with
 * its initial value, and keeps one slot list per object and verb. Close it with octavo_store_close.
 * octavo_store_open returns OCTAVO_UNSUPPORTED if the device has its own memory but the kernels do
 * not offer octavo_memory, and OCTAVO_WRONG_STATE before octavo_seal covers all that was added. */
typedef struct octavo_store octavo_store;
OCTAVO_EXPORT octavo_status octavo_store_open(const octavo_run *r, octavo_store **out);
/* As octavo_store_open, for one rank of `world`. A slot with OCTAVO_SHARD_WHOLE is allocated on one
 * rank only, the owner of its parameter. The parameters of each seal are assigned from the largest
 * to the smallest, each to the rank with the fewest bytes so far (ZeRO's greedy assignment,
 * identical on every rank). On the other ranks, the entries of such slots are null and the host
 * does not step the parameter. */
OCTAVO_EXPORT octavo_status octavo_store_open_sharded(const octavo_run *r, uint32_t rank,
                                                      uint32_t world, octavo_store **out);
/* The rank that stores the parameter's WHOLE slots and steps it; the store's own rank for a
 * parameter without such slots, which every rank steps; OCTAVO_NONE if there is no such parameter.
 * THREAD_ANY, PHASE_HOT. */
OCTAVO_EXPORT uint32_t octavo_store_owner(const octavo_store *s, uint32_t parameter);
/* Allocates the slots of later seals; call it after each. Existing slots keep their addresses.
 * Returns OCTAVO_WRONG_STATE before octavo_seal covers all that was added. */
OCTAVO_EXPORT octavo_status octavo_store_extend(octavo_store *s);
/* Sets the memory of a native slot to the host's tensor `data`, which the host continues to own. */
OCTAVO_EXPORT octavo_status octavo_store_native(octavo_store *s, uint32_t parameter, uint32_t role,
                                                void *data);
/* The slot list to pass in a call. Never null; valid until the next octavo_store_extend or
 * octavo_store_native. A seal makes the session's list longer, so call octavo_store_extend before
 * the next end_step. THREAD_ANY, PHASE_HOT. */
OCTAVO_EXPORT void *const *octavo_store_slots(const octavo_store *s, uint32_t verb,
                                              uint32_t owner_kind, uint32_t owner);
/* The address of a slot; null if it is out of range or not allocated here. */
OCTAVO_EXPORT void *octavo_store_address(const octavo_store *s, uint32_t slot);
/* Bytes allocated for the slots of this role; of all roles if `role` is 0. */
OCTAVO_EXPORT uint64_t octavo_store_bytes(const octavo_store *s, uint32_t role);
/* Sets all slots of this role that are not native to 0: gradients after an optimizer step. Role 0
 * is OCTAVO_INVALID. */
OCTAVO_EXPORT octavo_status octavo_store_clear(octavo_store *s, uint32_t role);
OCTAVO_EXPORT void octavo_store_close(octavo_store *s);
/* As octavo_store_open, over memory that the host owns and that outlives the store: `slots` has
 * octavo_run_slot_count addresses, of the run's device. Null is for a slot that is native or no
 * part of a checkpoint: it stays null in the lists. Nothing is written to `slots`' memory until a
 * load. octavo_store_extend allocates the slots of later seals. `more`: null, or
 * bytes of the host's own. octavo_store_save writes them with the slots, as the tensor "host";
 * octavo_store_load points it at what the checkpoint has of them, perhaps nothing, which is the
 * store's until its next load or its end. */
OCTAVO_EXPORT octavo_status octavo_store_over(const octavo_run *r, void *const *slots,
                                              octavo_str *more, octavo_store **out);

/* Checkpoints: the slots with OCTAVO_SLOT_CHECKPOINT, in the safetensors format, one file per rank:
 * <directory>/rank-0000-of-0002.safetensors, or ...-0002b.safetensors of a second save, which
 * leaves the first in place until it is complete; manifest.json names the one that counts. The host
 * saves native tensors itself. Each checkpoint has its own directory, readable by all ranks. Save
 * and load between steps: after end_step and before the next quantize_weight.
 *
 * octavo_store_save is called on every rank with the same `step`, which is the host's count. A
 * store of octavo_store_open is rank 0 of 1: several ranks that save into one directory open theirs
 * by octavo_store_open_sharded, or one replaces the other's file. It creates the directory. Files
 * are replaced atomically. Returns OCTAVO_WRONG_STATE if the directory contains ranks of another
 * world, or if octavo_store_extend was not called after a seal, and OCTAVO_NO_RESOURCE if writing
 * fails. */
OCTAVO_EXPORT octavo_status octavo_store_save(const octavo_store *s, octavo_str directory,
                                              uint64_t step);
/* octavo_store_load restores a checkpoint into a store of the same model in the same order, backend
 * and options, on any number of ranks; each WHOLE slot is read from the file that contains it, the
 * others from the file of the same rank if the checkpoint has as many ranks, otherwise from rank
 * 0's. Slots that are not part of a checkpoint are set to their initial values, so the store is as
 * it was after `step`. Call quantize_weight for every weight afterwards, as in each step. `step`
 * may be null. On failure the store is unchanged. Returns OCTAVO_INVALID for a damaged file, ranks
 * of different worlds or steps, or another backend, option, model or label; OCTAVO_INCOMPATIBLE for
 * a newer schema; OCTAVO_NO_RESOURCE if a file is missing or unreadable; OCTAVO_WRONG_STATE if
 * octavo_store_extend was not called after a seal. */
OCTAVO_EXPORT octavo_status octavo_store_load(octavo_store *s, octavo_str directory,
                                              uint64_t *step);

#if !defined(OCTAVO_DECLARATIONS_ONLY)
/* The value of an extent for `rows` rows, in bytes; UINT64_MAX if 64 bits cannot hold it.
 * THREAD_ANY, PHASE_HOT. */
static inline uint64_t octavo_extent_bytes(const octavo_extent *e, uint64_t rows) {
  const uint64_t blocks = rows / e->row_multiple + (rows % e->row_multiple != 0);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, (uint64_t)e->row_multiple, &bytes) ||
      __builtin_mul_overflow(bytes, e->bytes_per_row, &bytes) ||
      __builtin_add_overflow(bytes, e->fixed_bytes, &bytes))
    return UINT64_MAX;
  return bytes;
}
#endif

/* Threads: octavo.parallel/1 for hosts without a thread pool. `threads` includes the caller; 0
 * means one per core that this process may use. */
typedef struct octavo_threads octavo_threads;
OCTAVO_EXPORT octavo_status octavo_threads_open(uint32_t threads, octavo_threads **out);
OCTAVO_EXPORT const octavo_parallel *octavo_threads_parallel(const octavo_threads *t);
OCTAVO_EXPORT void octavo_threads_close(octavo_threads *t);

/* Collectives that the host provides to the functions below. This is host API, not plugin ABI.
 * Every rank makes the same calls in the same order. */
typedef struct octavo_collective {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COLLECTIVE */
  void *ctx;
  uint32_t world;
  uint32_t reserved;
  /* Counts are in elements. ALL_REDUCE_*: equal counts, f32. ALL_TO_ALL: `world` parts in each
   * direction. ALL_GATHER: recv_count = world * send_count. REDUCE_SCATTER_SUM: f32,
   * send_count = world * recv_count. Sums are computed in the order of the ranks. An all-reduce may
   * be in place (send == recv); otherwise send and recv do not overlap. */
  octavo_status (*run)(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                       uint64_t send_count, void *recv, uint64_t recv_count, void *stream);
  /* Copies `bytes` bytes from rank `root` to every rank. May be null; then octavo_store_publish is
   * not supported. */
  octavo_status (*broadcast)(void *ctx, uint32_t root, void *data, uint64_t bytes, void *stream);
} octavo_collective;

/* Ranks as threads of one process, for tests, benchmarks and programs without a launcher. Each rank
 * uses its own collective from its own thread. Sums are computed in rank order, so results are the
 * same on every rank and in every run. */
typedef struct octavo_ranks octavo_ranks;
OCTAVO_EXPORT octavo_status octavo_ranks_open(uint32_t world, octavo_ranks **out);
/* The collectives of one rank; null if rank >= world. */
OCTAVO_EXPORT const octavo_collective *octavo_ranks_collective(octavo_ranks *r, uint32_t rank);
/* Makes all pending and later collectives return OCTAVO_FAILED_DEVICE. A rank that fails calls it
 * so that the others do not block. THREAD_ANY. */
OCTAVO_EXPORT void octavo_ranks_abort(octavo_ranks *r);
OCTAVO_EXPORT void octavo_ranks_close(octavo_ranks *r);

/* Combines every slot with OCTAVO_SLOT_REDUCE over the ranks. Call it before optimizer_step and
 * end_step. Its first call after a seal also compares the keys and labels of these slots, which
 * waits for the device, and returns OCTAVO_INVALID on every rank if they differ: ranks with other
 * objects, such as experts, combine their slots themselves. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_store_reduce(octavo_store *s, const octavo_collective *c,
                                                void *stream);
/* Call it after a sharded optimizer_step: sends what the step wrote to slots that are not WHOLE
 * (the weight, its scale_inv), including native tensors, from the owner of each parameter to the
 * other ranks. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_store_publish(octavo_store *s, const octavo_collective *c,
                                                 void *stream);

#endif

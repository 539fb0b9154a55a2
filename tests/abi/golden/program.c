/* program.c: a host program over liboctavo: configuration, discovery, store, and one step of
 * training.
 *
 *   program <liboctavo.so> <plugin directory> <backend>
 *
 * liboctavo is opened by its path, so that one binary runs with every liboctavo of the major,
 * whatever its soname says. What the program hands to it ends where readable memory ends.
 */
#include <dlfcn.h>

#include "next_report.h"
#include "octavo/octavo.h"

/* The functions of liboctavo that the program calls, found by name. */
#define FUNCTIONS(f)                                                                         \
  f(octavo_open) f(octavo_close) f(octavo_add_parameter) f(octavo_add_linear) f(octavo_seal) \
      f(octavo_run_plan) f(octavo_run_backend) f(octavo_run_interface) f(octavo_run_session) \
          f(octavo_run_session_desc) f(octavo_store_open) f(octavo_store_native)             \
              f(octavo_store_slots) f(octavo_store_close) f(octavo_run_slot_count)           \
                  f(octavo_run_slot) f(octavo_run_backend_id)

static struct {
#define POINTER(name) __typeof__(&name) name;
  FUNCTIONS(POINTER)
} lib;

static int load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 0;
#define FIND(name)                             \
  *(void **)&lib.name = dlsym(library, #name); \
  if (lib.name == NULL) return fprintf(stderr, "%s: no " #name "\n", path), 0;
  FUNCTIONS(FIND)
  return 1;
}

static octavo_str text(const char *s) {
  return (octavo_str){s, strlen(s)};
}

static void say(void *ctx, const octavo_diagnostic *d) {
  (void)ctx;
  if (d->severity >= OCTAVO_SEVERITY_ERROR)
    printf("diagnostic: %.*s\n", (int)d->text.size, d->text.data);
}

static const octavo_parallel *threads; /* of parallel.c; null: none */

static const void *extension(void *ctx, octavo_str id) {
  (void)ctx;
  const int is_parallel =
      id.size == sizeof OCTAVO_PARALLEL_ID - 1 && memcmp(id.data, OCTAVO_PARALLEL_ID, id.size) == 0;
  return is_parallel ? threads : NULL;
}

static octavo_run *open_run(const char *directory, const char *backend) {
  static octavo_option_value overrides[2];
  static octavo_str dir;
  octavo_run *run = NULL;
  octavo_host *host = GUARDED(octavo_host, OCTAVO_KIND_HOST);
  octavo_open_desc *d = GUARDED(octavo_open_desc, OCTAVO_KIND_OPEN_DESC);
  host->abi_major = OCTAVO_ABI_MAJOR, host->abi_minor = OCTAVO_ABI_MINOR;
  host->diagnose = say, host->get_extension = extension;
  dir = text(directory);
  overrides[0].name = text("mixed_precision"), overrides[0].value.text = text("fp8");
  overrides[1].name = text("fp8.backend"), overrides[1].value.text = text(backend);
  overrides[0].value.type = overrides[1].value.type = OCTAVO_VALUE_TEXT;
  d->overrides = overrides, d->override_count = 2;
  d->plugin_dirs = &dir, d->plugin_dir_count = 1;
  d->device = (octavo_device){OCTAVO_DEVICE_CPU, 0}, d->host = host;
  return succeeded("octavo_open", lib.octavo_open(d, &run)) ? run : NULL;
}

static int open_layer(octavo_run *run, layer *l) {
  octavo_parameter_desc *p = GUARDED(octavo_parameter_desc, OCTAVO_KIND_PARAMETER_DESC);
  octavo_linear_desc *d = GUARDED(octavo_linear_desc, OCTAVO_KIND_LINEAR_DESC);
  octavo_verdict *v = GUARDED(octavo_verdict, OCTAVO_KIND_VERDICT);
  p->name = text("fc.weight"), p->rows = N, p->cols = K;
  p->dtype = p->gradient_dtype = OCTAVO_F32, p->flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  d->name = text("fc");
  if (!succeeded("octavo_add_parameter", lib.octavo_add_parameter(run, p, v, &l->parameter)) ||
      !succeeded("octavo_add_linear", lib.octavo_add_linear(run, d, v, &l->linear)) ||
      !succeeded("octavo_seal", lib.octavo_seal(run)))
    return 0;
  if (l->linear == OCTAVO_NONE)
    return printf("declined: %.*s\n", (int)v->text.size, v->text.data), 0;
  OCTAVO_TAKE(l->plan, lib.octavo_run_plan(run, l->linear));
  l->backend = lib.octavo_run_backend(run),
  l->optimizer = lib.octavo_run_interface(run, (octavo_str)OCTAVO_STR(OCTAVO_OPTIMIZER_ID));
  l->gradients = lib.octavo_run_interface(run, (octavo_str)OCTAVO_STR(OCTAVO_GRADIENTS_ID)),
  l->session = lib.octavo_run_session(run);
  return 1;
}

static void list_slots(const octavo_run *run, const octavo_store *store, layer *l) {
  static const uint32_t owners[] = {OCTAVO_OWNER_PARAMETER, OCTAVO_OWNER_LINEAR,
                                    OCTAVO_OWNER_LINEAR,    OCTAVO_OWNER_SESSION,
                                    OCTAVO_OWNER_PARAMETER, OCTAVO_OWNER_PARAMETER};
  uint32_t other = 0;
  for (uint32_t i = 0; i < lib.octavo_run_slot_count(run); ++i)
    other += lib.octavo_run_slot(run, i)->role == OCTAVO_ROLE_OTHER;
  printf("slots: %u, %u of role OTHER\n", lib.octavo_run_slot_count(run), other);
  for (uint32_t verb = 0; verb < 6; ++verb)
    l->lists[verb] = lib.octavo_store_slots(store, verb, owners[verb], 0);
}

int main(int argc, char **argv) {
  static layer l;
  octavo_store *store = NULL;
  if (argc != 4) return fprintf(stderr, "usage: program <liboctavo.so> <directory> <backend>\n"), 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!load(argv[1])) return 2;
  octavo_run *run = open_run(argv[2], argv[3]);
  if (run == NULL) return 1;
  const octavo_str id = lib.octavo_run_backend_id(run);
  printf("program of minor %d, backend %.*s\n", OCTAVO_ABI_MINOR, (int)id.size, id.data);
  set_numbers(&l.n);
  if (!open_layer(run, &l) || !succeeded("octavo_store_open", lib.octavo_store_open(run, &store)) ||
      !succeeded("octavo_store_native",
                 lib.octavo_store_native(store, l.parameter, OCTAVO_ROLE_WEIGHT, l.n.w)))
    return 1;
  if (l.optimizer != NULL &&
      !succeeded("octavo_store_native",
                 lib.octavo_store_native(store, l.parameter, OCTAVO_ROLE_GRADIENT, l.n.dw)))
    return 1;
  list_slots(run, store, &l);
  int faults = run_step(&l);
#ifdef OCTAVO_NEXT_ID
  if (OCTAVO_HAS(l.backend, octavo_backend, next_function))
    faults += report_function_and_field(&l);
  else
    printf("next function: not in liboctavo's table\n");
#endif
  lib.octavo_store_close(store);
  lib.octavo_close(run);
  return faults != 0;
}

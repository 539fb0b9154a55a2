/* host.c: a small host without liboctavo: it opens a plugin, completes its tables and trains one
 * step.
 *
 *   host <plugin.so>
 *
 * Built with released headers it is the old host, built with those of next_headers.py the new one.
 * All that it hands out ends where readable memory ends. Prints what happened; exits with 1 on any
 * fault.
 */
#include <dlfcn.h>

#include "kernels.h"
#include "next_report.h"
#include "octavo/plugin.h"

enum { SLOTS = 16 };

typedef struct seen {
  octavo_slot slots[SLOTS];
  octavo_slot_use uses[SLOTS * 2];
  uint32_t num_slots, num_uses, longer, unknown_roles, declined;
} seen;

static void say(void *ctx, const octavo_diagnostic *d) {
  (void)ctx;
  printf("diagnostic: %.*s\n", (int)d->text.size, d->text.data);
}

static const void *no_extension(void *ctx, octavo_str id) {
  (void)ctx, (void)id;
  return NULL;
}

static octavo_str text(const char *s) {
  return (octavo_str){s, strlen(s)};
}

static void take_verdict(void *ctx, const octavo_verdict *given) {
  octavo_verdict v;
  OCTAVO_TAKE(v, given);
  if (v.decision == OCTAVO_DECLINE) ++((seen *)ctx)->declined;
}

static octavo_status take_slot(void *ctx, const octavo_slot *s) {
  seen *all = ctx;
  if (all->num_slots == SLOTS || s->id != all->num_slots) return OCTAVO_NO_RESOURCE;
  OCTAVO_TAKE(all->slots[all->num_slots], s);
  if (s->role > OCTAVO_ROLE_NOISE) ++all->unknown_roles;
#ifdef OCTAVO_NEXT_ID
  if (OCTAVO_HAS(s, octavo_slot, next_value) && s->next_value == OCTAVO_NEXT_MARK) ++all->longer;
#else
  if (s->size > sizeof *s) ++all->longer;
#endif
  ++all->num_slots;
  return OCTAVO_OK;
}

static octavo_status take_use(void *ctx, const octavo_slot_use *u) {
  seen *all = ctx;
  if (all->num_uses == SLOTS * 2 || u->slot >= all->num_slots) return OCTAVO_NO_RESOURCE;
  all->uses[all->num_uses++] = *u;
  return OCTAVO_OK;
}

/* Memory for the slots that are not native. */
static void allocate(const seen *all, layer *l, void **addresses) {
  for (uint32_t i = 0; i < all->num_slots; ++i) {
    const octavo_slot *s = &all->slots[i];
    const size_t bytes = (size_t)(s->rows * s->cols) * OCTAVO_DTYPE_BITS(s->dtype) / 8;
    addresses[i] = s->role == OCTAVO_ROLE_WEIGHT     ? (void *)l->n.w
                   : s->role == OCTAVO_ROLE_GRADIENT ? (void *)l->n.dw
                                                     : calloc(1, bytes);
  }
}

/* The pointer list of a verb: null where the verb has no access. */
static void *const *list(const seen *all, void *const *addresses, uint32_t verb) {
  static const uint32_t owners[] = {OCTAVO_OWNER_PARAMETER, OCTAVO_OWNER_LINEAR,
                                    OCTAVO_OWNER_LINEAR,    OCTAVO_OWNER_SESSION,
                                    OCTAVO_OWNER_PARAMETER, OCTAVO_OWNER_PARAMETER};
  void **pointers = calloc(SLOTS, sizeof *pointers);
  uint32_t count = 0;
  for (uint32_t i = 0; i < all->num_uses; ++i) {
    const octavo_slot_use *u = &all->uses[i];
    if (u->owner_kind != owners[verb] || u->owner != 0) continue;
    const int used = all->slots[u->slot].access[verb] != OCTAVO_ACCESS_NONE;
    pointers[count++] = used ? addresses[u->slot] : NULL;
  }
  return pointers;
}

#ifdef OCTAVO_NEXT_ID
static octavo_status unsupported_next(uint64_t *out) {
  (void)out;
  return OCTAVO_UNSUPPORTED;
}
#endif

/* The backend's table in this host's size, without a null function among the newer ones. */
static octavo_backend *complete(const octavo_backend *given) {
  static octavo_backend own;
  OCTAVO_TAKE(own, given);
#ifdef OCTAVO_NEXT_ID
  if (own.next_function == NULL) own.next_function = unsupported_next;
#endif
  return &own;
}

static int open_layer(const octavo_session_desc *desc, layer *l, seen *all) {
  octavo_parameter_desc *p = GUARDED(octavo_parameter_desc, OCTAVO_KIND_PARAMETER_DESC);
  octavo_linear_desc *d = GUARDED(octavo_linear_desc, OCTAVO_KIND_LINEAR_DESC);
  octavo_verdict *v = GUARDED(octavo_verdict, OCTAVO_KIND_VERDICT);
  octavo_verdict *w = GUARDED(octavo_verdict, OCTAVO_KIND_VERDICT);
  octavo_linear_plan *plan = GUARDED(octavo_linear_plan, OCTAVO_KIND_LINEAR_PLAN);
  octavo_verdict_sink *verdicts = GUARDED(octavo_verdict_sink, OCTAVO_KIND_VERDICT_SINK);
  octavo_slot_sink *slots = GUARDED(octavo_slot_sink, OCTAVO_KIND_SLOT_SINK);
  p->name = text("fc.weight"), p->rows = N, p->cols = K;
  p->dtype = p->gradient_dtype = OCTAVO_F32, p->flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  d->name = text("fc");
  verdicts->ctx = all, verdicts->verdict = take_verdict;
  slots->ctx = all, slots->slot = take_slot, slots->use = take_use;
  if (!succeeded("check_session", l->backend->check_session(desc, verdicts)) ||
      !succeeded("open_session", l->backend->open_session(desc, &l->session)) ||
      !succeeded("add_parameter", l->backend->add_parameter(l->session, p, v, &l->parameter)) ||
      !succeeded("add_linear", l->backend->add_linear(l->session, d, w, &l->linear)) ||
      !succeeded("seal", l->backend->seal(l->session, slots)) ||
      !succeeded("linear_plan", l->backend->linear_plan(l->session, l->linear, plan)))
    return 0;
  l->plan = *plan;
  if (all->declined != 0 || v->decision == OCTAVO_DECLINE || w->decision == OCTAVO_DECLINE) {
    printf("declined: %.*s%.*s\n", (int)v->text.size, v->text.data, (int)w->text.size,
           w->text.data);
    return 0;
  }
#ifdef OCTAVO_NEXT_ID
  printf("next field of an answer: %s\n",
         v->next_value == OCTAVO_NEXT_MARK && plan->next_value == OCTAVO_NEXT_MARK ? "used" : "0");
#endif
  return 1;
}

static int run(const octavo_plugin *plugin) {
  static octavo_kernels_caps *caps;
  static void *addresses[SLOTS];
  static seen all;
  static layer l;
  octavo_kernels *kernels = GUARDED(octavo_kernels, OCTAVO_KIND_KERNELS);
  octavo_session_desc *desc = GUARDED(octavo_session_desc, OCTAVO_KIND_SESSION_DESC);
  octavo_host *host = GUARDED(octavo_host, OCTAVO_KIND_HOST);
  const octavo_backend *backend = plugin->get_interface(text(OCTAVO_BACKEND_ID));
  if (backend == NULL) return printf("no backend\n");
  *kernels = tiny_kernels();
  caps = GUARDED(octavo_kernels_caps, OCTAVO_KIND_KERNELS_CAPS);
  kernels->describe(NULL, caps);
  host->abi_major = OCTAVO_ABI_MAJOR, host->abi_minor = OCTAVO_ABI_MINOR;
  host->diagnose = say, host->get_extension = no_extension;
  desc->device = (octavo_device){OCTAVO_DEVICE_CPU, 0};
  desc->host = host, desc->kernels = kernels, desc->caps = caps;
  l.backend = complete(backend);
  l.optimizer = plugin->get_interface(text(OCTAVO_OPTIMIZER_ID));
  l.gradients = plugin->get_interface(text(OCTAVO_GRADIENTS_ID));
  set_numbers(&l.n);
  if (!open_layer(desc, &l, &all)) return 1;
  allocate(&all, &l, addresses);
  for (uint32_t verb = 0; verb < 6; ++verb) l.lists[verb] = list(&all, addresses, verb);
  int faults = run_step(&l);
  printf("slots: %u, %u with a newer field, %u of an unknown role\n", all.num_slots, all.longer,
         all.unknown_roles);
#ifdef OCTAVO_NEXT_ID
  const octavo_next *next = plugin->get_interface(text(OCTAVO_NEXT_ID));
  printf("next interface: %s\n", next == NULL ? "none" : "used");
  printf("next field of a kernel call: %s\n", quantize_with_next > 0 ? "used" : "0");
  faults += report_function_and_field(&l);
#endif
  l.backend->close_session(l.session);
  return faults;
}

int main(int argc, char **argv) {
  octavo_host *host = GUARDED(octavo_host, OCTAVO_KIND_HOST);
  octavo_status (*query)(const octavo_host *, const octavo_plugin **) = NULL;
  const octavo_plugin *plugin = NULL;
  if (argc != 2) return fprintf(stderr, "usage: host <plugin.so>\n"), 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) *(void **)&query = dlsym(library, OCTAVO_PLUGIN_SYMBOL);
  if (query == NULL) return fprintf(stderr, "%s: %s\n", argv[1], dlerror()), 2;
  host->abi_major = OCTAVO_ABI_MAJOR, host->abi_minor = OCTAVO_ABI_MINOR;
  host->diagnose = say, host->get_extension = no_extension;
  const octavo_status status = query(host, &plugin);
  if (!succeeded("query", status)) return 1;
  if (plugin->kind != OCTAVO_KIND_PLUGIN || plugin->abi_major != OCTAVO_ABI_MAJOR ||
      plugin->abi_minor > OCTAVO_ABI_MINOR || !OCTAVO_HAS(plugin, octavo_plugin, get_interface))
    return printf("not a plugin for this host\n"), 1;
  printf("host of minor %d, plugin %.*s for minor %u\n", OCTAVO_ABI_MINOR, (int)plugin->id.size,
         plugin->id.data, plugin->abi_minor);
  return run(plugin) != 0;
}

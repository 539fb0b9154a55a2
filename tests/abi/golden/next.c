/* next.c: the minimal sample as a plugin of the next minor, built with the headers of
 * next_headers.py.
 *
 * It demands minor 0 of its host and uses what is newer only after a look at a size: that is all
 * that a plugin has to do to run on old and new hosts.
 */
#include "octavo/kernels.h"
#include "octavo/plugin.h"

#pragma push_macro("octavo_plugin_query_1")
#undef octavo_plugin_query_1
#define octavo_plugin_query_1 minimal_query
#define kBackend minimal_backend
octavo_status minimal_query(const octavo_host *host, const octavo_plugin **out);
#include "samples/minimal_plugin/minimal.c"
#undef kBackend
#pragma pop_macro("octavo_plugin_query_1")

static octavo_kernels marked_kernels;
static const octavo_kernels *host_kernels;

/* A field of a call to the kernels. Kernels that do not know it must give the same numbers. */
static octavo_status marked_quantize(void *ctx, const octavo_quantize *c) {
  octavo_quantize marked;
  OCTAVO_TAKE(marked, c);
  marked.next_value = OCTAVO_NEXT_MARK;
  return host_kernels->quantize(ctx, &marked);
}

static octavo_status next_open_session(const octavo_session_desc *d, octavo_session **out) {
  octavo_session_desc own;
  OCTAVO_TAKE(own, d);
  host_kernels = d->kernels;
  OCTAVO_TAKE(marked_kernels, d->kernels);
  marked_kernels.quantize = marked_quantize;
  own.kernels = &marked_kernels;
  return open_session(&own, out);
}

/* A field of what the host wants to have filled. */
static octavo_status next_add_parameter(octavo_session *s, const octavo_parameter_desc *d,
                                        octavo_verdict *v, uint32_t *id) {
  if (OCTAVO_HAS(v, octavo_verdict, next_value)) v->next_value = OCTAVO_NEXT_MARK;
  return add_parameter(s, d, v, id);
}

/* Whether this value, which a host must not ignore, is to be a later one. */
static int is_unknown(const char *what) {
  const char *wanted = getenv("NEXT_UNKNOWN");
  return wanted != NULL && strcmp(wanted, what) == 0;
}

static octavo_status next_linear_plan(const octavo_session *s, uint32_t linear,
                                      octavo_linear_plan *out) {
  if (OCTAVO_HAS(out, octavo_linear_plan, next_value)) out->next_value = OCTAVO_NEXT_MARK;
  const octavo_status status = linear_plan(s, linear, out);
  if (is_unknown("plan flag")) out->flags |= OCTAVO_LINEAR_NEXT;
  return status;
}

/* A field of what crosses through a sink. */
static octavo_status mark_slot(void *ctx, const octavo_slot *s) {
  const octavo_slot_sink *sink = ctx;
  octavo_slot marked = *s;
  marked.next_value = OCTAVO_NEXT_MARK;
  return sink->slot(sink->ctx, &marked);
}
static octavo_status pass_use(void *ctx, const octavo_slot_use *u) {
  const octavo_slot_sink *sink = ctx;
  return sink->use(sink->ctx, u);
}

/* One slot more, of a role that the host may not know. */
static octavo_status next_seal(octavo_session *s, const octavo_slot_sink *sink) {
  const octavo_slot_sink marking = {.size = sizeof marking,
                                    .kind = OCTAVO_KIND_SLOT_SINK,
                                    .ctx = (void *)sink,
                                    .slot = mark_slot,
                                    .use = pass_use};
  octavo_status status = seal(s, &marking);
  if (status != OCTAVO_OK) return status;
  const octavo_slot slot = {
      .size = sizeof slot,
      .kind = OCTAVO_KIND_SLOT,
      .id = s->num_slots++,
      .owner_kind = is_unknown("owner") ? OCTAVO_OWNER_NEXT : OCTAVO_OWNER_SESSION,
      .role = OCTAVO_ROLE_NEXT,
      .dtype = is_unknown("dtype") ? OCTAVO_NEXT_DTYPE : OCTAVO_F32,
      .flags = is_unknown("flag") ? OCTAVO_SLOT_NEXT : 0,
      .combine = is_unknown("combine") ? OCTAVO_COMBINE_NEXT : 0,
      .shard = is_unknown("shard") ? OCTAVO_SHARD_NEXT : 0,
      .scale_slot = OCTAVO_NONE,
      .rows = 1,
      .cols = 1,
      .name = OCTAVO_STR("next")};
  const octavo_slot_use use = {OCTAVO_OWNER_SESSION, 0, slot.id, 0, 0, 0};
  status = sink->slot(sink->ctx, &slot);
  return status == OCTAVO_OK ? sink->use(sink->ctx, &use) : status;
}

/* A field of a hot call: the bias is left out. */
static octavo_status next_linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  octavo_forward_call own;
  OCTAVO_TAKE(own, c);
  if (own.next_value == OCTAVO_NEXT_MARK) own.bias = NULL;
  return linear_forward(s, &own);
}

static octavo_status next_function(uint64_t *out) {
  *out = OCTAVO_NEXT_MARK;
  return OCTAVO_OK;
}

static const octavo_backend kBackend = {.size = sizeof kBackend,
                                        .kind = OCTAVO_KIND_BACKEND,
                                        .list_options = list_options,
                                        .check_session = check_session,
                                        .open_session = next_open_session,
                                        .add_parameter = next_add_parameter,
                                        .add_linear = add_linear,
                                        .seal = next_seal,
                                        .linear_plan = next_linear_plan,
                                        .quantize_weight = quantize_weight,
                                        .linear_forward = next_linear_forward,
                                        .linear_backward = linear_backward,
                                        .end_step = end_step,
                                        .close_session = close_session,
                                        .next_function = next_function};
static const octavo_next kNext = {sizeof kNext, OCTAVO_KIND_NEXT, next_function};

static const void *next_get_interface(octavo_str id) {
  const octavo_str mine = OCTAVO_STR(OCTAVO_BACKEND_ID), next = OCTAVO_STR(OCTAVO_NEXT_ID);
  if (id.size == next.size && memcmp(id.data, next.data, next.size) == 0) return &kNext;
  return id.size == mine.size && memcmp(id.data, mine.data, mine.size) == 0 ? &kBackend : NULL;
}

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {.size = sizeof plugin,
                                       .kind = OCTAVO_KIND_PLUGIN,
                                       .abi_major = OCTAVO_ABI_MAJOR,
                                       .abi_minor = OCTAVO_TARGET_MINOR,
                                       .id = OCTAVO_STR("next"),
                                       .version = OCTAVO_STR("1.0.0"),
                                       .get_interface = next_get_interface,
                                       .next_value = OCTAVO_NEXT_MARK};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}

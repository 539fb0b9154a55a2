/* One FP8 linear layer from plain C: the whole host side, without error handling in the middle.
 *
 * What must not go wrong: quantize_weight comes after every change of the weight, end_step once per
 * training step. Run it with the path of an octavo.toml, or without for the defaults.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octavo/octavo.h"

enum { M = 4, N = 8, K = 16 };

static void print_line(void *ctx, octavo_str text) {
  (void)ctx;
  printf("%.*s\n", (int)text.size, text.data);
}

static void print_diagnostic(void *ctx, const octavo_diagnostic *d) {
  (void)ctx;
  fprintf(stderr, "%.*s: %.*s\n", (int)d->domain.size, d->domain.data, (int)d->text.size,
          d->text.data);
}

static const void *no_extension(void *ctx, octavo_str id) {
  (void)ctx, (void)id;
  return NULL;
}

static int keep_in_host(octavo_run *run, octavo_store *store) {
  octavo_report(run, (octavo_str)OCTAVO_STR("text"), print_line, NULL);
  octavo_store_close(store);
  octavo_close(run);
  return 0;
}

static void *workspace(uint64_t bytes) {
  return aligned_alloc(256, (bytes / 256 + 1) * 256);
}

static void prepare(const octavo_run *run, const octavo_store *store, uint32_t weight,
                    uint32_t linear, octavo_weight_call *q, octavo_forward_call *f) {
  const octavo_linear_plan *plan = octavo_run_plan(run, linear);
  q->parameter = weight;
  q->slots = octavo_store_slots(store, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, weight);
  q->workspace = workspace(plan->weight_workspace);
  f->linear = linear; /* saved stays null: no backward will follow */
  f->slots = octavo_store_slots(store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
  f->workspace = workspace(octavo_extent_bytes(&plan->forward_workspace, M));
}

int main(int argc, char **argv) {
  static _Alignas(64) float x[M * K], w[N * K], y[M * N]; /* as slots, see tensor.h */
  for (int i = 0; i < M * K; ++i) x[i] = (float)(i % 7 - 3);
  for (int i = 0; i < N * K; ++i) w[i] = (float)(i % 5 - 2) / 4;
  const octavo_host host = {sizeof host, OCTAVO_KIND_HOST, OCTAVO_ABI_MAJOR, OCTAVO_ABI_MINOR,
                            NULL,        print_diagnostic, no_extension};
  octavo_open_desc desc = {.size = sizeof desc, .kind = OCTAVO_KIND_OPEN_DESC, .host = &host};
  if (argc > 1) desc.config_path = (octavo_str){argv[1], strlen(argv[1])};

  octavo_run *run;
  octavo_store *store;
  uint32_t weight, linear;
  octavo_tensor xt = {x, M, K, K, OCTAVO_F32, 0}, yt = {y, M, N, N, OCTAVO_F32, 0};
  octavo_parameter_desc p = {.size = sizeof p, .kind = OCTAVO_KIND_PARAMETER_DESC};
  octavo_linear_desc l = {.size = sizeof l, .kind = OCTAVO_KIND_LINEAR_DESC};
  octavo_weight_call q = {.size = sizeof q, .kind = OCTAVO_KIND_WEIGHT_CALL};
  octavo_forward_call f = {.size = sizeof f, .kind = OCTAVO_KIND_FORWARD_CALL};
  p.name = (octavo_str)OCTAVO_STR("fc.weight"), p.rows = N, p.cols = K;
  p.dtype = p.gradient_dtype = OCTAVO_F32, p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  l.name = (octavo_str)OCTAVO_STR("fc");

  /* [use] */
  if (octavo_open(&desc, &run) != OCTAVO_OK) return 1; /* the reasons went to host.diagnose */
  octavo_add_parameter(run, &p, NULL, &weight);
  l.weight = weight;
  octavo_add_linear(run, &l, NULL, &linear);
  octavo_seal(run);
  octavo_store_open(run, &store);
  octavo_store_native(store, weight, OCTAVO_ROLE_WEIGHT, w);

  if (linear == OCTAVO_NONE) return keep_in_host(run, store); /* the reason is in the report */
  const octavo_backend *backend = octavo_run_backend(run);
  prepare(run, store, weight, linear, &q, &f); /* pointer lists and workspaces, once */
  f.x = &xt, f.y = &yt;
  octavo_status status = backend->quantize_weight(octavo_run_session(run), &q);
  if (status == OCTAVO_OK) status = backend->linear_forward(octavo_run_session(run), &f);
  /* [/use] */

  if (status == OCTAVO_OK) {
    octavo_report(run, (octavo_str)OCTAVO_STR("text"), print_line, NULL);
    printf("y[0, :] =");
    for (int i = 0; i < N; ++i) printf(" %g", (double)y[i]);
    printf("\n");
  }
  free(q.workspace);
  free(f.workspace);
  octavo_store_close(store);
  octavo_close(run);
  if (fflush(stdout) != 0 || ferror(stdout) != 0) {
    fprintf(stderr, "linear: writing to standard output failed\n");
    return 1;
  }
  return status == OCTAVO_OK ? 0 : 1;
}

/* consumer.c: one linear layer, forward and backward, through the backend "minimal" and no other.
 *
 * All inputs are powers of two below an amax of 1, which FP8 holds exactly under current scaling,
 * so the only error is that of the float32 scale_inv: the expected numbers are exact.
 */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octavo/octavo.h"

/* fl32(M / amax), its reciprocal, their product for two operands, and the product with the sum: at
 * most six roundings of 2^-24 each, relative to results of at most 2. */
#define TOLERANCE (2.0f * 6.0f * 0x1p-24f)

static void print_diagnostic(void *ctx, const octavo_diagnostic *d) {
  (void)ctx;
  fprintf(stderr, "%.*s: %.*s\n", (int)d->domain.size, d->domain.data, (int)d->text.size,
          d->text.data);
}

static const void *no_extension(void *ctx, octavo_str id) {
  (void)ctx, (void)id;
  return NULL;
}

static void require(octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return;
  fprintf(stderr, "%s: expected status 0, found %d\n", what, (int)status);
  exit(1);
}

static void *workspace(const octavo_extent *e) {
  void *memory = aligned_alloc(256, (octavo_extent_bytes(e, 2) / 256 + 1) * 256);
  if (!memory) exit(1);
  return memory;
}

static int wrong(const char *what, const float *expected, const float *found) {
  int count = 0;
  for (int i = 0; i < 4; ++i)
    if (!(fabsf(expected[i] - found[i]) <= TOLERANCE)) {
      fprintf(stderr, "%s[%d]: expected %.9g, found %.9g\n", what, i, expected[i], found[i]);
      ++count;
    }
  return count;
}

int main(void) {
  static const char config[] =
      "schema = 1\nmixed_precision = \"fp8\"\n[fp8]\nbackend = \"minimal\"\n";
  alignas(256) float x[4] = {1, 0.5f, -0.25f, 1}, w[4] = {1, -0.5f, 0.25f, 1};
  alignas(256) float dy[4] = {1, 0, 0.5f, -1};
  alignas(256) float y[4] = {0}, dx[4] = {0}, dw[4] = {0};

  const octavo_host host = {sizeof host, OCTAVO_KIND_HOST, OCTAVO_ABI_MAJOR, OCTAVO_ABI_MINOR,
                            NULL,        print_diagnostic, no_extension};
  octavo_open_desc open = {.size = sizeof open, .kind = OCTAVO_KIND_OPEN_DESC, .host = &host};
  open.config_text = (octavo_str){config, strlen(config)};
  octavo_run *run = NULL;
  require(octavo_open(&open, &run), "octavo_open with backend = \"minimal\"");
  const octavo_str id = octavo_run_backend_id(run);
  if (id.size != 7 || memcmp(id.data, "minimal", 7) != 0) {
    fprintf(stderr, "backend: expected minimal, found %.*s\n", (int)id.size, id.data);
    return 1;
  }

  octavo_parameter_desc parameter = {.size = sizeof parameter, .kind = OCTAVO_KIND_PARAMETER_DESC};
  parameter.name = (octavo_str)OCTAVO_STR("layer.weight");
  parameter.rows = parameter.cols = 2;
  parameter.dtype = parameter.gradient_dtype = OCTAVO_F32;
  parameter.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  octavo_linear_desc linear = {.size = sizeof linear, .kind = OCTAVO_KIND_LINEAR_DESC};
  linear.name = (octavo_str)OCTAVO_STR("layer");
  octavo_verdict verdict = {.size = sizeof verdict, .kind = OCTAVO_KIND_VERDICT};
  uint32_t layer = 0;
  require(octavo_add_parameter(run, &parameter, &verdict, &linear.weight), "octavo_add_parameter");
  require(octavo_add_linear(run, &linear, &verdict, &layer), "octavo_add_linear");
  if (verdict.decision == OCTAVO_DECLINE) {
    fprintf(stderr, "octavo_add_linear: declined, %.*s\n", (int)verdict.text.size,
            verdict.text.data);
    return 1;
  }
  require(octavo_seal(run), "octavo_seal");
  octavo_store *store = NULL;
  require(octavo_store_open(run, &store), "octavo_store_open");
  require(octavo_store_native(store, linear.weight, OCTAVO_ROLE_WEIGHT, w), "octavo_store_native");

  const octavo_linear_plan *plan = octavo_run_plan(run, layer);
  void *saved = workspace(&plan->saved);
  void *scratch[2] = {workspace(&plan->forward_workspace), workspace(&plan->backward_workspace)};
  octavo_tensor tensor_x = {x, 2, 2, 2, OCTAVO_F32, 0}, tensor_y = {y, 2, 2, 2, OCTAVO_F32, 0};
  octavo_tensor tensor_dy = {dy, 2, 2, 2, OCTAVO_F32, 0}, tensor_dx = {dx, 2, 2, 2, OCTAVO_F32, 0};
  octavo_tensor tensor_dw = {dw, 2, 2, 2, OCTAVO_F32, 0};
  octavo_forward_call forward = {.size = sizeof forward, .kind = OCTAVO_KIND_FORWARD_CALL};
  forward.linear = layer;
  forward.x = &tensor_x;
  forward.y = &tensor_y;
  forward.slots = octavo_store_slots(store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, layer);
  forward.saved = saved;
  forward.workspace = scratch[0];
  octavo_backward_call backward = {.size = sizeof backward, .kind = OCTAVO_KIND_BACKWARD_CALL};
  backward.linear = layer;
  backward.dy = &tensor_dy;
  backward.x = &tensor_x;
  backward.dx = &tensor_dx;
  backward.dw = &tensor_dw;
  backward.slots = octavo_store_slots(store, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, layer);
  backward.saved = saved;
  backward.workspace = scratch[1];
  const octavo_backend *backend = octavo_run_backend(run);
  octavo_session *session = octavo_run_session(run);
  require(backend->linear_forward(session, &forward), "linear_forward");
  require(backend->linear_backward(session, &backward), "linear_backward");
  require(backend->linear_backward(session, &backward), "linear_backward, once more");

  const int faults = wrong("y = x w^T", (const float[4]){0.75f, 0.75f, -0.75f, 0.9375f}, y) +
                     wrong("dx = dy w", (const float[4]){1, -0.5f, 0.25f, -1.25f}, dx) +
                     wrong("dw += dy^T x, twice", (const float[4]){1.75f, 2, 0.5f, -2}, dw);
  free(saved);
  free(scratch[0]);
  free(scratch[1]);
  octavo_store_close(store);
  octavo_close(run);
  if (faults == 0) puts("minimal: forward and backward agree with the exact numbers");
  return faults != 0;
}

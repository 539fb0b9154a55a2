/* train: a complete training host in plain C. Two linears, any backend, any number of ranks,
 * checkpoints.
 *
 *   train [--config FILE] [--ranks N] [--steps N] [--save DIR] [--resume DIR]
 *
 * Ranks are threads. Each has a run and a store of its own and a part of the batch. A backend that
 * owns weights or gradients steps them; the rest is stepped here, by gradient descent with
 * momentum.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

/* The reasons have gone to print_diagnostic. */
void check(octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return;
  fprintf(stderr, "train: %s: status %u\n", what, status);
  exit(1);
}
static void print_diagnostic(void *ctx, const octavo_diagnostic *d) {
  (void)ctx;
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  fprintf(stderr, "%.*s: %.*s\n", (int)d->domain.size, d->domain.data, (int)d->text.size,
          d->text.data);
}
static const void *no_extension(void *ctx, octavo_str id) {
  (void)ctx, (void)id;
  return NULL;
}
static const octavo_host kHost = {
    sizeof kHost, OCTAVO_KIND_HOST, OCTAVO_ABI_MAJOR, OCTAVO_ABI_MINOR,
    NULL,         print_diagnostic, no_extension};
static void print_line(void *ctx, octavo_str line) {
  (void)ctx;
  printf("%.*s\n", (int)line.size, line.data);
}
octavo_str text(const char *s) {
  return (octavo_str){s, s == NULL ? 0 : strlen(s)};
}

/* All memory of this program, freed at its end. */
static struct block {
  void *data;
  struct block *next;
} * blocks;
static pthread_mutex_t blocks_mutex = PTHREAD_MUTEX_INITIALIZER;

void *memory(uint64_t bytes) {
  const uint64_t whole = (bytes / 256 + 1) * 256;
  struct block *block = malloc(sizeof *block);
  if (block != NULL) block->data = aligned_alloc(256, whole);
  if (block == NULL || block->data == NULL) check(OCTAVO_NO_RESOURCE, "memory");
  pthread_mutex_lock(&blocks_mutex);
  block->next = blocks, blocks = block;
  pthread_mutex_unlock(&blocks_mutex);
  return memset(block->data, 0, whole);
}
static void free_memory(void) {
  for (struct block *block = blocks, *next; block != NULL; block = next) {
    next = block->next;
    free(block->data), free(block);
  }
}
float *floats(int64_t count) {
  return memory((uint64_t)count * sizeof(float));
}
/* Uniform in [-width, width), equal on every machine. */
static void fill(float *values, int64_t count, uint64_t seed, float width) {
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    values[i] = width * ((float)(seed >> 40) * 0x1p-23f - 1);
  }
}

/* Configuration, model, seal, memory: once for each rank. */
static void open_rank(struct rank *r) {
  octavo_open_desc desc = {.size = sizeof desc, .kind = OCTAVO_KIND_OPEN_DESC, .host = &kHost};
  desc.config_path = text(r->arguments->config);
  desc.device = (octavo_device){OCTAVO_DEVICE_CPU, 0}; /* where the tensors of this program are */
  check(octavo_open(&desc, &r->run), "octavo_open");
  r->backend = octavo_run_backend(r->run),
  r->optimizer = octavo_run_interface(r->run, (octavo_str)OCTAVO_STR(OCTAVO_OPTIMIZER_ID));
  r->session = octavo_run_session(r->run);
  for (int i = 0; i < kLayers; ++i) describe(r, &r->layers[i]);
  check(octavo_seal(r->run), "octavo_seal");
  if (r->id == 0) octavo_report(r->run, text("text"), print_line, NULL);
  check(octavo_store_open(r->run, &r->store), "octavo_store_open");
  for (int i = 0; i < kLayers; ++i) lend(r, &r->layers[i]);
  for (int i = 0; i < kLayers; ++i) bind_calls(r, &r->layers[i]);
  take_owned(r);
  const octavo_slot *flag = slot_of(r->run, OCTAVO_ROLE_NONFINITE, OCTAVO_OWNER_SESSION, 0);
  r->nonfinite = flag == NULL ? NULL : octavo_store_address(r->store, flag->id);
}

/* The mean over the ranks: gradients in slots by the backend's own plan, gradients of this program
 * by a sum, and what scales are derived from by octavo_store_reduce. */
static void reduce(struct rank *r) {
  if (r->ranks->world == 1) return;
  if (r->reduced_count > 0)
    check(octavo_reduce_gradients(r->run, r->reduced, r->reduced_count, r->ranks, r->send,
                                  r->receive, r->state, NULL),
          "octavo_reduce_gradients");
  for (int i = 0; i < kLayers; ++i) {
    struct layer *l = &r->layers[i];
    const uint64_t count = (uint64_t)(l->n * l->k);
    if (l->linear != OCTAVO_NONE && owns(r->run, l->parameter, OCTAVO_ROLE_GRADIENT)) continue;
    check(r->ranks->run(r->ranks->ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, l->gradient,
                        count, l->gradient, count, NULL),
          "all-reduce");
    for (uint64_t e = 0; e < count; ++e) l->gradient[e] /= (float)r->ranks->world;
  }
  check(octavo_store_reduce(r->store, r->ranks, NULL), "octavo_store_reduce");
}

/* Adam of the backend on what it owns, gradient descent with momentum on the rest. A step in which
 * a cast saw Inf or NaN changes no weight. */
static void step(struct rank *r) {
  if (r->item_count > 0) {
    float *const hyper[] = {r->hyper};
    octavo_norm_call n = {.size = sizeof n, .kind = OCTAVO_KIND_NORM_CALL, .items = r->items};
    n.count = r->item_count, n.sum = &r->sum, n.workspace = r->workspace, r->sum = 0;
    check(r->optimizer->sum_of_squares(r->session, &n), "sum_of_squares");
    octavo_prepare_call p = {.size = sizeof p, .kind = OCTAVO_KIND_PREPARE_CALL, .sum = &r->sum};
    p.sum_count = 1, p.nonfinite = r->nonfinite, p.skip = &r->skip, p.hyper = hyper, p.count = 1;
    p.factor = 1;
    check(r->optimizer->prepare_step(r->session, &p), "prepare_step");
    octavo_optimizer_call c = {.size = sizeof c, .kind = OCTAVO_KIND_OPTIMIZER_CALL};
    c.items = r->items, c.count = r->item_count, c.skip = &r->skip, c.workspace = r->workspace;
    check(r->optimizer->optimizer_step(r->session, &c), "optimizer_step");
    check(octavo_store_clear(r->store, OCTAVO_ROLE_GRADIENT), "octavo_store_clear");
  }
  for (int i = 0; i < kLayers; ++i) {
    struct layer *l = &r->layers[i];
    if (is_stepped(r->run, l) || (r->nonfinite != NULL && *r->nonfinite != 0)) continue;
    for (int64_t e = 0; e < l->n * l->k; ++e) {
      l->momentum[e] = 0.9f * l->momentum[e] + l->gradient[e];
      l->weight[e] -= 0.05f * l->momentum[e];
    }
  }
  if (r->backend == NULL) return; /* mixed_precision is not "fp8" */
  octavo_step_call e = {.size = sizeof e, .kind = OCTAVO_KIND_STEP_CALL};
  e.slots = octavo_store_slots(r->store, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  check(r->backend->end_step(r->session, &e), "end_step");
}

/* The store saves what is in slots. Tensors of this program are its own task: rank 0 writes them
 * next to the file of its slots, with the same step. */
static void keep(struct rank *r, const char *directory, int is_save, uint64_t *at) {
  if (is_save) check(octavo_store_save(r->store, text(directory), *at), "octavo_store_save");
  if (!is_save) check(octavo_store_load(r->store, text(directory), at), "octavo_store_load");
  if (is_save && r->id != 0) return;
  char path[4096];
  snprintf(path, sizeof path, "%s/host.bin", directory);
  FILE *file = fopen(path, is_save ? "wb" : "rb");
  int is_whole = file != NULL;
  for (int i = 0; is_whole && i < kLayers; ++i) {
    float *const tensors[] = {r->layers[i].weight, r->layers[i].momentum};
    const size_t count = (size_t)(r->layers[i].n * r->layers[i].k);
    for (int t = 0; t < 2; ++t)
      is_whole = is_whole && count == (is_save ? fwrite(tensors[t], sizeof(float), count, file)
                                               : fread(tensors[t], sizeof(float), count, file));
  }
  if (file != NULL && fclose(file) != 0) is_whole = 0;
  if (!is_whole) perror(path);
  check(is_whole ? OCTAVO_OK : OCTAVO_NO_RESOURCE, path);
}

/* The task: what one random linear gives for random x. Every rank has its rows of each batch. */
static void batch(const struct rank *r, const float *teacher, uint64_t seed, float *x,
                  float *wanted) {
  fill(x, r->rows * kInputs, 1000 + seed * (uint64_t)r->arguments->ranks + r->id, 1);
  memset(wanted, 0, (size_t)(r->rows * kOutputs) * sizeof(float));
  for (int64_t row = 0; row < r->rows; ++row)
    for (int64_t j = 0; j < kOutputs; ++j)
      for (int64_t i = 0; i < kInputs; ++i)
        wanted[row * kOutputs + j] += x[row * kInputs + i] * teacher[j * kInputs + i];
}
static void relu(const float *gate, float *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = gate[i] > 0 ? values[i] : 0;
}

static void *run_rank(void *argument) {
  struct rank *r = argument;
  struct layer *fc1 = &r->layers[0], *fc2 = &r->layers[1];
  float *const teacher = floats(kOutputs * kInputs), *const wanted = floats(r->rows * kOutputs);
  fill(teacher, kOutputs * kInputs, 3, sqrtf(3.0f / kInputs));
  open_rank(r);
  uint64_t done = 0;
  if (r->arguments->resume != NULL) keep(r, r->arguments->resume, 0, &done);
  for (const uint64_t last = done + (uint64_t)r->arguments->steps; done < last; ++done) {
    batch(r, teacher, done, fc1->x, wanted);
    forward(r, fc1);
    memcpy(fc2->x, fc1->y, (size_t)(r->rows * kHidden) * sizeof(float));
    relu(fc2->x, fc2->x, r->rows * kHidden);
    forward(r, fc2);
    double loss = 0;
    for (int64_t i = 0; i < r->rows * kOutputs; ++i) {
      const float error = fc2->y[i] - wanted[i];
      fc2->dy[i] = 2 * error / (float)r->rows;
      loss += (double)(error * error) / (double)(r->rows * kOutputs);
    }
    backward(r, fc2);
    memcpy(fc1->dy, fc2->dx, (size_t)(r->rows * kHidden) * sizeof(float));
    relu(fc2->x, fc1->dy, r->rows * kHidden);
    backward(r, fc1);
    reduce(r);
    step(r);
    if (r->id == 0 && (done % 50 == 0 || done + 1 == last))
      printf("step %3llu  loss %.6f\n", (unsigned long long)done + 1, loss);
  }
  if (r->arguments->save != NULL) keep(r, r->arguments->save, 1, &done);
  octavo_store_close(r->store);
  octavo_close(r->run);
  return NULL;
}

static struct arguments parse(int argc, char **argv) {
  struct arguments a = {.ranks = 1, .steps = 200};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--config") == 0)
      a.config = argv[i + 1];
    else if (strcmp(argv[i], "--save") == 0)
      a.save = argv[i + 1];
    else if (strcmp(argv[i], "--resume") == 0)
      a.resume = argv[i + 1];
    else if (strcmp(argv[i], "--ranks") == 0)
      a.ranks = atoi(argv[i + 1]);
    else if (strcmp(argv[i], "--steps") == 0)
      a.steps = atoi(argv[i + 1]);
    else
      a.ranks = 0;
  }
  if (argc % 2 == 1 && a.steps > 0 && a.ranks > 0 && a.ranks <= kRows && kRows % a.ranks == 0)
    return a;
  fprintf(stderr,
          "usage: train [--config FILE] [--ranks N, a divisor of %d] [--steps N, at least 1] "
          "[--save DIR] [--resume DIR]\n",
          kRows);
  exit(2);
}

static void make_layer(struct layer *l, const char *name, int64_t n, int64_t k, int64_t rows,
                       uint64_t seed) {
  *l = (struct layer){.name = name, .n = n, .k = k};
  l->weight = floats(n * k), l->gradient = floats(n * k), l->momentum = floats(n * k);
  l->x = floats(rows * k), l->dx = floats(rows * k), l->y = floats(rows * n),
  l->dy = floats(rows * n);
  l->x_view = view(l->x, rows, k), l->dx_view = view(l->dx, rows, k),
  l->y_view = view(l->y, rows, n);
  l->dy_view = view(l->dy, rows, n), l->dw_view = view(l->gradient, n, k);
  fill(l->weight, n * k, seed, sqrtf(3.0f / (float)k));
}

int main(int argc, char **argv) {
  const struct arguments arguments = parse(argc, argv);
  octavo_ranks *ranks;
  check(octavo_ranks_open((uint32_t)arguments.ranks, &ranks), "octavo_ranks_open");
  struct rank *all = memory((uint64_t)arguments.ranks * sizeof(struct rank));
  pthread_t *threads = memory((uint64_t)arguments.ranks * sizeof(pthread_t));
  for (int i = 0; i < arguments.ranks; ++i) {
    struct rank *r = &all[i];
    r->arguments = &arguments, r->id = (uint32_t)i, r->rows = kRows / arguments.ranks;
    r->ranks = octavo_ranks_collective(ranks, r->id);
    r->hyper[OCTAVO_HYPER_LR] = 3e-3f, r->hyper[OCTAVO_HYPER_EPS] = 1e-8f;
    r->hyper[OCTAVO_HYPER_BETA1] = 0.9f, r->hyper[OCTAVO_HYPER_BETA2] = 0.99f;
    make_layer(&r->layers[0], "fc1", kHidden, kInputs, r->rows, 1);
    make_layer(&r->layers[1], "fc2", kOutputs, kHidden, r->rows, 2);
    if (pthread_create(&threads[i], NULL, run_rank, r) != 0)
      check(OCTAVO_NO_RESOURCE, "pthread_create");
  }
  for (int i = 0; i < arguments.ranks; ++i) pthread_join(threads[i], NULL);
  octavo_ranks_close(ranks);
  free_memory();
  const int is_written = fflush(stdout) == 0 && ferror(stdout) == 0;
  check(is_written ? OCTAVO_OK : OCTAVO_NO_RESOURCE, "writing to standard output");
  return 0;
}

/* parallel.c: program.c as a host that gives the kernels threads, by octavo.parallel/1.
 *
 *   parallel <liboctavo.so> <plugin directory> <backend>
 *
 * The session's kernels copy more memory than they leave to one thread. The ranges come from one
 * thread, the last first, since results do not depend on their order.
 */
#define main program_main
#include "program.c"
#undef main

#include "octavo/kernels.h"

enum { BYTES = 1 << 22, RANGES = 4 };

static uint64_t calls;

static octavo_status in_ranges(void *ctx, int64_t begin, int64_t end, int64_t grain,
                               void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
  const int64_t step = (end - begin) / RANGES;
  if (ctx != &calls || grain < 1) return OCTAVO_INVALID;
  for (int64_t i = RANGES - 1; i >= 0; --i)
    body(arg, begin + i * step, i == RANGES - 1 ? end : begin + (i + 1) * step);
  ++calls;
  return OCTAVO_OK;
}

int main(int argc, char **argv) {
  octavo_parallel *p = GUARDED(octavo_parallel, OCTAVO_KIND_PARALLEL);
  octavo_copy *c = GUARDED(octavo_copy, OCTAVO_KIND_COPY);
  uint8_t *in = malloc(BYTES), *out = calloc(1, BYTES);
  if (argc != 4)
    return fprintf(stderr, "usage: parallel <liboctavo.so> <directory> <backend>\n"), 2;
  if (in == NULL || out == NULL || !load(argv[1])) return 2;
  for (size_t i = 0; i < BYTES; ++i) in[i] = (uint8_t)(i * 2654435761u >> 24);
  p->ctx = &calls, p->parallel_for = in_ranges;
  threads = p;
  octavo_run *run = open_run(argv[2], argv[3]);
  if (run == NULL) return 1;
  const octavo_session_desc *d = lib.octavo_run_session_desc(run);
  c->in = in, c->out = out, c->bytes = BYTES;
  if (!succeeded("copy", d->kernels->copy(d->kernels_ctx, c))) return 1;
  printf("program of minor %d gives threads: %s\n", OCTAVO_ABI_MINOR,
         calls > 0 ? "used" : "not used");
  printf("copy: %s\n", memcmp(in, out, BYTES) == 0 ? "exact" : "wrong");
  lib.octavo_close(run);
  return 0;
}

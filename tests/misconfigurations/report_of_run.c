/* report_of_run <config>: opens a run, adds two linears, seals, and prints octavo_report as JSON.
 */
#include <stdio.h>
#include <string.h>

#include "octavo/octavo.h"

static void print_line(void *ctx, octavo_str line) {
  fprintf(ctx, "%.*s\n", (int)line.size, line.data);
}

static octavo_str text(const char *s) {
  const octavo_str t = {s, strlen(s)};
  return t;
}

static octavo_status add_layer(octavo_run *run, const char *name, int64_t rows, int64_t cols) {
  octavo_verdict verdict = {.size = sizeof verdict, .kind = OCTAVO_KIND_VERDICT};
  const octavo_parameter_desc parameter = {.size = sizeof parameter,
                                           .kind = OCTAVO_KIND_PARAMETER_DESC,
                                           .name = text(name),
                                           .rows = rows,
                                           .cols = cols,
                                           .dtype = OCTAVO_F32,
                                           .gradient_dtype = OCTAVO_F32,
                                           .flags = OCTAVO_PARAMETER_LINEAR_WEIGHT};
  octavo_linear_desc linear = {
      .size = sizeof linear, .kind = OCTAVO_KIND_LINEAR_DESC, .name = text(name)};
  octavo_status status = octavo_add_parameter(run, &parameter, &verdict, &linear.weight);
  uint32_t id = 0;
  if (status == OCTAVO_OK) status = octavo_add_linear(run, &linear, &verdict, &id);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  const octavo_open_desc desc = {
      .size = sizeof desc, .kind = OCTAVO_KIND_OPEN_DESC, .config_path = text(argv[1])};
  octavo_run *run = NULL;
  octavo_status status = octavo_open(&desc, &run);
  if (status == OCTAVO_OK) status = add_layer(run, "body.fc", 2048, 64);
  if (status == OCTAVO_OK) status = add_layer(run, "lm_head", 32, 64);
  if (status == OCTAVO_OK) status = octavo_seal(run);
  if (status == OCTAVO_OK) status = octavo_report(run, text("json"), print_line, stdout);
  octavo_close(run);
  return status;
}

/* host.h: what the two files of this host share. */
#pragma once

#include <octavo/draft/reduction.h>

enum { kRows = 64, kInputs = 32, kHidden = 64, kOutputs = 16, kLayers = 2 };

/* Settings of the command line. */
struct arguments {
  const char *config, *save, *resume;
  int ranks, steps;
};
/* y = x w^T, with what a step needs of it. */
struct layer {
  const char *name;
  int64_t n, k;
  float *weight, *gradient, *momentum; /* of this program, unless the backend owns them */
  float *x, *y, *dx, *dy;              /* [rows, k], [rows, n] and their gradients */
  uint32_t parameter, linear;          /* OCTAVO_NONE: the layer stays in this program */
  octavo_tensor x_view, y_view, dx_view, dy_view, dw_view;
  octavo_weight_call quantize;
  octavo_forward_call forward;
  octavo_backward_call backward;
};
/* One rank: a thread with a run, a store and a part of the batch. */
struct rank {
  const struct arguments *arguments;
  const octavo_collective *ranks;
  uint32_t id;
  int64_t rows;
  octavo_run *run;
  octavo_store *store;
  octavo_session *session;
  const octavo_backend *backend;
  const octavo_optimizer *optimizer;
  struct layer layers[kLayers];
  octavo_parameter_item items[kLayers], reduced[kLayers]; /* what the backend steps and reduces */
  uint64_t item_count, reduced_count;
  float hyper[OCTAVO_HYPER_COUNT], sum, skip;
  float *nonfinite; /* the slot that casts set to 1 when they see Inf or NaN; may be null */
  void *workspace, *send, *receive, *state;
};

/* Ends the program with this text if the status is a failure. */
void check(octavo_status status, const char *what);
octavo_str text(const char *s);
/* Memory of zeros, aligned as octavo/tensor.h asks of slots and workspaces. */
void *memory(uint64_t bytes);
float *floats(int64_t count);

/* The slot of this role that belongs to the object; null if the backend has none. */
const octavo_slot *slot_of(const octavo_run *run, uint32_t role, uint32_t owner_kind,
                           uint32_t owner);
/* Whether weight or gradient of the parameter is in a slot of the backend. */
int owns(const octavo_run *run, uint32_t parameter, uint32_t role);
/* Whether the backend's optimizer steps the layer. */
int is_stepped(const octavo_run *run, const struct layer *l);
octavo_tensor view(float *data, int64_t rows, int64_t cols);
/* Adds parameter and linear to the run; the report says why a layer stays in this program. */
void describe(struct rank *r, struct layer *l);
/* After the seal, in this order: native slots, calls, what the backend steps and reduces. */
void lend(struct rank *r, struct layer *l);
void bind_calls(struct rank *r, struct layer *l);
void take_owned(struct rank *r);
/* y from x; dx and the gradient from dy and x. */
void forward(struct rank *r, struct layer *l);
void backward(struct rank *r, struct layer *l);

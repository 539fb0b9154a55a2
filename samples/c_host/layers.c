/* Layers of the host: their slots, what is lent to the backend, their calls. */
#include <stdio.h>
#include <string.h>

#include "host.h"

const octavo_slot *slot_of(const octavo_run *run, uint32_t role, uint32_t owner_kind,
                           uint32_t owner) {
  for (uint32_t id = 0; id < octavo_run_slot_count(run); ++id) {
    const octavo_slot *s = octavo_run_slot(run, id);
    if (s->role == role && s->owner_kind == owner_kind && s->owner == owner) return s;
  }
  return NULL;
}
/* A native slot is a tensor of this program, which the backend looks at. */
int owns(const octavo_run *run, uint32_t parameter, uint32_t role) {
  const octavo_slot *s = slot_of(run, role, OCTAVO_OWNER_PARAMETER, parameter);
  return s != NULL && (s->flags & OCTAVO_SLOT_NATIVE) == 0;
}
int is_stepped(const octavo_run *run, const struct layer *l) {
  return l->linear != OCTAVO_NONE && (owns(run, l->parameter, OCTAVO_ROLE_WEIGHT) ||
                                      owns(run, l->parameter, OCTAVO_ROLE_GRADIENT));
}

octavo_tensor view(float *data, int64_t rows, int64_t cols) {
  return (octavo_tensor){data, rows, cols, cols, OCTAVO_F32, 0};
}

void describe(struct rank *r, struct layer *l) {
  octavo_parameter_desc p = {.size = sizeof p, .kind = OCTAVO_KIND_PARAMETER_DESC};
  char weight[64];
  snprintf(weight, sizeof weight, "%s.weight", l->name);
  p.name = text(weight), p.rows = l->n, p.cols = l->k;
  p.dtype = p.gradient_dtype = OCTAVO_F32, p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  octavo_linear_desc d = {.size = sizeof d, .kind = OCTAVO_KIND_LINEAR_DESC};
  l->parameter = l->linear = OCTAVO_NONE;
  check(octavo_add_parameter(r->run, &p, NULL, &l->parameter), "octavo_add_parameter");
  if (l->parameter == OCTAVO_NONE) return; /* the report has the reason */
  d.name = text(l->name), d.weight = l->parameter;
  check(octavo_add_linear(r->run, &d, NULL, &l->linear), "octavo_add_linear");
}

/* Tensors of this program, where the backend looks at them. All of them before any call is built.
 */
void lend(struct rank *r, struct layer *l) {
  const uint32_t roles[] = {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_GRADIENT};
  float *const tensors[] = {l->weight, l->gradient};
  for (int i = 0; i < 2 && l->parameter != OCTAVO_NONE; ++i) {
    const octavo_slot *s = slot_of(r->run, roles[i], OCTAVO_OWNER_PARAMETER, l->parameter);
    if (s != NULL && (s->flags & OCTAVO_SLOT_NATIVE) != 0)
      check(octavo_store_native(r->store, l->parameter, roles[i], tensors[i]),
            "octavo_store_native");
  }
}

/* The calls of a layer, with their memory. A weight that the backend owns moves there. */
void bind_calls(struct rank *r, struct layer *l) {
  if (l->linear == OCTAVO_NONE) return;
  const octavo_linear_plan *plan = octavo_run_plan(r->run, l->linear);
  const uint64_t rows = (uint64_t)r->rows;
  l->quantize = (octavo_weight_call){.size = sizeof l->quantize, .kind = OCTAVO_KIND_WEIGHT_CALL};
  l->quantize.parameter = l->parameter;
  l->quantize.slots = octavo_store_slots(r->store, OCTAVO_VERB_QUANTIZE_WEIGHT,
                                         OCTAVO_OWNER_PARAMETER, l->parameter);
  l->quantize.workspace = memory(plan->weight_workspace);
  l->forward = (octavo_forward_call){.size = sizeof l->forward, .kind = OCTAVO_KIND_FORWARD_CALL};
  l->forward.linear = l->linear, l->forward.x = &l->x_view, l->forward.y = &l->y_view;
  l->forward.slots =
      octavo_store_slots(r->store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, l->linear);
  l->forward.saved = memory(octavo_extent_bytes(&plan->saved, rows));
  l->forward.workspace = memory(octavo_extent_bytes(&plan->forward_workspace, rows));
  l->backward =
      (octavo_backward_call){.size = sizeof l->backward, .kind = OCTAVO_KIND_BACKWARD_CALL};
  l->backward.linear = l->linear, l->backward.x = &l->x_view;
  l->backward.dy = &l->dy_view, l->backward.dx = &l->dx_view;
  l->backward.dw = plan->gradient == OCTAVO_GRADIENT_TENSOR ? &l->dw_view : NULL;
  l->backward.slots =
      octavo_store_slots(r->store, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, l->linear);
  l->backward.saved = l->forward.saved;
  l->backward.workspace = memory(octavo_extent_bytes(&plan->backward_workspace, rows));
}

/* What the backend steps and reduces, because it owns weights or gradients. */
void take_owned(struct rank *r) {
  uint32_t stepped[kLayers], reduced[kLayers];
  for (int i = 0; i < kLayers; ++i) {
    const struct layer *l = &r->layers[i];
    if (l->linear == OCTAVO_NONE) continue;
    octavo_parameter_item item = {.parameter = l->parameter, .hyper = r->hyper};
    if (owns(r->run, l->parameter, OCTAVO_ROLE_GRADIENT)) {
      item.slots =
          octavo_store_slots(r->store, OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, l->parameter);
      reduced[r->reduced_count] = l->parameter, r->reduced[r->reduced_count++] = item;
    }
    if (!is_stepped(r->run, l)) continue;
    if (r->optimizer == NULL)
      check(OCTAVO_UNSUPPORTED, "a backend that owns weights and steps none");
    item.slots = octavo_store_slots(r->store, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER,
                                    l->parameter);
    stepped[r->item_count] = l->parameter, r->items[r->item_count++] = item;
  }
  uint64_t bytes = 0, state = 0;
  if (r->item_count > 0)
    check(r->optimizer->workspace_bytes(r->session, stepped, r->item_count, &bytes), "workspace");
  octavo_optimizer_desc desc = {.size = sizeof desc, .kind = OCTAVO_KIND_OPTIMIZER_DESC};
  if (r->item_count > 0) check(r->optimizer->describe(r->session, &desc), "describe");
  if (r->item_count > 0 && (desc.algorithm.size < 4 || memcmp(desc.algorithm.data, "adam", 4) != 0))
    check(OCTAVO_UNSUPPORTED, "a backend that steps by another algorithm than Adam");
  r->workspace = memory(bytes);
  if (r->reduced_count > 0 && r->ranks->world > 1) {
    check(
        octavo_reduction_bytes(r->run, reduced, r->reduced_count, r->ranks->world, &bytes, &state),
        "octavo_reduction_bytes");
    r->send = memory(bytes), r->receive = memory(bytes), r->state = memory(state);
  }
  for (int i = 0; i < kLayers; ++i) { /* the first values of weights in slots */
    struct layer *l = &r->layers[i];
    if (l->linear == OCTAVO_NONE || !owns(r->run, l->parameter, OCTAVO_ROLE_WEIGHT)) continue;
    octavo_tensor plain = view(l->weight, l->n, l->k);
    octavo_parameter_call c = {.size = sizeof c, .kind = OCTAVO_KIND_PARAMETER_CALL};
    c.parameter = l->parameter, c.role = OCTAVO_ROLE_WEIGHT, c.plain = &plain;
    c.slots = octavo_store_slots(r->store, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER,
                                 l->parameter);
    c.workspace = r->workspace;
    check(r->optimizer->write_parameter(r->session, &c), "write_parameter");
  }
}

/* The products of a layer that stayed here. */
static void multiply(const struct rank *r, struct layer *l, int is_backward) {
  if (!is_backward) memset(l->y, 0, (size_t)(r->rows * l->n) * sizeof(float));
  if (is_backward) memset(l->dx, 0, (size_t)(r->rows * l->k) * sizeof(float));
  for (int64_t row = 0; row < r->rows; ++row)
    for (int64_t j = 0; j < l->n; ++j)
      for (int64_t i = 0; i < l->k; ++i) {
        const int64_t x = row * l->k + i, y = row * l->n + j, w = j * l->k + i;
        if (!is_backward) l->y[y] += l->x[x] * l->weight[w];
        if (is_backward) l->gradient[w] += l->dy[y] * l->x[x], l->dx[x] += l->dy[y] * l->weight[w];
      }
}
void forward(struct rank *r, struct layer *l) {
  if (l->linear == OCTAVO_NONE) {
    multiply(r, l, 0);
    return;
  }
  check(r->backend->quantize_weight(r->session, &l->quantize), "quantize_weight");
  check(r->backend->linear_forward(r->session, &l->forward), "linear_forward");
}
void backward(struct rank *r, struct layer *l) {
  memset(l->gradient, 0, (size_t)(l->n * l->k) * sizeof(float)); /* the backend adds to it */
  if (l->linear == OCTAVO_NONE) {
    multiply(r, l, 1);
    return;
  }
  check(r->backend->linear_backward(r->session, &l->backward), "linear_backward");
}

// octavo.grouped/1 of the subject: a call of its own verbs for each linear.
#include <cstring>

#include "subject_session.h"

namespace octavo::selftest {
namespace {

uint64_t bytes_of(const octavo_extent &e, int64_t rows) {
  const auto multiple = static_cast<int64_t>(e.row_multiple);
  return static_cast<uint64_t>(round_up(rows, multiple)) * e.bytes_per_row + e.fixed_bytes;
}

uint64_t room_of(const octavo_session *s, uint32_t linear, int64_t rows) {
  octavo_linear_plan plan{};
  subject_plan(s, linear, &plan);
  return (bytes_of(plan.saved, rows) + OCTAVO_ALIGNMENT - 1) / OCTAVO_ALIGNMENT * OCTAVO_ALIGNMENT;
}

octavo_tensor rows_of(const octavo_tensor *all, int64_t first, int64_t rows) {
  if (all == nullptr) return {};
  octavo_tensor t = *all;
  t.rows = rows;
  if (t.data != nullptr)
    t.data = static_cast<uint8_t *>(all->data) +
             first * all->stride * static_cast<int64_t>(OCTAVO_DTYPE_BITS(t.dtype) / 8);
  return t;
}

bool is_group(const octavo_session *s, const uint32_t *linears, const int64_t *offsets,
              uint32_t count, int64_t rows) {
  if (count == 0) return false;
  for (uint32_t i = 0; i < count; ++i)
    if (linears[i] >= s->sealed_linears) return false;
  if (s->fault == kGroupedAnyOffsets) return true;
  for (uint32_t i = 0; i < count; ++i)
    if (offsets[i] > offsets[i + 1]) return false;
  return offsets[0] == 0 && offsets[count] == rows;
}

octavo_status plan(const octavo_session *s, const uint32_t *linears, uint32_t count,
                   octavo_grouped_plan *out) {
  if (count == 0) return OCTAVO_INVALID;
  octavo_extent all[3] = {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}};
  for (uint32_t i = 0; i < count; ++i) {
    octavo_linear_plan one{};
    if (subject_plan(s, linears[i], &one) != OCTAVO_OK) return OCTAVO_INVALID;
    const octavo_parameter_desc &w = s->parameters[s->linears[linears[i]].weight].desc;
    const octavo_parameter_desc &first = s->parameters[s->linears[linears[0]].weight].desc;
    const bool is_other = w.rows != first.rows || w.cols != first.cols;
    if (is_other && s->fault != kGroupedAnyShape) return OCTAVO_INVALID;
    for (uint32_t j = 0; j < i; ++j)
      if (linears[j] == linears[i]) return OCTAVO_INVALID;
    const octavo_extent parts[3] = {one.saved, one.forward_workspace, one.backward_workspace};
    for (int p = 0; p < 3; ++p) {
      const uint64_t fixed =
          parts[p].fixed_bytes + (parts[p].row_multiple - 1) * parts[p].bytes_per_row;
      if (parts[p].bytes_per_row > all[p].bytes_per_row)
        all[p].bytes_per_row = parts[p].bytes_per_row;
      if (p == 0 && s->fault != kGroupedTooLittle)
        all[p].fixed_bytes += fixed + OCTAVO_ALIGNMENT - 1;
      else if (fixed > all[p].fixed_bytes)
        all[p].fixed_bytes = fixed;
    }
  }
  out->flags = 0;
  out->saved = all[0], out->forward_workspace = all[1], out->backward_workspace = all[2];
  return OCTAVO_OK;
}

octavo_status forward(const octavo_session *s, const octavo_grouped_forward_call *c) {
  if (!is_group(s, c->linears, c->offsets, c->count, c->x->rows)) return OCTAVO_INVALID;
  auto *saved = static_cast<uint8_t *>(c->saved);
  if (s->fault == kGroupedClearsOnHost && saved != nullptr) std::memset(saved, 0, 1);
  for (uint32_t i = 0; i < c->count; ++i) {
    const int64_t rows = c->offsets[i + 1] - c->offsets[i];
    const octavo_tensor x = rows_of(c->x, c->offsets[i], rows);
    const octavo_tensor bias = rows_of(c->bias, s->fault == kGroupedOneBias ? 0 : i, 1);
    octavo_tensor y = rows_of(c->y, c->offsets[i], rows);
    octavo_forward_call one{};
    one.size = sizeof one;
    one.kind = OCTAVO_KIND_FORWARD_CALL;
    one.linear = c->linears[i];
    one.flags = c->flags;
    one.x = &x, one.y = &y;
    one.bias = c->bias == nullptr ? nullptr : &bias;
    one.slots = c->slots[i];
    one.saved = saved;
    one.workspace = c->workspace;
    subject_forward(s, &one);
    if (saved != nullptr && s->fault != kGroupedOneSaved) saved += room_of(s, one.linear, rows);
  }
  return OCTAVO_OK;
}

octavo_status backward(const octavo_session *s, const octavo_grouped_backward_call *c) {
  if (!is_group(s, c->linears, c->offsets, c->count, c->dy->rows)) return OCTAVO_INVALID;
  const auto *saved = static_cast<const uint8_t *>(c->saved);
  for (uint32_t i = 0; i < c->count; ++i) {
    const int64_t rows = c->offsets[i + 1] - c->offsets[i];
    const octavo_tensor dy = rows_of(c->dy, c->offsets[i], rows);
    octavo_tensor dx = rows_of(c->dx, c->offsets[i], rows), db = rows_of(c->db, i, 1);
    octavo_backward_call one{};
    one.size = sizeof one;
    one.kind = OCTAVO_KIND_BACKWARD_CALL;
    one.linear = c->linears[i];
    one.flags = c->flags;
    one.dy = &dy;
    one.dx = c->dx == nullptr ? nullptr : &dx;
    one.dw = c->dw == nullptr ? nullptr : c->dw[i];
    one.db = c->db == nullptr ? nullptr : &db;
    one.slots = c->slots[i];
    one.saved = saved;
    one.workspace = c->workspace;
    if (rows > 0 || s->fault != kGroupedSkipsEmpty) subject_backward(s, &one);
    if (s->fault != kGroupedOneSaved) saved += room_of(s, one.linear, rows);
  }
  return OCTAVO_OK;
}

}  // namespace

const octavo_grouped *subject_grouped() {
  static const octavo_grouped kTable = {sizeof(octavo_grouped), OCTAVO_KIND_GROUPED, plan, forward,
                                        backward};
  return &kTable;
}

}  // namespace octavo::selftest

// octavo/hpp/plugin/grouped.hpp: octavo.grouped/1 as one call of the backend's verbs for each
// linear.
//
// Included by verbs.hpp: every backend has it. One that can do better, in one launch, has members
// of these names of its own. Nothing here reads an address of the device.
#ifndef OCTAVO_HPP_PLUGIN_GROUPED_HPP
#define OCTAVO_HPP_PLUGIN_GROUPED_HPP

#include "octavo/hpp/plugin/verbs.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// Rows [first, first + count) of a plain matrix; null: no matrix.
inline octavo_tensor rows_of(const octavo_tensor *all, int64_t first, int64_t count) {
  if (all == nullptr) return {};
  octavo_tensor part = *all;
  part.rows = count;
  if (part.data != nullptr)
    part.data = static_cast<char *>(all->data) +
                first * all->stride * static_cast<int64_t>(OCTAVO_DTYPE_BITS(all->dtype) / 8);
  return part;
}

// Whether offsets divide `rows` rows.
inline bool divides(const int64_t *offsets, uint32_t count, int64_t rows) {
  if (offsets == nullptr || offsets[0] != 0 || offsets[count] != rows) return false;
  for (uint32_t i = 0; i < count; ++i)
    if (offsets[i] > offsets[i + 1]) return false;
  return true;
}

// The saved of each linear starts where every `saved` may.
inline uint64_t room_of(const octavo_extent &saved, int64_t rows) {
  return (bytes_of(saved, rows) + OCTAVO_ALIGNMENT - 1) / OCTAVO_ALIGNMENT * OCTAVO_ALIGNMENT;
}

// For any number of rows, a bound without steps: extents of several linears can be added.
inline octavo_extent without_steps(const octavo_extent &e) {
  return {1, e.bytes_per_row, e.fixed_bytes + (e.row_multiple - 1) * e.bytes_per_row};
}
inline void take_larger(octavo_extent &all, const octavo_extent &one) {
  const octavo_extent e = without_steps(one);
  all.bytes_per_row = std::max(all.bytes_per_row, e.bytes_per_row);
  all.fixed_bytes = std::max(all.fixed_bytes, e.fixed_bytes);
}

template <typename Self, typename OptionsType>
void Backend<Self, OptionsType>::check_group(const uint32_t *linears, uint32_t count) const {
  if (linears == nullptr || count == 0)
    throw Error(OCTAVO_INVALID, "expected the ids of one linear or more, found none");
  for (uint32_t i = 0; i < count; ++i) sealed_linear(linears[i]);
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::grouped_plan(const uint32_t *linears, uint32_t count,
                                                       octavo_grouped_plan *out) const {
  check_group(linears, count);
  std::vector<bool> seen(objects_.sealed_linears);
  const Parameter &first = objects_.parameters[objects_.linears[linears[0]].weight];
  octavo_grouped_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  plan.saved = plan.forward_workspace = plan.backward_workspace = {1, 0, 0};
  for (uint32_t i = 0; i < count; ++i) {
    const Linear &l = objects_.linears[linears[i]];
    const Parameter &w = objects_.parameters[l.weight];
    if (seen[l.id])
      throw Error(OCTAVO_INVALID, about(l.name) + "expected each linear once, found it twice");
    seen[l.id] = true;
    if (w.rows != first.rows || w.cols != first.cols)
      throw Error(OCTAVO_INVALID,
                  about(l.name) + "expected a weight [" + std::to_string(first.rows) + ", " +
                      std::to_string(first.cols) + "], as the first linear has, " + "found [" +
                      std::to_string(w.rows) + ", " + std::to_string(w.cols) + "]");
    auto one = make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
    if (const octavo_status status = self().linear_plan(l.id, &one); status != OCTAVO_OK)
      return status;
    plan.flags |= one.flags & OCTAVO_LINEAR_NEEDS_X;
    // Rows are shared out among the linears; what does not follow rows, each has.
    const octavo_extent saved = without_steps(one.saved);
    plan.saved.bytes_per_row = std::max(plan.saved.bytes_per_row, saved.bytes_per_row);
    plan.saved.fixed_bytes += saved.fixed_bytes + OCTAVO_ALIGNMENT - 1;
    // One runs after the other, in the same workspace.
    take_larger(plan.forward_workspace, one.forward_workspace);
    take_larger(plan.backward_workspace, one.backward_workspace);
  }
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof plan));
  return OCTAVO_OK;
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::grouped_forward(
    const octavo_grouped_forward_call *c) const {
  check_group(c->linears, c->count);
  if (!has_rows(c->x) || c->y == nullptr || c->y->rows != c->x->rows)
    throw Error(OCTAVO_INVALID,
                "expected x [M, K] and y [M, N] with M from 0 to 2^40, found null or another M");
  if (!divides(c->offsets, c->count, c->x->rows))
    throw Error(OCTAVO_INVALID, "expected offsets from 0 to M that never decrease");
  if (c->bias != nullptr && c->bias->rows != int64_t{c->count})
    throw Error(OCTAVO_INVALID, "expected a bias [count, N], found " +
                                    std::to_string(c->bias->rows) + " rows for " +
                                    std::to_string(c->count) + " linears");
  auto call = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  call.flags = c->flags;
  call.stream = c->stream;
  call.workspace = c->workspace;
  auto *saved = static_cast<char *>(c->saved);
  for (uint32_t i = 0; i < c->count; ++i) {
    const int64_t begin = c->offsets[i], rows = c->offsets[i + 1] - begin;
    const octavo_tensor x = rows_of(c->x, begin, rows), bias = rows_of(c->bias, i, 1);
    octavo_tensor y = rows_of(c->y, begin, rows);
    call.linear = c->linears[i];
    call.x = &x;
    call.y = &y;
    call.bias = c->bias == nullptr ? nullptr : &bias;
    call.slots = c->slots == nullptr ? nullptr : c->slots[i];
    call.saved = saved;
    if (const octavo_status status = self().linear_forward(&call); status != OCTAVO_OK)
      return status;
    if (saved != nullptr) saved += room_of(objects_.linears[call.linear].saved, rows);
  }
  return OCTAVO_OK;
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::grouped_backward(
    const octavo_grouped_backward_call *c) const {
  check_group(c->linears, c->count);
  if (!has_rows(c->dy) || (c->dx != nullptr && c->dx->rows != c->dy->rows))
    throw Error(OCTAVO_INVALID,
                "expected dy [M, N] and dx [M, K] with M from 0 to 2^40, found null or another M");
  if (!divides(c->offsets, c->count, c->dy->rows))
    throw Error(OCTAVO_INVALID, "expected offsets from 0 to M that never decrease");
  if (c->db != nullptr && c->db->rows != int64_t{c->count})
    throw Error(OCTAVO_INVALID, "expected db [count, N], found " + std::to_string(c->db->rows) +
                                    " rows for " + std::to_string(c->count) + " linears");
  // x is ignored where no linear asks for it, so it may have any shape there.
  const bool has_x = c->x != nullptr && c->x->rows == c->dy->rows;
  auto call = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  call.flags = c->flags;
  call.stream = c->stream;
  call.workspace = c->workspace;
  const auto *saved = static_cast<const char *>(c->saved);
  for (uint32_t i = 0; i < c->count; ++i) {
    const int64_t begin = c->offsets[i], rows = c->offsets[i + 1] - begin;
    const octavo_tensor dy = rows_of(c->dy, begin, rows);
    const octavo_tensor x = rows_of(has_x ? c->x : nullptr, begin, rows);
    octavo_tensor dx = rows_of(c->dx, begin, rows), db = rows_of(c->db, i, 1);
    call.linear = c->linears[i];
    call.dy = &dy;
    call.x = has_x ? &x : nullptr;
    call.dx = c->dx == nullptr ? nullptr : &dx;
    call.dw = c->dw == nullptr ? nullptr : c->dw[i];
    call.db = c->db == nullptr ? nullptr : &db;
    call.slots = c->slots == nullptr ? nullptr : c->slots[i];
    call.saved = saved;
    if (const octavo_status status = self().linear_backward(&call); status != OCTAVO_OK)
      return status;
    if (saved != nullptr) saved += room_of(objects_.linears[call.linear].saved, rows);
  }
  return OCTAVO_OK;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
